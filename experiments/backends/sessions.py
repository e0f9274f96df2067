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
    topology: Topology, addresses: Mapping[str, str], **options: Any
) -> AsyncIterator[dict[str, SwitchSession]]:
    """A session with every switch, by name; `addresses` say where each serves, `options` are further ones of
    `SwitchSession`. Raises ControllerError where one cannot be opened.
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
                **options,
            )
            sessions[switch.name] = await stack.enter_async_context(session)
        yield sessions
