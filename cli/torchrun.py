"""`weir torchrun`: a PyTorch script by torchrun on a fabric that is started for it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..experiments.errors import ExperimentError, Interrupted
from ..imports.extras import explained
from ..topologies import Endpoint, Topology
from ..topologies.mininet.fabric import MininetFabric, SwitchKind, interface
from ..topologies.mininet.processes import may_end_with_us, orderly_end, passing_on_end_signals
from ..topologies.mininet.scratch import scratch_folder
from .console import NOTES
from .fabric_options import (
    LossOption,
    MeshOption,
    StrategyOption,
    log_what_matters,
    lossy,
    nanoseconds,
    switch_in,
    timeout_of,
)
from .help import POLICY_NAMES, complete_policy
from .live import HistoryOption, LiveOptions, WebOption, watched

if TYPE_CHECKING:
    from ..experiments.backends.real_time import RealTimeFabric

_RANKS: Final = 4
_STRATEGY: Final = "widest"
_LEASE: Final = "10s"
_STORE_PORT: Final = 29_500
_SET_HERE: Final = ("WEIR_CONTROL", "WEIR_HOST", "WEIR_NIC")
"""Variables of the ranks that this command sets, whatever the environment has."""
_RUN: Final = (sys.executable, "-m", "weir.cli.elastic_entry")


class Where(StrEnum):
    """Fabric of a script."""

    EMULATED = "emulated"
    MININET = "mininet"


@dataclass(frozen=True, slots=True)
class _Options:
    """Options of the fabric and its controller."""

    strategy: str
    seed: int
    lease_ns: int
    shown: LiveOptions


def torchrun(
    words: Annotated[
        list[str], typer.Argument(metavar="SCRIPT [ARGUMENTS]…", help="Script that torchrun starts, and its arguments.")
    ],
    processes: Annotated[
        int | None,
        typer.Option("--nproc", "-n", min=1, help="Ranks, each on a host of its own; default: those of --mesh, or 4."),
    ] = None,
    mesh: MeshOption = None,
    where: Annotated[
        Where, typer.Option("--fabric", help="Emulated, without root, or in Mininet (root).")
    ] = Where.EMULATED,
    topology: Annotated[
        str, typer.Option(metavar="TOPOLOGY", help="The fabric: a file, or one that ships with Weir.")
    ] = "live.yaml",
    switch: Annotated[
        SwitchKind | None, typer.Option(help="Software of every switch in Mininet; default: weir.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help=f"When a rank is lost: {POLICY_NAMES}; default: WEIR_POLICY, else abort.",
            autocompletion=complete_policy,
        ),
    ] = None,
    lease: Annotated[str, typer.Option(help="Time without heartbeats after which a host is lost.")] = _LEASE,
    restarts: Annotated[
        int, typer.Option("--max-restarts", min=0, help="Max. restarts of a rank's process, alone.")
    ] = 0,
    strategy: StrategyOption = _STRATEGY,
    seed: Annotated[int, typer.Option(help="Seed of the fabric's random draws.")] = 1,
    loss: LossOption = 0.0,
    timeout: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="How long a call waits for other ranks, such as 30s; default: 30 min."),
    ] = None,
    web: WebOption = None,
    history: HistoryOption = None,
) -> None:
    """Run a PyTorch script by torchrun, on a fabric started for it.

    The fabric and its controller end with it. The script says init_process_group("weir"); the exit status is
    torchrun's. The time of an emulated fabric is the emulator's; the last line says how long links of its rates would
    take.
    """
    from ..controller.placement.strategies import description
    from ..hosts.drivers.control_client import refusal_of_policy
    from ..topologies import load_topology

    kind = switch_in(where is Where.MININET, switch, "the fabric is emulated")
    if policy is not None and (refusal := refusal_of_policy(policy, "--policy")):
        raise ExperimentError(refusal)
    fabric = lossy(load_topology(topology), loss)
    description(strategy)  # refused before a fabric is made
    lease_ns = nanoseconds("--lease", lease)
    if not lease_ns:
        raise ExperimentError("--lease 0: write it like 10s")
    told = timeout_of(timeout) | ({} if policy is None else {"WEIR_POLICY": policy})
    options = _Options(strategy, seed, lease_ns, LiveOptions(web, history))
    raise typer.Exit(_start(fabric, kind, processes, mesh, words, restarts, told, options))


def run_torchrun_file(file: Path, *, seed: int | None, check: bool, web: str | None, history: Path | None) -> None:
    """Run or check a file with a section `torchrun`; the exit status is torchrun's."""
    from ..experiments.config.torchrun import TorchrunFile

    config = TorchrunFile.load(file)
    run = config.torchrun
    if check:
        typer.echo(f"{file}: valid; a run executes {run.script}")
        return
    options = _Options(
        _STRATEGY, config.seed if seed is None else seed, nanoseconds("lease", _LEASE), LiveOptions(web, history)
    )
    words = [run.script, *map(str, run.arguments)]
    raise typer.Exit(_start(config.topology, None, run.ranks or None, run.mesh, words, 0, {}, options))


def _start(
    fabric: Topology,
    kind: SwitchKind | None,
    processes: int | None,
    mesh: str | None,
    words: Sequence[str],
    restarts: int,
    told: Mapping[str, str],
    options: _Options,
) -> int:
    """Run a script on a fabric; `told` are variables of its environment. Returns the exit status."""
    from ..hosts.collectives.mesh import check_mesh, read_mesh
    from ..hosts.torch.settings import Settings
    from .ranks import exit_status, hosts_for

    if find_spec("torch") is None:
        raise explained(ModuleNotFoundError(name="torch"), "weir torchrun")
    if mesh is not None:
        processes = prod(read_mesh(mesh, processes or 0, "--mesh"))
        told = {**told, "WEIR_MESH": mesh}
    hosts = hosts_for(fabric, _RANKS if processes is None else processes)
    settings = Settings.read({name: text for name, text in os.environ.items() if name not in _SET_HERE} | dict(told))
    if settings.mesh:
        check_mesh(settings.mesh, len(hosts), "WEIR_MESH")
    log_what_matters()
    try:
        with orderly_end() as end:
            return exit_status(end.run(_run(fabric, kind, hosts, words, restarts, dict(told), options)))
    except KeyboardInterrupt:
        raise Interrupted("interrupted; the ranks and their fabric are ended") from None


async def _run(
    topology: Topology,
    kind: SwitchKind | None,
    hosts: Sequence[str],
    words: Sequence[str],
    restarts: int,
    told: dict[str, str],
    options: _Options,
) -> int:
    """Run torchrun and return its exit status. With restarts each rank has a torchrun of its own, which restarts no
    other.
    """
    from ..experiments.backends.carried import CarriedTraffic
    from ..experiments.backends.live import live_fabric
    from .ranks import free_host

    starting = live_fabric(
        topology,
        kind,
        strategy=options.strategy,
        lease_ns=options.lease_ns,
        seed=options.seed,
        heartbeats_at=free_host(topology, hosts),
    )
    doing = f"ranks on {', '.join(hosts)}, placed by {options.strategy}"
    # PyTorch's torchrun leaves its folder for errors of ranks behind if a signal ends it
    with scratch_folder("weir-torchrun-") as errors:
        words = ["--log-dir", str(errors), *words]
        async with starting as live, watched(live, topology, options.shown, doing):
            told = {"OMP_NUM_THREADS": "1", **os.environ, **told, "WEIR_CONTROL": live.service.address}
            NOTES.print(
                f"{topology.name}: {len(topology.switches)} switches, ranks on {', '.join(hosts)}; jobs are served at "
                f"{live.service.address}",
                markup=False,
                soft_wrap=True,
            )
            if restarts:
                words = ["--max-restarts", str(restarts), *words]
            if isinstance(live.fabric, MininetFabric):
                return await _in_namespaces(live.fabric, hosts, words, told)
            together = _side_by_side if restarts else _in_one_torchrun
            status = await together(live.fabric, hosts, words, told)
            if carried := CarriedTraffic.of(live):
                NOTES.print(f"weir: {carried}", markup=False, soft_wrap=True)
            return status


async def _in_one_torchrun(
    fabric: RealTimeFabric, hosts: Sequence[str], words: Sequence[str], told: Mapping[str, str]
) -> int:
    """One torchrun for all ranks of an emulated fabric."""
    nics = ",".join(fabric.nic(host) for host in hosts)
    environment = {**told, "WEIR_HOST": ",".join(hosts), "WEIR_NIC": nics}
    command = [*_RUN, "--nproc-per-node", str(len(hosts)), "--master-port", str(_free_port()), *words]
    with passing_on_end_signals() as pass_on_to:
        run = await asyncio.create_subprocess_exec(*may_end_with_us("TERM"), *command, env=environment)
        pass_on_to(run)
        try:
            return await run.wait()
        finally:
            if run.returncode is None:  # Ctrl-C reaches it, too
                await run.wait()


async def _in_namespaces(
    fabric: MininetFabric, hosts: Sequence[str], words: Sequence[str], told: dict[str, str]
) -> int:
    """One torchrun on each host, as on machines of their own."""
    first = str(fabric.topology.host(hosts[0]).address)
    runs: list[Any] = []
    for number, host in enumerate(hosts):
        address = str(fabric.topology.host(host).address)
        command = [*_of_one_rank(number, len(hosts), first, _STORE_PORT), "--local-addr", address, *words]
        environment = {**told, "WEIR_HOST": host, "GLOO_SOCKET_IFNAME": interface(Endpoint(host, 0))}
        runs.append(fabric.popen(host, command, env=environment))
    return await _first_failure(runs)


async def _side_by_side(
    fabric: RealTimeFabric, hosts: Sequence[str], words: Sequence[str], told: dict[str, str]
) -> int:
    """One torchrun for each rank of an emulated fabric."""
    port = _free_port()
    runs: list[subprocess.Popen[bytes]] = []
    with passing_on_end_signals() as pass_on_to:
        for number, host in enumerate(hosts):
            command = [*may_end_with_us("TERM"), *_of_one_rank(number, len(hosts), "127.0.0.1", port), *words]
            environment = {**told, "WEIR_HOST": host, "WEIR_NIC": fabric.nic(host)}
            runs.append(subprocess.Popen(command, env=environment))
            pass_on_to(runs[-1])
        return await _first_failure(runs)


def _of_one_rank(number: int, ranks: int, first: str, port: int) -> list[str]:
    """Command line of the torchrun of one rank among several; the first one has the store at that address."""
    command = [*_RUN, "--nnodes", str(ranks), "--nproc-per-node", "1", "--node-rank", str(number)]
    return [*command, "--master-addr", first, "--master-port", str(port)]


async def _first_failure(runs: Sequence[Any]) -> int:
    """When all have ended, the first exit status that is not 0."""
    statuses = await asyncio.gather(*(asyncio.to_thread(run.wait) for run in runs))
    return next((status for status in statuses if status), 0)


def _free_port() -> int:
    """Return a port of 127.0.0.1 that is free at the moment."""
    with socket.socket() as free_socket:
        free_socket.bind(("127.0.0.1", 0))
        port: int = free_socket.getsockname()[1]
        return port
