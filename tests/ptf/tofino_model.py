"""The program's own PTF tests on the vendor's model of a Tofino 1, which Stratum drives: `make test-tofino-model`.

::

    ptf ── veth1 … veth7 ── veth0 … veth6 ── tofino-model ── stratum_bfrt ── P4Runtime ── the tests' controller

Meant for a network namespace of its own, which it fills with interfaces. Sources: the options of the model are those of
`run_tofino_model.sh` in p4lang/open-p4studio, Stratum's those of its `start-stratum.sh` and `main.cc`, and the chassis
is as in its configuration for `barefoot-tofino-model` (stratum/stratum f8f71301).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from weir.p4src import loaded_of
from weir.tests.paths import ROOT
from weir.tests.ptf.interfaces import make_pairs
from weir.topologies.targets import TARGETS, TOFINO

MODEL: Final = "tofino-model"
STRATUM: Final = "stratum_bfrt"
CHIP_TYPE: Final = 2
"""A Tofino 1, as the model counts them."""
PORTS: Final = (1, 2, 3, 4)
"""The chip's: of the model's first port all channels but the first, and the first of the second."""
CHANNELS: Final = 4
CHANNEL_BPS: Final = 10_000_000_000
NODE: Final = 1
"""P4Runtime's device id."""
ADDRESS: Final = "127.0.0.1:9559"
SWITCHD: Final = Path("/usr/share/stratum/tofino_skip_p4_no_bsp.conf")
START_S: Final = 300.0
"""The model and its driver take minutes to start."""


class NotHereError(Exception):
    """A requirement is not on this machine, or does not start."""


def chassis() -> str:
    """Stratum's chassis configuration: the four ports that the tests use."""
    ports = "".join(
        f"singleton_ports {{ id: {port} name: 'port {port}' slot: 1 port: {1 + port // CHANNELS} "
        f"channel: {1 + port % CHANNELS} speed_bps: {CHANNEL_BPS} "
        f"config_params {{ admin_state: ADMIN_STATE_ENABLED }} node: {NODE} }}\n"
        for port in PORTS
    )
    return (
        "description: 'a Tofino model under test'\n"
        "chassis { platform: PLT_GENERIC_BAREFOOT_TOFINO name: 'model' }\n"
        f"nodes {{ id: {NODE} slot: 1 index: 1 }}\n{ports}"
    )


def check(target: str) -> Path:
    """Return the studio's folder. Raises NotHereError with all missing parts and their sources."""
    missing, sde = [], os.environ.get("SDE_INSTALL", "")
    if os.geteuid() != 0:
        missing.append("root, for network interfaces")
    for tool, origin in (
        (MODEL, "of the open P4 studio (github.com/p4lang/open-p4studio)"),
        (STRATUM, "of Stratum (github.com/stratum/stratum), which is built with the same studio"),
        ("ip", "of iproute2"),
        ("ptf", "which 'make' installs"),
    ):
        if shutil.which(tool) is None:
            missing.append(f"{tool}, {origin}, on PATH")
    if not os.path.isdir(sde):
        missing.append("SDE_INSTALL, the folder that the studio is installed in")
    kind = TARGETS[target]
    if not (loaded := loaded_of(kind.program, kind.loads)).is_file():
        missing.append(f"{loaded.relative_to(ROOT)}, which 'make tofino' makes where p4c has its back end for Tofino")
    if missing:
        raise NotHereError("this takes " + "; ".join(missing))
    return Path(sde)


@contextlib.contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours, ended at the end whatever happens."""
    with log.open("wb") as written:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=written, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(address: str, processes: dict[str, subprocess.Popen[bytes]]) -> None:
    """Until something listens there. Raises NotHereError where a process ends before, or none ever does."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + START_S
    while True:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return
        for name, process in processes.items():
            if process.poll() is not None:
                raise NotHereError(f"{name} ended with {process.returncode}")
        if time.monotonic() > deadline:
            raise NotHereError(f"nothing listens at {address} after {START_S:g} s")
        time.sleep(0.2)


def play(target: str, sde: Path, switchd: Path, folder: Path, more: list[str]) -> int:
    """PTF's exit status."""
    ends = make_pairs(PORTS)
    mapping = [
        {"device_port": port, "veth1": int(ours.removeprefix("veth")), "veth2": int(theirs.removeprefix("veth"))}
        for port, (ours, theirs) in ends.items()
    ]
    (folder / "ports.json").write_text(json.dumps({"PortToVeth": mapping}))
    (folder / "chassis.pb.txt").write_text(chassis())
    model = [MODEL, "-d", "1", "-k", "1", "-f", str(folder / "ports.json"), "--install-dir", str(sde)]
    model += ["--chip-type", str(CHIP_TYPE), "--log-dir", str(folder), "--no-cli"]
    stratum = [STRATUM, f"-chassis_config_file={folder / 'chassis.pb.txt'}", f"-bf_sde_install={sde}"]
    stratum += [f"-bf_switchd_cfg={switchd}", "-bf_switchd_background=true", f"-log_dir={folder}"]
    stratum += [f"-bfrt_sde_config_dir={folder / 'bfrt'}", f"-external_stratum_urls={ADDRESS}"]
    words = ["ptf", "--test-dir", str(ROOT / "tests" / "ptf" / "fabric"), "--log-dir", str(folder)]
    words += [word for port, (_, theirs) in ends.items() for word in ("-i", f"{port}@{theirs}")]
    ports = ",".join(map(str, PORTS))
    words += ["--test-params", f"grpcaddr='{ADDRESS}';device={NODE};target='{target}';ports='{ports}'"]
    with (
        running(model, folder / f"{MODEL}.log") as simulating,
        running(stratum, folder / f"{STRATUM}.log") as driving,
    ):
        wait_for(ADDRESS, {MODEL: simulating, STRATUM: driving})
        return subprocess.run([*words, *more], check=False).returncode


def main(arguments: list[str]) -> int:
    """`python -m weir.tests.ptf.tofino_model`: PTF's exit status, or 2 where there is nothing to try it on."""
    parser = argparse.ArgumentParser(
        prog="python -m weir.tests.ptf.tofino_model",
        description="Run the program's PTF tests on the model of a Tofino behind Stratum, in this network namespace.",
        epilog="Other words go to ptf: a test's name, or its options.",
    )
    emulated = [name for name, kind in TARGETS.items() if kind.pipes is not None and kind.is_emulated]
    parser.add_argument(
        "--target", choices=[TOFINO.name, *emulated], default=TOFINO.name, help="the kind of switch that answers"
    )
    parser.add_argument("--switchd", type=Path, default=SWITCHD, help="the driver's configuration, as Stratum ships it")
    options, more = parser.parse_known_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="weir-tofino-model-"))
    try:
        status = play(options.target, check(options.target), options.switchd, folder, more)
    except NotHereError as error:
        sys.stderr.write(f"weir: {error}\n")
        status = 2
    if status and any(folder.iterdir()):
        sys.stderr.write(f"weir: what the model, Stratum and PTF wrote is in {folder}\n")
    else:
        shutil.rmtree(folder)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
