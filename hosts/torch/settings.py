"""A rank's settings from its environment: the controller's address, its host, and the calls that go through
switches.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from ...wire.control_channel import check_address, default_address
from ...wire.errors import WireError
from ..collectives.mesh import read_mesh
from ..drivers.control_client import refusal_of_policy
from ..errors import InvalidPlan

HIGHEST_PRIORITY: Final = 7
MIN_BYTES: Final = 4096
"""Default size in bytes from which a tensor goes through the switches: four chunks of float32."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The variables `WEIR_…`, and torchrun's own. An empty variable is as good as none."""

    control: str
    """`WEIR_CONTROL`: where the controller serves; by default this user's socket."""
    host: str
    """`WEIR_HOST`: this rank's host in the fabric, or one for each local rank, with commas; by default the machine's
    name.
    """
    policy: str
    """`WEIR_POLICY`: reaction to the loss of a rank: abort (by default), continue or wait."""
    min_bytes: int
    """`WEIR_MIN_BYTES`: smaller tensors go over Gloo."""
    priority: int | None
    """`WEIR_PRIORITY` of the ranks' jobs among all, 0 to 7; None: 0."""
    mesh: tuple[int, ...]
    """`WEIR_MESH`: sizes of the dimensions along which groups are registered together with the default group, such as
    2x2x2; empty: none are.
    """
    slots: int
    """`WEIR_SLOTS` of each group in every switch, a power of two; 0, the default, leaves it to the controller."""
    nic: str
    """`WEIR_NIC`: the path at which the process that emulates the fabric listens for this rank's host, or one for each
    local rank, with commas; by default none, and hosts have their addresses.
    """
    timeout: timedelta | None
    """`WEIR_TIMEOUT`: limit of a call, in seconds, for groups whose script states none; None: PyTorch's default."""
    restart: int
    """`TORCHELASTIC_RESTART_COUNT`: which attempt of torchrun this is."""

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read the settings. Raises InvalidPlan for an invalid value; the error names the variable."""
        policy = environment.get("WEIR_POLICY") or "abort"
        if refusal := refusal_of_policy(policy, "WEIR_POLICY"):
            raise InvalidPlan(refusal)
        try:
            control = environment.get("WEIR_CONTROL") or default_address()
            check_address(control)
        except WireError as error:
            raise InvalidPlan.of(error.within("WEIR_CONTROL")) from None
        return cls(
            control=control,
            host=_of_local_rank(environment, "WEIR_HOST") or socket.gethostname(),
            policy=policy,
            min_bytes=_number(environment, "WEIR_MIN_BYTES", MIN_BYTES),
            priority=_priority(environment),
            mesh=read_mesh(mesh, 0, "WEIR_MESH") if (mesh := environment.get("WEIR_MESH", "")) else (),
            slots=_slots(environment),
            nic=_of_local_rank(environment, "WEIR_NIC"),
            timeout=_timeout(environment.get("WEIR_TIMEOUT", "")),
            restart=_number(environment, "TORCHELASTIC_RESTART_COUNT", 0),
        )


def _of_local_rank(environment: Mapping[str, str], name: str) -> str:
    """The one value, or this local rank's of several; "" where nothing is said."""
    values = environment.get(name, "").split(",")
    local = _number(environment, "LOCAL_RANK", 0)
    if len(values) > 1 and local >= len(values):
        raise InvalidPlan(f"{name} has {len(values)} values, {' '.join(values)}; local rank {local} needs one, too")
    return values[local] if len(values) > 1 else values[0]


def _timeout(text: str) -> timedelta | None:
    try:
        timeout = timedelta(seconds=float(text)) if text else None
    except (ValueError, OverflowError):
        timeout = timedelta(0)
    if timeout is not None and timeout <= timedelta(0):
        raise InvalidPlan(f'"{text}" is not a positive number of seconds', place="WEIR_TIMEOUT", value=text)
    return timeout


def _priority(environment: Mapping[str, str]) -> int | None:
    priority = _number(environment, "WEIR_PRIORITY", -1)
    if priority > HIGHEST_PRIORITY:
        raise InvalidPlan(f"{priority} is not in 0…{HIGHEST_PRIORITY}", place="WEIR_PRIORITY", value=priority)
    return None if priority < 0 else priority


def _slots(environment: Mapping[str, str]) -> int:
    slots = _number(environment, "WEIR_SLOTS", 0)
    if slots == 1 or slots & (slots - 1):
        raise InvalidPlan(f"{slots} is not a power of two from 2 on", place="WEIR_SLOTS", value=slots)
    return slots


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    if not text:
        return default
    if not text.isdecimal():
        raise InvalidPlan(f'{name} "{text}" is not a number of 0 or more')
    return int(text)
