"""Address and security of the control service, shared by its two sides.

An address is `HOST:PORT`, or `unix:PATH`, which reaches across network namespaces and which only the socket's owner can
connect to. A TCP port is open to every user of its machine, so without TLS the operator who starts the service has to
allow that.
"""

from __future__ import annotations

import os
import re
import ssl
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .errors import WireError

if TYPE_CHECKING:
    import grpc

EXAMPLE_ADDRESS: Final = "127.0.0.1:9561"
"""TCP address in messages and guides."""

_HOST_PORT: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):(\d{1,5})")
_LONGEST_UNIX_PATH: Final = 107


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files of one side. With `authority` on both sides each checks the other's certificate."""

    certificate: Path
    key: Path
    authority: Path
    """The certificates that the other side's must be signed by."""

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return the server's credentials. Clients without a valid certificate are refused. Raises WireError for
        files that cannot be read, or used.
        """
        import grpc

        self.check()
        pair = (_read(self.key), _read(self.certificate))
        return grpc.ssl_server_credentials([pair], _read(self.authority), require_client_auth=True)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Return the client's credentials. Raises WireError for files that cannot be read, or used."""
        import grpc

        self.check()
        return grpc.ssl_channel_credentials(_read(self.authority), _read(self.key), _read(self.certificate))

    def check(self) -> None:
        """Raise WireError for files that cannot be read or used: gRPC does not say what is wrong with them."""
        for path in (self.certificate, self.key, self.authority):
            _read(path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certificate, self.key, password="")
        except (ssl.SSLError, ValueError) as error:
            why = getattr(error, "reason", None) or str(error)
            if why == "KEY_VALUES_MISMATCH":
                raise WireError(
                    f"{self.key} is not the key of {self.certificate}; give the two that belong together",
                    value=str(self.key),
                ) from None
            raise WireError(
                f"no PEM certificate and its key ({why})", place=f"{self.certificate}, {self.key}"
            ) from None
        try:
            context.load_verify_locations(self.authority)
        except ssl.SSLError as error:
            raise WireError(f"no PEM certificates ({error.reason or error})", place=str(self.authority)) from None


def default_address() -> str:
    """Return the default address of the control service: a socket in a folder that only this user can access.

    Raises:
        WireError: Another user has made that folder, and could answer in place of the service.
    """
    base = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(base) / "weir" if base else Path(tempfile.gettempdir()) / f"weir-{os.geteuid()}"
    try:
        found = folder.lstat()
    except OSError:
        return f"unix:{folder}/control"
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise WireError(
            "other users can write to it, so the control service is not there; name another address",
            place=str(folder),
            value=str(folder),
        )
    return f"unix:{folder}/control"


def check_address(address: str) -> str:
    """Return the address in gRPC's form. Raises WireError for an invalid one."""
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        if not path or len(path.encode()) > _LONGEST_UNIX_PATH:
            raise WireError(
                f'"{address}" is no address: a path has 1…{_LONGEST_UNIX_PATH} bytes; '
                "write it like unix:/run/weir.sock",
                value=address,
            )
        return address
    match = _HOST_PORT.fullmatch(address)
    if match is None or int(match[3]) > 65_535:
        raise WireError(
            f'"{address}" is no address; write it like {EXAMPLE_ADDRESS} or unix:/run/weir.sock',
            value=address,
        )
    return address


def is_private(address: str) -> bool:
    """Return True if only processes of the socket's owner can connect to the address."""
    return address.startswith("unix:")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise WireError(f"cannot be read ({error.strerror}); TLS needs it as a PEM file", place=str(path)) from None
