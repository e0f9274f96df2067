"""P4Runtime sessions with the switches of a fabric, which run the project's switch program."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from ...controller.p4runtime.pipeline import Pipeline
from ...controller.p4runtime.session import SwitchSession
from ...p4src import FABRIC_JSON, FABRIC_P4INFO
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
    pipeline = Pipeline(FABRIC_P4INFO, FABRIC_JSON)
    async with AsyncExitStack() as stack:
        sessions = {}
        for switch in topology.switches:
            session = SwitchSession(
                switch.name,
                addresses[switch.name],
                device_id=switch.device_id,
                pipeline=pipeline,
                timeout_s=CONNECT_S,
                **options,
            )
            sessions[switch.name] = await stack.enter_async_context(session)
        yield sessions
