"""P4Runtime sessions with the switches of a fabric, which run their targets' programs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from ...controller.p4runtime.pipeline import CompiledPipeline
from ...controller.p4runtime.session import SwitchSession
from ...p4src import loaded_of, p4info_of
from ...topologies import Topology

CONNECT_S: Final = 60.0
"""A program's first start on a machine compiles it."""


@asynccontextmanager
async def open_sessions(
    topology: Topology, addresses: Mapping[str, str], owner: int = 0, **options: Any
) -> AsyncIterator[dict[str, SwitchSession]]:
    """Open a session with every switch.

    Args:
        topology: The fabric.
        addresses: P4Runtime address of each switch.
        owner: Owner of the switches' registers, as in `Loading`. A controller without a journal has that of its
            sessions, and then need not load the programs a second time.
        **options: Further options of `SwitchSession`.

    Returns:
        The sessions, by switch.

    Raises:
        ControllerError: A session cannot be opened.
    """
    async with AsyncExitStack() as stack:
        sessions = {}
        for switch in topology.switches:
            target = switch.target
            session = SwitchSession(
                switch.name,
                addresses[switch.name],
                device_id=switch.device_id,
                pipeline=CompiledPipeline(p4info_of(target.program), loaded_of(target.program, target.loads)),
                timeout_s=CONNECT_S,
                owner=owner,
                **options,
            )
            sessions[switch.name] = await stack.enter_async_context(session)
        yield sessions
