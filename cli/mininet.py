"""`weir mininet`: a fabric of real processes and packets, with routes in its switches or a P4 program of one's own."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..experiments.errors import ExperimentError
from ..topologies import Routes, Topology
from ..topologies.exercise import Exercise, is_exercise, read_exercise
from ..topologies.mininet.fabric import FIRST_GRPC_PORT, MininetFabric, SwitchKind
from ..topologies.mininet.processes import run_until_ended
from .console import NOTES

if TYPE_CHECKING:
    from ..controller.p4runtime.entries import SwitchState
    from ..experiments.backends.user_program import UserProgram


FileArgument = Annotated[
    Path, typer.Argument(metavar="TOPOLOGY", help="The fabric: YAML, or the topology JSON of p4lang/tutorials.")
]
LinesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--exec",
        metavar="LINE",
        help='Run this line in place of the prompt, such as "h1 ping -c1 h2"; may be repeated.',
    ),
]
SocketsOption = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Folder of the switches' P4Runtime sockets; default: a temporary one."),
]
GrpcPortOption = Annotated[
    int | None,
    typer.Option(
        help=f"Serve P4Runtime on ports of 127.0.0.1 in place of sockets, from this one on, such as {FIRST_GRPC_PORT}; "
        "needs --allow-anyone."
    ),
]
AllowAnyoneOption = Annotated[
    bool, typer.Option("--allow-anyone", help="Let every user of this machine write to the switches (--grpc-port).")
]
ProgramOption = Annotated[
    Path | None, typer.Option(metavar="FILE.json", help="A P4 program of yours for every switch (BMv2 JSON).")
]
EntriesOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[SWITCH=]FILE",
        help="Runtime JSON, as p4lang/tutorials write it, for one switch or for all; may be repeated.",
    ),
]
CapturesOption = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Write every interface's packets there, as pcap.")
]
LogsOption = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Log to this folder what each switch does to each packet.")
]


def mininet(
    file: FileArgument,
    switch: Annotated[SwitchKind, typer.Option(help="Software of every switch.")] = SwitchKind.WEIR,
    lines: LinesOption = None,
    sockets: SocketsOption = None,
    grpc_port: GrpcPortOption = None,
    allow_anyone: AllowAnyoneOption = False,
    program: ProgramOption = None,
    p4info: Annotated[Path | None, typer.Option(metavar="FILE", help="Its P4Info; default: the one beside it.")] = None,
    entries: EntriesOption = None,
    captures: CapturesOption = None,
    logs: LogsOption = None,
) -> None:
    """Build a fabric in Mininet, with a prompt or commands (root).

    The command writes routes between all hosts. Then it opens Mininet's command line, or runs the lines of --exec.

    With a P4 program of yours, the switches run that, and hold what its runtime JSON says. An exercise that names no
    program starts switches without one. With --exec, the exit status
    is that of the first command that fails. Everything is stopped at the end.
    """
    from ..topologies import load_topology

    if grpc_port is not None and not allow_anyone:
        raise ExperimentError(
            f"--grpc-port {grpc_port}: every user of this machine could write to the switches; accept that by "
            "--allow-anyone, or use --sockets FOLDER, to which only you connect"
        )
    exercise = read_exercise(file) if is_exercise(file) else None
    topology = exercise.topology if exercise is not None else load_topology(file)
    loads = _user_programs(topology, exercise, program, p4info, entries or [])
    for folder in (captures, logs):
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ExperimentError(f"{folder}: cannot be a folder for what is seen ({error.strerror})") from None
    with MininetFabric(
        topology,
        switch,
        first_grpc_port=grpc_port,
        sockets=sockets,
        captures=captures,
        logs=logs,
        hosts=exercise.hosts if exercise is not None else None,
        device_ids=exercise.device_ids if exercise is not None else None,
    ) as fabric:
        for note in [*(exercise.notes if exercise is not None else ()), *fabric.notes]:
            _print(note)
        if loads is not None:
            written = f"{run_until_ended(load_programs(fabric, loads))} entries of yours written"
        elif exercise is not None:
            written = "no program loaded: your controller loads one"
            if grpc_port is None:
                _print(
                    "P4Runtime is on unix sockets; for a controller that expects ports, say "
                    f"--grpc-port {FIRST_GRPC_PORT} --allow-anyone"
                )
        else:
            states = run_until_ended(install_base_plan(topology, fabric.addresses))
            written = f"{sum(len(state.items) for state in states.values())} entries written and read back"
        servers = ", ".join(f"{name} {address}" for name, address in fabric.addresses.items())
        size = f"{len(topology.hosts)} hosts, {len(topology.switches)} {switch} switches"
        _print(f"{topology.name}: {size}, {written}")
        _print(f"P4Runtime: {servers}")
        if grpc_port is not None:
            _print("every user of this machine may write to the switches (--allow-anyone)")
        if fabric.thrift_ports:
            ports = ", ".join(f"{name} {port}" for name, port in fabric.thrift_ports.items())
            _print(f"simple_switch_CLI --thrift-port: {ports}; Thrift is open to every user of this machine")
        if lines is None:
            fabric.interact()
            return
        sys.stdout.flush()
        for line in lines:
            if status := fabric.execute(line):
                raise typer.Exit(status)


def _user_programs(
    topology: Topology,
    exercise: Exercise | None,
    program: Path | None,
    p4info: Path | None,
    entries: Sequence[str],
) -> Mapping[str, UserProgram] | None:
    """The user's program of each switch; None for Weir's own program."""
    from ..experiments.backends.user_program import user_programs
    from ..topologies.runtime_json import RuntimeFile

    names = [switch.name for switch in topology.switches]
    entry_files = {name: [file] for name, file in exercise.runtime.items()} if exercise is not None else {}
    for text in entries:
        name, equals, file = text.partition("=")
        if equals and name not in names:
            raise ExperimentError(
                f"--entries {text}: {topology.name} has no switch {name}; there are {', '.join(names)}"
            )
        read = RuntimeFile.read(Path(file if equals else text))
        for node in [name] if equals else names:
            entry_files.setdefault(node, []).append(read)
    programs = exercise.programs if exercise is not None else {}
    if program is None and p4info is None and not entry_files and not programs:
        return None
    return user_programs(names, program, p4info, entry_files, programs)


async def load_programs(fabric: MininetFabric, programs: Mapping[str, UserProgram]) -> int:
    """Load each switch's own program and entries; how many entries. Raises ExperimentError."""
    from ..experiments.backends.user_program import load_program

    written = 0
    for name, program in programs.items():
        written += await load_program(name, fabric.addresses[name], fabric.device_ids[name], program)
    return written


async def install_base_plan(topology: Topology, addresses: Mapping[str, str]) -> Mapping[str, SwitchState]:
    """Load the switch program into every switch and write the entries that need no job.

    Returns:
        The written state, by switch.

    Raises:
        ControllerError: a switch cannot be reached or refuses.
        ExperimentError: a switch reads back other entries, or is a chip.
    """
    from ..controller.p4runtime.reconcile import reconcile_all, verify
    from ..controller.planning.plan import base_state
    from ..experiments.backends.sessions import open_sessions
    from ..experiments.config.fabric import refuse_chips

    refuse_chips(topology, topology.name)
    routes = Routes(topology)
    states = {switch.name: base_state(topology, routes, switch.name) for switch in topology.switches}
    async with open_sessions(topology, addresses) as sessions:
        await reconcile_all(sessions, states)
        for name, session in sessions.items():
            if diff := await verify(session, states[name]):
                raise ExperimentError(f"{name}: {len(diff)} entries are not as they were written:\n{diff}")
    return states


def _print(text: str) -> None:
    NOTES.print(text, markup=False, soft_wrap=True)
