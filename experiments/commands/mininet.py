"""`weir mininet`: a fabric of real processes and packets, with the routes in its switches."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ...topologies import Routes, Topology
from ...topologies.mininet.fabric import FIRST_GRPC_PORT, MininetFabric, SwitchKind
from ..errors import ExperimentError

if TYPE_CHECKING:
    from ...controller.p4runtime.entries import SwitchState

_console = Console(stderr=True, highlight=False)


def mininet(
    file: Annotated[Path, typer.Argument(metavar="TOPOLOGY.yaml", help="The fabric.")],
    switch: Annotated[SwitchKind, typer.Option(help="The program that every switch runs.")] = SwitchKind.WEIR,
    lines: Annotated[
        list[str] | None,
        typer.Option(
            "--exec", metavar="LINE", help='Do this instead of asking, like "h1 ping -c1 h2"; may be repeated.'
        ),
    ] = None,
    grpc_port: Annotated[
        int, typer.Option(help="First of the ports on 127.0.0.1 where the switches serve P4Runtime.")
    ] = FIRST_GRPC_PORT,
) -> None:
    """Build a fabric in Mininet, write routes between all hosts, and open Mininet's command line (root).

    With --exec, the exit status is that of the first command that fails. Everything is stopped at the end.
    """
    from ...topologies import load_topology

    topology = load_topology(file)
    with MininetFabric(topology, switch, first_grpc_port=grpc_port) as fabric:
        for note in fabric.notes:
            _say(note)
        states = asyncio.run(install_base_plan(topology, fabric.addresses))
        entries = sum(len(state.items) for state in states.values())
        servers = ", ".join(f"{name} {address}" for name, address in fabric.addresses.items())
        size = f"{len(topology.hosts)} hosts, {len(states)} {switch} switches"
        _say(f"{topology.name}: {size}, {entries} entries written and read back")
        _say(f"P4Runtime: {servers}")
        if lines is None:
            fabric.interact()
            return
        sys.stdout.flush()
        for line in lines:
            if status := fabric.execute(line):
                raise typer.Exit(status)


async def install_base_plan(topology: Topology, addresses: Mapping[str, str]) -> Mapping[str, SwitchState]:
    """Load the switch program into every switch and write what is there without any job; what was written, by switch.

    Raises ControllerError where a switch cannot be reached or refuses, ExperimentError where one reads back otherwise.
    """
    from ...controller.p4runtime.reconcile import reconcile_all, verify
    from ...controller.planning.plan import base_state
    from ..backends.sessions import open_sessions

    routes = Routes(topology)
    states = {switch.name: base_state(topology, routes, switch.name) for switch in topology.switches}
    async with open_sessions(topology, addresses) as sessions:
        await reconcile_all(sessions, states)
        for name, session in sessions.items():
            if diff := await verify(session, states[name]):
                raise ExperimentError(f"{name}: {len(diff)} entries are not as they were written:\n{diff}")
    return states


def _say(text: str) -> None:
    _console.print(text, markup=False, soft_wrap=True)
