"""Run records: everything that a run was and did, in one folder, so that it can be read later and run again.

    runs/NAME-DATE/record.json    configuration, seed, versions, commit, figures of every strategy
    runs/NAME-DATE/index.html     the same for a reader, with plots

Figures are of two kinds: those of virtual time, which a replay must reproduce exactly, and wall-clock times, which it
need not.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from ...controller.int_config.cost import TelemetryCost
from ...imports import user_files
from ...imports.extras import DISTRIBUTION
from ...topologies.key_errors import problems_of
from ...topologies.mininet.fabric import SwitchKind
from ...topologies.mininet.scratch import keep_as, scratch_folder
from ...topologies.problems import listed
from ..config import RunConfig
from ..config.run_config import named_files
from ..errors import ExperimentError
from .figures import frame_of, rows_of, write_csv

RECORD_FILE: Final = "record.json"
_DIGEST: Final = "digest"
"""SHA-256 of the record, stored in the same file to detect changes."""
_UNDER_WAY: Final = ".under-way-"
_PACKAGES: Final = ("numpy", "llvmlite", "numba", "grpcio", "finsy", "cvxpy", "highspy", "scikit-learn")


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid")


class QueueTrace(_Record):
    """Depth of one egress queue, sampled at a fixed interval."""

    port: str
    time_ns: list[int]
    depth_packets: list[int]


class PromiseRecord(_Record):
    """Bound of one queue from a time on, or the reason that there is none."""

    time_ns: int
    text: str


class QueueUse(_Record):
    """A queue compared with its own bound."""

    port: str
    """Egress port, with the class if it is the queue of jobs' traffic class: `s1-p5, class 4`."""
    packets: int
    """The most packets that it held at any enqueue of the run."""
    bound: int
    """The loosest of its bounds in the run, in packets."""

    @property
    def share(self) -> float:
        """Packets held as a share of the bound, 0…1; more than 1 if the bound was exceeded."""
        return self.packets / max(self.bound, 1)


class MoveRecord(_Record):
    """One change of the aggregation point in a running job."""

    step: int
    time_ns: int
    switches: list[str]
    """The switches that sum from now on."""
    shard: int = 0
    """Index of the job's server that it concerns."""


class PlacementPhase(_Record):
    """The fabric while a job was summed along the same trees: between two moves, or before the first and after the
    last.
    """

    start_ns: int
    end_ns: int
    trees: list[dict[str, str]]
    """Parent of every worker and summing switch, per server or stripe of the job."""
    link_load: dict[str, float]
    """Load of each directed link (named by its sending endpoint) meanwhile, 0…1."""


class HeartbeatFigures(_Record):
    """Statistics of the workers' heartbeats through the fabric."""

    sent: int
    delivered: int
    p999_us: float
    """Delay that 99.9 % of those delivered do not exceed."""
    longest_us: float
    bound_us: float
    """Delay bound of those of the control class, in µs."""
    delays_us: list[float] = []
    """Delays of delivered heartbeats in µs, descending, denser towards the tail's end. Old records have none."""
    longer: list[int] = []
    """Number of delays longer than each of these."""
    taken_for_dead: int
    """Verdicts over workers; none of them was dead."""
    explained: int
    """Silences of a lease that telemetry explained by the network."""

    def __str__(self) -> str:
        return (
            f"{self.delivered} of {self.sent} came, 99.9 % within {self.p999_us:.1f} us, all within "
            f"{self.longest_us:.1f} us ({self.bound_us:.1f} us promised to the control class); workers were taken for "
            f"dead {self.taken_for_dead} times, and the network explained their silence {self.explained} times"
        )


class MininetHeartbeats(_Record):
    """Statistics of the hosts' heartbeats through Mininet's switches: all delays include processes' turns on the
    machine.
    """

    sent: int
    """Number sent, from each host's first received one to its last."""
    delivered: int
    p999_ms: float
    """Delay that 99.9 % do not exceed."""
    longest_ms: float
    lease_ms: float
    """Silence after which a host counts as dead, in ms."""
    taken_for_dead: int
    explained: int
    """Silences of a lease that telemetry explained by the network."""

    def __str__(self) -> str:
        return (
            f"{self.delivered} of {self.sent} came, 99.9 % within {self.p999_ms:.1f} ms, all within "
            f"{self.longest_ms:.1f} ms of a lease of {self.lease_ms:g} ms; hosts were taken for dead "
            f"{self.taken_for_dead} times, and the network explained their silence {self.explained} times"
        )


class JobTrace(_Record):
    """Progress of one of a run's jobs over time."""

    job: int
    """Its number on the wire; the trained job has the first, one for each of its servers."""
    workers: int
    round_trip_ns: int
    """Round trip from its slowest worker to the root in empty queues, in ns."""
    turn_ns: int = 0
    """Time in which a packet of every stream present at its start, its own included, crosses the slowest link of its
    way, in ns. No window is less than a round, so full queues make a round trip no shorter. Old records have none.
    """
    joined_ns: int
    """When the controller had taken it in."""
    sends_ns: int
    """Time from which its workers may send: the others apply windows with room for it by then."""
    left_ns: int | None = None
    """When it left; None: it was there to the end."""
    time_ns: list[int]
    chunks: list[int]
    """Number of chunks summed at its slowest worker, by time."""
    rounds: list[int] = []
    """Number of rounds complete at that worker, by time, those of exponents included. Old records have none."""


class FlowTrace(_Record):
    """Trace of one background flow that yields, or of one of the transport's."""

    kind: Literal["yielding", "transfer"] = "yielding"
    source: str
    destination: str
    port: int
    start_ns: int
    stop_ns: int | None
    """When it began to send no more; None: it did to the end."""
    packet_bytes: int
    """Bytes of a data frame."""
    sent: int
    acknowledged: int
    marked: int
    """Number of acknowledged packets that met a queue above its threshold; a transfer's packets carry no marks."""
    lost: int
    """Number of packets that the sender took for lost."""
    messages: int = 0
    """Number of messages that a transfer's receiver had whole."""
    mean_delay_us: float
    """Mean delay from the source's NIC to the destination, in µs."""
    time_ns: list[int]
    packets: list[int]
    """Number of packets received at the destination, by time."""


class _Timed(_Record):
    """Timed results of one strategy, in any backend."""

    strategy: str
    iteration_ns: list[int]
    """Completion time of each step's aggregation phase: gradients handed over until the last worker has the total."""

    @property
    def mean_ms(self) -> float:
        return float(np.mean(self.iteration_ns)) / 1e6

    @property
    def p95_ms(self) -> float:
        return float(np.percentile(self.iteration_ns, 95)) / 1e6


class StrategyResult(_Timed):
    """Results of one strategy in the virtual fabric."""

    achievable_ns: list[float | None] = []
    """Lower bound of each step's time (docs/queue-bounds.md §11); None if the job moved. Old records have none."""
    sums: list[str]
    """SHA-256 of each step's sum, the same at every worker."""
    busiest_link: str
    busiest_link_bytes: int
    """Bytes of the job that crossed its busiest link, in one direction."""
    largest_queue: str
    largest_queue_packets: int
    """Maximum depth of the data class's queue over all enqueues."""
    promised: dict[str, int | None]
    """Queue bound by egress port, in packets: the loosest of the run; None if there was no bound at some time."""
    class_promised: dict[str, int] = {}
    """Loosest bounds of queues of jobs' traffic classes, in packets, by port and class ("s5-p2, class 4"): those that
    had one at some time. Old records have none.
    """
    promises: list[PromiseRecord] = []
    """Queue bounds announced before anything was sent under them."""
    broken: list[str]
    """Queues that exceeded the bound of the time."""
    fullest_queue: QueueUse | None = None
    """The queue that came closest to its own bound; None: no queue had a bound, or the record is older."""
    queue_uses: list[QueueUse] = []
    """All queues with a bound that held two packets or more. Old records have none."""
    heartbeats: HeartbeatFigures | None = None
    """Heartbeats, for a run whose workers' heartbeats go through the fabric."""
    resends: int
    drops: dict[str, int]
    """Packets dropped, by reason, over all switches, links and hosts; reasons that never occurred are left out."""
    accuracy: float | None
    """Accuracy on held-out data, 0…1; None if the workload measures none."""
    weights: str
    """SHA-256 of the final weights, the same at every worker."""
    fabric: str
    """Digest of every frame that the fabric carried, with its time and port."""
    shares: list[int] = []
    """Proportions in which the job's servers, or its stripes, divided the tensors' chunks. Old records have none."""
    trees: list[dict[str, str]]
    """Parent of every worker and summing switch at the end of the run, per server or stripe of the job (one without).
    The root is not a key.
    """
    moves: list[MoveRecord]
    link_load: dict[str, float]
    """Load of each directed link (named by its sending endpoint) over the run, 0…1."""
    phases: list[PlacementPhase] = []
    """Phases of the whole run, in order; a move begins a new one with the step after it. Old records have none."""
    queues: list[QueueTrace]
    jobs: list[JobTrace] = []
    """Traces of all jobs, in order of admission, for a run of several jobs."""
    flows: list[FlowTrace] = []
    """Background flows that yield. Records of old have none."""
    telemetry: TelemetryCost | None = None
    """Traffic of probes and reports on the links; None in records from before it was measured."""
    solver_ms: list[float]
    """Wall-clock time of each placement decision."""
    wall_s: float

    @property
    def share(self) -> float | None:
        """Share of the achievable throughput, over steps in which the job did not move; None without such a step."""
        pairs = [(best, took) for best, took in zip(self.achievable_ns, self.iteration_ns, strict=False) if best]
        return sum(best for best, _ in pairs) / sum(took for _, took in pairs) if pairs else None

    @property
    def loosest_promise(self) -> int | None:
        """Largest queue bound in packets; None if a queue has no bound."""
        bounds = list(self.promised.values())
        return None if None in bounds else max((bound for bound in bounds if bound is not None), default=None)

    def reproducible(self) -> dict[str, object]:
        """Return the figures that a replay must reproduce."""
        unmeasured = {"telemetry"} if self.telemetry is None else set()
        if not self.phases:  # as in records of old
            unmeasured.add("phases")
        optional = ("shares", "class_promised", "promises", "achievable_ns", "fullest_queue", "queue_uses")
        unmeasured |= {name for name in optional if not getattr(self, name)}
        return self.model_dump(exclude={"solver_ms", "wall_s", *unmeasured})


class MininetResult(_Timed):
    """Results of one strategy with the same job in Mininet: real processes and packets. Times are the machine's; they
    begin when the last worker has submitted its gradient.
    """

    switch: str
    """Kind of every switch: weir or bmv2."""
    sums: list[str]
    """SHA-256 of each step's sum, the same at every worker."""
    weights: str
    """SHA-256 of the final weights, the same at every worker."""
    accuracy: float | None
    resends: int
    drops: dict[str, int]
    """Packets dropped, by reason, over all switches and workers; reasons that never occurred are left out."""
    generation: int
    """The generation in which the job ended, the highest among its shards; it began in generation 1."""
    trees: list[dict[str, str]]
    """The trees at the end of the run, as `StrategyResult.trees` has them."""
    heartbeats: MininetHeartbeats | None = None
    """Heartbeats, for a run whose hosts' heartbeats go through the fabric."""
    promised: dict[str, int | None] = {}
    """Queue bound by egress port, in packets: the loosest of the run; None if there was no bound at some time. Old
    records lack this field and those below.
    """
    deepest: dict[str, int] = {}
    """Maximum packets that INT reported of its data queue at a packet's departure, by egress port; ports without a
    report are left out.
    """
    broken: list[str] = []
    """Queues that exceeded the bound of the time, as far as INT shows."""
    notes: list[str]
    """Requests of the run that the machine or the switches could not fulfil."""
    wall_s: float


class ModeResult(_Record):
    """Results of one synchronisation mode, in the virtual fabric."""

    mode: str
    """Name of the mode; `index` tells apart several of the same name."""
    index: int
    """Its place among the modes of the configuration."""
    reached_ns: int | None
    """Virtual time until the held-out loss was the target's or less; None: it never was."""
    ended_ns: int
    """Virtual time of the whole training."""
    loss: float
    """Held-out, at the end."""
    accuracy: float
    updates: int
    """Changes of the weights that others see."""
    samples: int
    """Samples behind them."""
    dropped: int
    """Updates that came too late."""
    idle: float
    """Share of the workers' time in which they did not compute, 0…1."""
    resends: int
    broken: list[str] = []
    """Queues that exceeded the bound of the time. Old records have none."""
    weights: str
    """SHA-256 of the first worker's weights at the end."""
    losses: list[tuple[int, float]]
    """Virtual time and loss, over the training."""


class RunRecord(_Record):
    """One run, whole."""

    config: RunConfig
    started: str
    versions: dict[str, str]
    commit: str
    reference_weights: str
    """SHA-256 of the weights that plain NumPy training reaches with the same fixed-point sums and no network."""
    reference_accuracy: float | None
    results: list[StrategyResult]
    mininet: list[MininetResult] = []
    """Results of the strategies in Mininet, if the run included it."""
    modes: list[ModeResult] = []
    """The synchronisation modes, where the configuration has some."""
    code: dict[str, str] = {}
    """SHA-256 of each user strategy, by the path that `config` names it by; `config.workload` has its script's own."""

    @classmethod
    def begin(cls, config: RunConfig, reference_weights: str, reference_accuracy: float | None) -> RunRecord:
        """Return a record without results yet."""
        return cls(
            config=config,
            started=datetime.now().astimezone().isoformat(timespec="seconds"),
            versions=versions(),
            commit=checkout(),
            reference_weights=reference_weights,
            reference_accuracy=reference_accuracy,
            results=[],
            code={name: user_files.digest_of(Path(name)) for name in named_files(config.model_dump(mode="json"))},
        )

    @property
    def mininet_switch(self) -> SwitchKind | None:
        """Kind of the switches in Mininet; None if the run was in virtual time alone."""
        return SwitchKind(self.mininet[0].switch) if self.mininet else None

    def to_frame(self) -> Any:
        """Return the figures as a pandas DataFrame, a row per strategy (`figures.COLUMNS`).

        Raises:
            MissingExtra: pandas is not installed.
        """
        return frame_of(rows_of(self.results, self.config.seed))

    def save_csv(self, path: str | Path) -> None:
        """Write the figures as CSV, a row per strategy (`figures.COLUMNS`).

        Raises:
            ExperimentError: The file cannot be written.
        """
        write_csv(rows_of(self.results, self.config.seed), Path(path))

    def save(self, folder: Path) -> Path:
        """Write it with its digest, whole or not at all. Raises OSError."""
        path = folder / RECORD_FILE
        beside = path.with_name(f"{RECORD_FILE}.new")
        text = json.dumps({_DIGEST: self._digest(), **self.model_dump(mode="json")}, indent=1, ensure_ascii=False)
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        return path

    def _digest(self) -> str:
        without = None if self.code else {"code"}
        return hashlib.sha256(self.model_dump_json(exclude=without).encode()).hexdigest()

    def only_complete(self) -> RunRecord:
        """Reduce the record of an interrupted run to the strategies and modes that have all their results."""
        done = [result.strategy for result in self.results]
        if self.mininet:
            done = [result.strategy for result in self.mininet]
        synchronisation = None
        if self.modes and self.config.synchronisation is not None:
            modes = self.config.synchronisation.modes[: len(self.modes)]
            synchronisation = self.config.synchronisation.model_copy(update={"modes": modes}).model_dump()
        return self.model_copy(
            update={
                "config": self.config.replaced("what is complete", strategies=done, synchronisation=synchronisation),
                "results": [result for result in self.results if result.strategy in done],
            }
        )

    @classmethod
    def load(cls, folder: Path, *, trust: bool = False) -> RunRecord:
        """Read a record from its folder (or from its record.json). Only with `trust` may it name Python files, which
        are executed if their digests match the record.

        Raises:
            ExperimentError: There is none, it is not a record, or it names code that is not trusted or has changed.
        """
        path = folder / RECORD_FILE if folder.is_dir() else folder
        try:
            values = json.loads(path.read_bytes())
            said = values.pop(_DIGEST, None) if isinstance(values, dict) else None
            _check_code(path, values, trust)
            record = cls.model_validate_json(json.dumps(values))
        except OSError as error:
            raise ExperimentError(f"{path}: no run record there ({error.strerror})") from None
        except ValidationError as error:
            raise ExperimentError(
                listed(f"{path}: not a run record of this version", problems_of(error, cls, values)[:1])
            ) from None
        except (ValueError, RecursionError) as error:
            raise ExperimentError(f"{path}: not a run record: no JSON ({error})") from None
        if said != record._digest():
            raise ExperimentError(
                f'changed since it was written, or of an older version: its figures do not have its "{_DIGEST}"; take '
                "a whole copy, or run it again",
                place=str(path),
                value=said,
            )
        return record

    def differences(self, other: RunRecord) -> list[str]:
        """Return differences of a replay (`other`), a line each; empty if it reproduced every figure."""
        lines: list[str] = []
        if self.reference_weights != other.reference_weights:
            lines.append("reference training: other weights")
        for mine, theirs in zip(self.results, other.results, strict=True):
            before, after = mine.reproducible(), theirs.reproducible()
            lines += [f"{mine.strategy}: {name} differs" for name in before if before[name] != after[name]]
        for trained, retrained in zip(self.modes, other.modes, strict=True):
            figures, repeated = trained.model_dump(), retrained.model_dump()
            lines += [f"mode {trained.mode}: {name} differs" for name in figures if figures[name] != repeated[name]]
        for real, again in zip(self.mininet, other.mininet, strict=True):
            for name in ("sums", "weights"):
                if getattr(real, name) != getattr(again, name):
                    lines.append(f"{real.strategy} in Mininet: {name} differ")
        return lines


def _check_code(path: Path, values: object, trust: bool) -> None:
    """Refuse a record, of which nothing is checked yet, whose code is not trusted or not the code that it was run with.

    Raises ExperimentError.
    """
    config = values.get("config") if isinstance(values, dict) else None
    if not isinstance(config, dict):
        return
    files, workload = named_files(config), config.get("workload")
    scripts = [str(workload.get("script"))] if isinstance(workload, dict) else []
    if (files or scripts) and not trust:
        raise ExperimentError(
            f"{path}: runs Python files: {', '.join([*files, *scripts])}; read them, then say --trust to replay it"
        )
    known = values.get("code") if isinstance(values, dict) else None
    for name in files:
        said = known.get(name) if isinstance(known, dict) else None
        try:
            digest = user_files.digest_of(Path(name))
        except OSError as error:
            raise ExperimentError(f"{path}: {name} cannot be read ({error.strerror})") from None
        if said != digest:
            raise ExperimentError(f"{path}: {name} is not the file that was run: its SHA-256 differs")


@contextmanager
def run_folder(parent: Path) -> Iterator[Path]:
    """A folder in `parent` for a run that is under way, which `keep_folder` gives its name; without, it is removed.

    Raises: ExperimentError: it cannot be made.
    """
    try:
        if parent.exists() and not parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        parent.mkdir(parents=True, exist_ok=True)
        stack = ExitStack()
        folder = stack.enter_context(scratch_folder(_UNDER_WAY, parent.resolve()))
    except OSError as error:
        raise ExperimentError(f"{parent}: cannot make a run folder there ({error.strerror})") from None
    with stack:
        yield folder


def keep_folder(folder: Path, parent: Path, name: str) -> Path:
    """Rename a run's folder to `parent/NAME-DATE`, with a number if that exists already.

    Returns:
        The new path.

    Raises:
        ExperimentError: all numbers are taken.
        OSError: the folder cannot be renamed.
    """
    stem = f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    for suffix in ("", *(f"-{number}" for number in range(2, 100))):
        kept = parent / f"{stem}{suffix}"
        if not kept.exists():
            keep_as(folder, kept)
            return kept
    raise ExperimentError(f"{parent}: has a hundred runs called {stem} already; choose another --out")


def versions() -> dict[str, str]:
    """Return versions of Python and of packages that figures may depend on."""
    own = {"python": platform.python_version(), "weir": _version(DISTRIBUTION)}
    return own | {name: _version(name) for name in _PACKAGES}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


def checkout() -> str:
    """Return the checkout's commit, marked if it has changes; `unknown` outside a checkout."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return described.stdout.strip()
