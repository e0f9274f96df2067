"""Jobs of the user's own processes on an emulated fabric, without root: the work of `weir launch`.

::

    launcher: RealTimeFabric ◀─P4Runtime─▶ Controller ◀── ControlService on a unix socket
                   ▲ a socket for each host                       ▲
    a process for each rank: weir.join() ─────────────────────────┘   (WEIR_CONTROL, WEIR_JOB, WEIR_TOKEN, WEIR_NIC)
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, TextIO

from ..controller.placement.strategies import description
from ..experiments.backends.live import LiveFabric, live_fabric
from ..experiments.backends.real_time import RealTimeFabric
from ..experiments.errors import ExperimentError
from ..hosts import ControlClient
from ..hosts.collectives.mesh import check_mesh, groups_along
from ..hosts.drivers.control_client import refusal_of_policy
from ..topologies import Topology
from ..topologies.mininet.processes import LOOK_S, End, may_end_with_us
from ..wire import control_pb2 as pb

_TO_END_S: Final = 5.0
"""Time for the others to report that a rank has failed, and grace time from a signal to SIGKILL."""
_LONGEST_LINE: Final = 1 << 20
_BY_SIGNAL: Final = 128
"""Offset of the exit status of a process that a signal ended: the status is this plus the signal's number."""


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """A job, and the fabric for it."""

    topology: Topology
    workers: Sequence[str]
    """Hosts of the fabric, by rank."""
    strategy: str = "widest"
    policy: str = "abort"
    """Reaction to the loss of a rank: abort, continue or wait."""
    seed: int = 1
    stripes: int = 1
    """Trees that share the job's chunks, at most."""
    mesh: tuple[int, ...] = ()
    """Sizes of the dimensions along which the ranks have groups; empty: they have none."""

    def __post_init__(self) -> None:
        """Raises what would be said only when the fabric is there: TopologyError, PlacementError, ExperimentError."""
        for name in self.workers:
            self.topology.host(name)
        if twice := sorted({name for name in self.workers if self.workers.count(name) > 1}):
            raise ExperimentError(f"{', '.join(twice)}: named twice; a host runs one worker")
        if self.mesh:
            check_mesh(self.mesh, len(self.workers), "--mesh")
        if self.mesh and self.stripes > 1:
            raise ExperimentError(f"--stripes {self.stripes} and --mesh exclude each other: groups have one tree each")
        description(self.strategy)
        if refusal := refusal_of_policy(self.policy):
            raise ExperimentError(refusal)


@dataclass(frozen=True, slots=True)
class RankProcess:
    """One worker-to-be."""

    rank: int
    host: str
    environment: Mapping[str, str]
    """Variables from which `weir.join` reads its seat."""


@dataclass(frozen=True, slots=True)
class LaunchedJob:
    """A job that waits for its workers."""

    number: int
    ranks: Sequence[RankProcess]
    switches: Sequence[str]
    """Switches that sum the job at its start."""
    heartbeats_at: str | None
    """The host without a rank where the controller takes heartbeats, through the fabric; None: every host has one, and
    they come by the ranks' streams.
    """
    live: LiveFabric

    @property
    def behind_s(self) -> float:
        """Time by which the fabric was slower than the clock so far, in s."""
        assert isinstance(self.live.fabric, RealTimeFabric)
        return self.live.fabric.behind_s

    def first_failure(self) -> str:
        """Return the rank that has failed first and why, as the controller knows it; empty if it does not."""
        return self.live.service.first_failure(self.number)


@dataclass(frozen=True, slots=True)
class RanksEnd:
    """End of all ranks' processes."""

    status: int
    """0, or the exit status of the first rank that failed."""
    failure: str
    """Description of that rank's end; empty if none failed."""


def hosts_for(topology: Topology, count: int) -> list[str]:
    """Return the fabric's first hosts for this many workers. Raises ExperimentError if it has too few."""
    names = [host.name for host in topology.hosts]
    if not 1 <= count <= len(names):
        raise ExperimentError(
            f"{count} workers on {topology.name}, which has {len(names)} hosts; a host runs one worker: name a larger "
            "fabric by --topology, or fewer workers"
        )
    return names[:count]


def free_host(topology: Topology, taken: Collection[str]) -> str | None:
    """Return a host of the fabric without a worker, for the controller's heartbeats; None if there is none."""
    return next((host.name for host in topology.hosts if host.name not in taken), None)


@asynccontextmanager
async def launched_job(options: LaunchOptions) -> AsyncIterator[LaunchedJob]:
    """A fabric in real time with a controller, and a registered job on it, until the end of the block.

    Raises ExperimentError, and the other packages' errors, for invalid options.
    """
    topology, groups = options.topology, groups_along(options.mesh) if len(options.mesh) > 1 else []
    free = free_host(topology, options.workers)
    async with live_fabric(topology, strategy=options.strategy, seed=options.seed, heartbeats_at=free) as live:
        with ControlClient(live.service.address) as client:
            job = await asyncio.to_thread(
                client.register,
                options.workers,
                policy=options.policy,
                stripes=options.stripes,
                groups=[group for along in groups for group in along],
            )
            states = await asyncio.to_thread(client.jobs)
        ranks, seats = [], _seats_along(groups, job.groups)
        for seat in job.seats:
            environment = {**live.environment(job.job, seat), "WEIR_HOSTS": ",".join(options.workers)}
            if options.mesh:
                environment["WEIR_GROUPS"] = ",".join(seats[seat.rank])
            ranks.append(RankProcess(seat.rank, seat.host, environment))
        switches = sorted({name for state in states for name in state.switches})
        yield LaunchedJob(job.job, ranks, switches, free, live)


def _seats_along(groups: Sequence[Sequence[Sequence[int]]], jobs: Sequence[pb.Registration]) -> dict[int, list[str]]:
    """Return each rank's seats by dimension, `JOB:TOKEN` each; `jobs` are those of all groups, in their order."""
    seats: dict[int, list[str]] = defaultdict(list)
    for ranks, job in zip((group for along in groups for group in along), jobs, strict=True):
        for rank, seat in zip(ranks, job.seats, strict=True):
            seats[rank].append(f"{job.job}:{seat.token}")
    return seats


async def run_ranks(
    ranks: Sequence[RankProcess],
    command: Callable[[RankProcess], Sequence[str]],
    *,
    environment: Callable[[RankProcess], Mapping[str, str]] = lambda _: {},
    ends_together: bool = True,
    end: End | None = None,
) -> RanksEnd:
    """Run a command for each rank, with its seat in the environment, until all have ended.

    Output is passed on line by line, each with its rank in front. With `ends_together` a rank that fails ends the
    others; they have a few seconds to report their own errors. Processes that a rank has started end at the latest a
    few seconds after all ranks have. On cancellation all receive the signal that `end` holds, SIGINT by default.

    Args:
        ranks: the seats.
        command: returns the words of a rank's command.
        environment: returns variables of a rank beyond the present environment.
        ends_together: end all ranks when one fails.
        end: holds the signal to send on cancellation.

    Raises:
        ExperimentError: a command cannot be started, or a line not passed on.
    """
    running = _RunningRanks(ranks, ends_together=ends_together)
    try:
        for rank in ranks:
            await running.start(rank, command(rank), environment(rank))
        await running.wait()
        await running.end_rest()
    except asyncio.CancelledError:  # by a signal, which reaches this process alone
        await running.cancel(signal.SIGINT if end is None else end.by)
        raise
    finally:
        running.kill()
    return RanksEnd(running.status, running.failure)


class _RunningRanks:
    """Processes of all ranks, with the tasks that pass on their output."""

    def __init__(self, ranks: Sequence[RankProcess], *, ends_together: bool) -> None:
        self.status = 0
        """Exit status of the first rank that failed."""
        self.failure = ""
        """Description of that rank's end."""
        self._hosts = {rank.rank: rank.host for rank in ranks}
        self._ends_together = ends_together
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._lines: set[asyncio.Task[None]] = set()

    async def start(self, rank: RankProcess, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start a rank's process. Raises ExperimentError."""
        self._processes[rank.rank], *streams = await _start(rank, command, environment)
        for stream, out in zip(streams, (sys.stdout, sys.stderr), strict=True):
            self._lines.add(asyncio.create_task(_pass_on(rank.rank, stream, out)))

    async def wait(self) -> None:
        """Wait until all have ended, or until the others had time to end after a failure. Raises ExperimentError."""
        waiting = {asyncio.create_task(process.wait()): number for number, process in self._processes.items()}
        while waiting:
            late = self.status and self._ends_together
            done, _ = await asyncio.wait(
                {*waiting, *self._lines}, timeout=_TO_END_S if late else None, return_when=asyncio.FIRST_COMPLETED
            )
            for line in self._lines & done:
                self._lines.remove(line)
                line.result()  # raises
            for task in waiting.keys() & done:
                number = waiting.pop(task)
                self._note_end(number, task.result(), others=bool(waiting))
            if late and not done:
                break

    def _note_end(self, number: int, ended: int, *, others: bool) -> None:
        if not _is_there(self._processes[number]):
            del self._processes[number]  # its number may be another process's from now on
        if ended and not self.status:
            self.status = exit_status(ended)
            consequence = "; the others were ended" if self._ends_together and others else ""
            self.failure = f"rank {number} ({self._hosts[number]}) {_described(ended)}{consequence}"

    async def end_rest(self) -> None:
        """End ranks that still run, then the processes that ranks have started. Raises ExperimentError."""
        await _end([process for process in self._processes.values() if process.returncode is None], signal.SIGTERM)
        for number in (signal.SIGKILL, None):  # processes that ranks have started may print more for a while
            if self._lines:
                passed_on, self._lines = await asyncio.wait(self._lines, timeout=_TO_END_S)
                for line in passed_on:
                    line.result()
            if number is not None:
                _signal(self._processes.values(), number)

    async def cancel(self, by: signal.Signals) -> None:
        """End all with a signal, and pass on what its handlers print."""
        await _end(self._processes.values(), by)
        self._kill_processes()
        if self._lines:
            await asyncio.wait(self._lines, timeout=_TO_END_S)

    def kill(self) -> None:
        """Kill what is left, and pass on no more output."""
        self._kill_processes()
        for line in self._lines:
            line.cancel()

    def _kill_processes(self) -> None:
        _signal(self._processes.values(), signal.SIGKILL)


async def _start(
    rank: RankProcess, command: Sequence[str], extra: Mapping[str, str]
) -> tuple[asyncio.subprocess.Process, asyncio.StreamReader, asyncio.StreamReader]:
    """Start a rank's process; return it with the output, stdout and stderr, of it and its children."""
    (said, stdout), (complained, stderr) = await _pipe(), await _pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *may_end_with_us("TERM"),
            *command,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **rank.environment, **extra},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            process_group=0,  # with all that it starts
        )
    except OSError as error:
        raise ExperimentError(f"{command[0]}: cannot be started: {error.strerror}") from None
    finally:
        os.close(stdout)
        os.close(stderr)
    return process, said, complained


async def _pipe() -> tuple[asyncio.StreamReader, int]:
    """asyncio's own would keep a process waited for as long as anybody has its pipes."""
    end, other = os.pipe()
    reader = asyncio.StreamReader(_LONGEST_LINE)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(end, "rb", 0)
    )
    return reader, other


async def _pass_on(rank: int, stream: asyncio.StreamReader, out: TextIO) -> None:
    """Pass on a rank's lines as they come. Raises ExperimentError if the output is closed."""
    encoding = getattr(out, "encoding", None) or "utf-8"
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # longer than the limit of a line: the buffered part was dropped
            line = b"(a line that is too long)\n"
        if not line:
            return
        told = f"[{rank}] {line.decode('utf-8', 'replace').rstrip()}\n".encode(encoding, "backslashreplace")
        try:
            out.write(told.decode(encoding))
            out.flush()
        except OSError as error:
            with suppress(OSError):  # flushing the rest of its buffer would fail once more at the end
                os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
            raise ExperimentError(f"rank {rank}: a line cannot be written: {error.strerror}; all are ended") from None


async def _end(processes: Collection[asyncio.subprocess.Process], by: signal.Signals) -> None:
    """Send a signal to process groups, and wait until nothing of them runs, for the grace time at most.

    A rank is often a shell, which ends at once; the program that the shell has started needs its time all the same.
    """
    _signal(processes, by)
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + _TO_END_S
    while any(map(_is_there, processes)) and loop.time() < deadline_s:
        await asyncio.sleep(LOOK_S)


def _signal(processes: Collection[asyncio.subprocess.Process], number: signal.Signals) -> None:
    """Send a signal to processes and their children, as far as they exist and belong to this user."""
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def _is_there(process: asyncio.subprocess.Process) -> bool:
    """Return whether a process, or any child of it, runs."""
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def exit_status(ended: int) -> int:
    """Return a shell's exit status for a process that ended with this code."""
    return ended if ended >= 0 else _BY_SIGNAL - ended


def _described(status: int) -> str:
    if status > 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal has no name
        return f"was ended by signal {-status}"
