"""`weir controller`: keeps the switches of a fabric, and serves jobs to hosts and operators."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..experiments.errors import ExperimentError
from ..topologies import Routes, Topology
from ..topologies.mininet.fabric import FIRST_GRPC_PORT
from ..topologies.mininet.processes import run_until_ended
from ..wire.control_channel import Tls, is_private
from .console import NOTES
from .fabric_options import nanoseconds
from .help import STRATEGY_NAMES, complete_strategy
from .live import HistoryOption, WebOption, start_looking, watching

if TYPE_CHECKING:
    from ..controller.congestion import CongestionOptions
    from ..controller.controller import Controller
    from ..controller.int_config.settings import IntConfig
    from ..controller.jobs.journal_file import JournalFile
    from ..controller.options import ControllerOptions
    from ..controller.p4runtime.session import SwitchSession

_ANSWER_S = 5.0
"""Seconds to wait for the answer of a switch that hangs, for requests that need no program compiled."""

_TURN_S = 0.2
"""Time between two polls of the journal's lock, and of the primary controller."""

_SILENT_S = 30.0
"""Seconds to wait for a switch that answered the last controller and is absent when the next one begins: it may be
starting.
"""

_STUCK_LEASES = 3
"""Number of leases without a round after which a job with a live, waiting worker gets a new generation."""


@dataclass(frozen=True, slots=True)
class _Settings:
    """Settings from the command line."""

    topology: Topology
    addresses: Mapping[str, str]
    strategy: str
    order: str
    apply_order: bool
    lease_ns: int
    probe_ns: int
    solve_ns: int
    election_id: int
    listen: str | None
    tls: Tls | None
    switch_tls: Tls | None
    allow_anyone: bool
    journal: Path | None
    take_over: bool
    metrics_port: int | None
    reports_port: int | None
    heartbeats: str | None
    congestion: CongestionOptions
    watching: IntConfig | None
    web: str | None
    history: Path | None


SwitchOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=HOST:PORT", help="Where a switch serves P4Runtime; may be repeated."),
]
GrpcPortOption = Annotated[
    int,
    typer.Option(help="Without --sockets they serve on 127.0.0.1, from this port on, in the file's order."),
]
SocketsOption = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Switches that are not named serve there, at unix:FOLDER/NAME."),
]
SwitchTlsOption = Annotated[
    tuple[Path, Path, Path] | None,
    typer.Option(metavar="CERTIFICATE KEY AUTHORITY", help="PEM files for switches that serve P4Runtime by TLS."),
]
ListenOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="Where hosts and operators are served, or unix:PATH; default: this user's socket."
    ),
]
AllowAnyoneOption = Annotated[
    bool,
    typer.Option(
        "--allow-anyone", help="Serve a TCP port without TLS: every user who reaches it may register and end jobs."
    ),
]
TlsOption = Annotated[
    tuple[Path, Path, Path] | None,
    typer.Option(metavar="CERTIFICATE KEY AUTHORITY", help="PEM files; clients need certificates, too."),
]
StrategyOption = Annotated[
    str, typer.Option(help=f"Where gradients are summed: {STRATEGY_NAMES}.", autocompletion=complete_strategy)
]
JournalOption = Annotated[
    Path | None,
    typer.Option(help="Journal of the jobs, which continue after a restart of the controller."),
]
MetricsPortOption = Annotated[
    int | None, typer.Option(min=1, max=65_535, help="Serve Prometheus metrics on 127.0.0.1 at this port.")
]
ReportsPortOption = Annotated[
    int | None,
    typer.Option(
        "--reports",
        min=1,
        max=65_535,
        metavar="PORT",
        help="Take switches' telemetry reports at this UDP port; default: the one that --telemetry sends to.",
    ),
]
TelemetryOption = Annotated[
    Path | None,
    typer.Option(
        "--telemetry",
        metavar="FILE.yaml",
        help="Reports that switches send by themselves (flows, queues, drops), and where to (docs/telemetry.md).",
    ),
]
CongestionOption = Annotated[
    Path | None,
    typer.Option(
        "--congestion",
        metavar="FILE.yaml",
        help="Limit of queues, and declared background traffic (docs/congestion.md); default: 64 packets, and nothing.",
    ),
]
HeartbeatsOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST",
        help="Take heartbeats through the fabric, in its control class; this process runs on that host of it.",
    ),
]
TakeOverOption = Annotated[
    bool,
    typer.Option(
        "--take-over", help="End the controller that has the journal, even one that hangs, and continue its jobs."
    ),
]
ElectionIdOption = Annotated[
    int, typer.Option(help="Of two controllers on the same switches, the one with the higher id is primary.")
]


def controller(
    file: Annotated[Path, typer.Argument(metavar="TOPOLOGY", help="The fabric: a file, or one that ships with Weir.")],
    switch: SwitchOption = None,
    sockets: SocketsOption = None,
    grpc_port: GrpcPortOption = FIRST_GRPC_PORT,
    switch_tls: SwitchTlsOption = None,
    listen: ListenOption = None,
    allow_anyone: AllowAnyoneOption = False,
    tls: TlsOption = None,
    strategy: StrategyOption = "widest",
    order: Annotated[
        str, typer.Option(help="Order of jobs that weir jobs shows: fair, grouper … (docs/scheduling.md).")
    ] = "fair",
    apply_order: Annotated[
        bool, typer.Option("--apply-order", help="Put running jobs into the traffic classes of --order.")
    ] = False,
    lease: Annotated[str, typer.Option(help="Time without heartbeats after which a host or switch is lost.")] = "2s",
    probe: Annotated[str, typer.Option(help="Time between two rounds of probes.")] = "100ms",
    solve: Annotated[
        str, typer.Option(help="Time between two evaluations of jobs' trees; 0ms: jobs never move.")
    ] = "1s",
    journal: JournalOption = None,
    metrics_port: MetricsPortOption = None,
    reports_port: ReportsPortOption = None,
    telemetry: TelemetryOption = None,
    congestion: CongestionOption = None,
    heartbeats: HeartbeatsOption = None,
    web: WebOption = None,
    history: HistoryOption = None,
    take_over: TakeOverOption = False,
    election_id: ElectionIdOption = 10,
) -> None:
    """Control a fabric's switches for its jobs. Serves hosts and operators until Ctrl-C.

    Prints the queue bounds whenever they change.
    """
    from ..controller.placement.strategies import description
    from ..controller.scheduling.orders import ORDERS
    from ..topologies import load_topology

    _start_log()
    description(strategy)  # unknown names are refused before any switch is contacted
    ORDERS.describe(order)
    topology = load_topology(file)
    settings = _Settings(
        topology=topology,
        addresses=switch_addresses(topology, switch or [], grpc_port, sockets),
        strategy=strategy,
        order=order,
        apply_order=apply_order,
        lease_ns=nanoseconds("--lease", lease),
        probe_ns=nanoseconds("--probe", probe),
        solve_ns=nanoseconds("--solve", solve),
        election_id=election_id,
        listen=listen,
        tls=Tls(*tls) if tls is not None else None,
        switch_tls=Tls(*switch_tls) if switch_tls is not None else None,
        allow_anyone=allow_anyone,
        journal=journal,
        take_over=take_over,
        metrics_port=metrics_port,
        reports_port=reports_port,
        heartbeats=heartbeats,
        congestion=_congestion(congestion, topology),
        watching=None if telemetry is None else _watching(telemetry, topology),
        web=web,
        history=history,
    )
    _check(settings)
    _serve_until_ended(settings)


def _start_log() -> None:
    """Log warnings and, unless `weir -q` was given, queue bounds."""
    from ..controller.congestion.bound_log import PROMISES

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    if not NOTES.quiet:
        logging.getLogger(PROMISES).setLevel(logging.INFO)


def _check(settings: _Settings) -> None:
    """Refuse options that contradict each other, before any switch is contacted.

    Raises:
        ExperimentError: --take-over without --journal, or a period of 0.
        ControllerError: The address to listen at is open to others, without consent.
    """
    from ..controller.service.service import check_listening

    if settings.take_over and settings.journal is None:
        raise ExperimentError("--take-over ends the controller that has the journal; say which, by --journal FILE")
    for option, period_ns, example in (("--lease", settings.lease_ns, "2s"), ("--probe", settings.probe_ns, "100ms")):
        if period_ns == 0:
            raise ExperimentError(f"0 is not allowed; write it like {example}", place=option, value=0)
    check_listening(settings.listen, settings.tls, allow_anyone=settings.allow_anyone)


def _serve_until_ended(settings: _Settings) -> None:
    """Serve jobs until Ctrl-C or SIGTERM."""
    try:
        run_until_ended(_serve(settings))
    except (KeyboardInterrupt, SystemExit) as ended:
        _print("stopped; the switches keep their entries, and jobs continue")
        if isinstance(ended, SystemExit):
            raise


def _congestion(file: Path | None, topology: Topology) -> CongestionOptions:
    """Return the settings of a congestion file, or the defaults. Raises ExperimentError."""
    from ..controller.congestion import WALL_CLOCK_LEASE_NS, CongestionOptions
    from ..experiments.config.congestion import ControllerCongestion

    if file is None:
        return CongestionOptions(lease_ns=WALL_CLOCK_LEASE_NS)
    return ControllerCongestion.load(file, topology)


def _watching(file: Path, topology: Topology) -> IntConfig:
    """Return the telemetry settings of a file. Raises ExperimentError."""
    from ..experiments.config.telemetry import TelemetryConfig

    return TelemetryConfig.load(file).watching(topology, str(file))


def switch_addresses(
    topology: Topology, named: Sequence[str], first_port: int, sockets: Path | None = None
) -> Mapping[str, str]:
    """Return the P4Runtime address of each switch. Raises ExperimentError for a name that is not in the fabric."""
    addresses = {node.name: f"127.0.0.1:{first_port + index}" for index, node in enumerate(topology.switches)}
    if sockets is not None:
        addresses = {name: f"unix:{sockets / name}" for name in addresses}
    for text in named:
        name, equals, address = text.partition("=")
        if not equals or name not in addresses:
            raise ExperimentError(
                f'--switch "{text}" names no switch of {topology.name}; write it like '
                f"{topology.switches[0].name}=127.0.0.1:9559"
            )
        addresses[name] = address
    return addresses


def _options(settings: _Settings) -> ControllerOptions:
    from ..controller.jobs.membership import longest_silence_ns
    from ..controller.options import ControllerOptions
    from ..controller.placement.strategies import STRATEGIES

    return ControllerOptions(
        probe_period_ns=settings.probe_ns,
        solve_period_ns=settings.solve_ns,
        together=STRATEGIES[settings.strategy].jointly,
        order=settings.order,
        apply_order=settings.apply_order,
        decide_aside=True,
        contains_failures=True,
        dwell_ns=5 * settings.solve_ns,
        lease_ns=settings.lease_ns,
        patience_ns=None if settings.heartbeats is None else longest_silence_ns(settings.lease_ns),
        stuck_ns=_STUCK_LEASES * settings.lease_ns,
        heartbeats_at=settings.heartbeats,
        congestion=settings.congestion,
        watching=settings.watching,
    )


async def _serve(settings: _Settings) -> None:
    from ..controller.controller import Controller
    from ..controller.placement.strategies import strategy as strategy_named
    from ..controller.service.heartbeats import HeartbeatSocket
    from ..controller.service.metrics import serve as serve_metrics
    from ..controller.service.service import ControlService
    from ..experiments.backends.batch_sizes import size_rule
    from ..experiments.backends.sessions import open_sessions

    topology = settings.topology
    async with AsyncExitStack() as stack:
        beats = None if settings.heartbeats is None else HeartbeatSocket.bind(topology, settings.heartbeats)
        journal = await _open_journal(stack, settings)
        fabric = {} if journal is None else journal.all("fabric")
        sessions = await stack.enter_async_context(
            open_sessions(
                topology,
                settings.addresses,
                answer_s=_ANSWER_S,
                election_id=settings.election_id,
                standby=True,
                patient=bool(fabric),  # one that is dead now is no reason to leave the others alone
                tls=settings.switch_tls,
            )
        )
        await _until_turn(sessions, fabric.get("lost", ()))
        keeper = Controller(
            topology,
            Routes(topology),
            sessions,
            strategy_named(settings.strategy),
            _options(settings),
            time.monotonic_ns(),
            journal=journal,
        )
        await keeper.start(time.monotonic_ns())
        service = await stack.enter_async_context(
            ControlService(
                keeper,
                address=settings.listen,
                tls=settings.tls,
                allow_anyone=settings.allow_anyone,
                heartbeats=beats,
                size_rule=size_rule,
            )
        )
        port = settings.reports_port
        if port is None and settings.watching is not None and settings.watching.collector is not None:
            port = settings.watching.port
        if port is not None:
            _receive_reports(stack, keeper, port, service.now_ns)
        if settings.metrics_port is not None:
            heard = None if beats is None else service.heartbeats
            page = serve_metrics(keeper, service.now_ns, settings.metrics_port, heartbeats=heard)
            at = await stack.enter_async_context(page)
            _print(f"metrics: http://127.0.0.1:{at}/metrics")
        watch = stack.enter_context(watching(settings.web, settings.history))
        if watch is not None:
            watch.begin(topology, topology.name, service.now_ns())
            doing = f"placed by {settings.strategy}"
            stack.callback(start_looking(watch, keeper, service.now_ns, doing).cancel)
        if settings.tls is None and not is_private(service.address):
            _print(f"{service.address} is open: every user who reaches it may register and end jobs (--allow-anyone)")
        running = f"; {len(keeper.jobs)} jobs go on" if keeper.jobs else ""
        _print(
            f"{topology.name}: {len(sessions)} switches, {len(topology.hosts)} hosts; "
            f"jobs are served at {service.address}{running}"
        )
        await service.wait()


def _receive_reports(stack: AsyncExitStack, keeper: Controller, port: int, clock: Callable[[], int]) -> None:
    """Receive switches' reports at this port, as they arrive and before every decision."""
    from ..controller.telemetry.collector import ReportCollector
    from ..controller.telemetry.report_socket import ReportSocket

    collector = keeper.reports or ReportCollector(keeper.topology, keeper.links)
    reports = stack.enter_context(ReportSocket(collector, port, "0.0.0.0"))
    keeper.sources.append(reports.poll)
    stack.callback(keeper.sources.remove, reports.poll)  # the service ends after it
    loop = asyncio.get_running_loop()
    loop.add_reader(reports, lambda: reports.poll(clock()))
    stack.callback(loop.remove_reader, reports)
    _print(f"telemetry reports are taken at UDP port {reports.port}")


async def _open_journal(stack: AsyncExitStack, settings: _Settings) -> JournalFile | None:
    """Open the journal once no other controller has it.

    Until then this controller sends nothing to the switches, so that the other one continues even if this one's
    election id is higher.
    """
    from ..controller.jobs.journal_file import JournalFile
    from ..controller.jobs.journal_lock import JournalLock

    if settings.journal is None:
        return None
    lock = stack.enter_context(JournalLock(settings.journal))
    if settings.take_over and not lock.acquire():
        await asyncio.to_thread(lock.end_holder)
    said = None
    while not lock.acquire():
        if (holder := lock.holder) != said and holder is not None:
            _print(
                f"process {holder} has the journal {settings.journal}; this controller waits until that is gone "
                "(--take-over ends it, should it hang)"
            )
            said = holder
        await asyncio.sleep(_TURN_S)
    return stack.enter_context(JournalFile(settings.journal))


async def _until_turn(sessions: Mapping[str, SwitchSession], lost: Collection[str]) -> None:
    """Wait until this controller may write to every switch that answers.

    Another controller may have control. A switch that does not answer gets `_SILENT_S` seconds; one in `lost`, none.

    Raises:
        ExperimentError: No switch answers.
    """
    silent = [name for name, session in sessions.items() if not session.is_up]
    if gone := [name for name in silent if name in lost]:
        _print(f"{', '.join(gone)}: lost before, and still no answer; placed around until there is one")
    if awaited := [name for name in silent if name not in lost]:
        _print(f"{', '.join(awaited)}: no answer; waited for {_SILENT_S:g} s, and then taken for lost")
    if others := [name for name, session in sessions.items() if session.is_up and not session.is_primary]:
        _print(f"another controller rules {', '.join(others)}; this one waits until that is gone")
    await asyncio.gather(
        *(_until_primary(session, 0.0 if name in lost else _SILENT_S) for name, session in sessions.items())
    )
    if not any(session.is_up for session in sessions.values()):
        where = ", ".join(f"{name} at {session.address}" for name, session in sessions.items())
        raise ExperimentError(
            f"no switch answers ({where}); check --switch, --sockets and --grpc-port, and that they run", value=where
        )


async def _until_primary(session: SwitchSession, silent_s: float) -> None:
    """Wait until this controller may write to a switch, or until the switch has not answered for `silent_s` seconds."""
    while not session.is_primary:
        if session.is_up:
            await asyncio.sleep(_TURN_S)
            continue
        with suppress(TimeoutError):
            async with asyncio.timeout(silent_s):
                await session.until_primary()
        if not session.is_up:
            return
    await session.until_primary()


def _print(text: str) -> None:
    NOTES.print(text, markup=False, soft_wrap=True)
