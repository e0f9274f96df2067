"""What a run is: fabric, job, training, background traffic and strategies, from a YAML file.

Every error names the file, the key and the value, and says what would be right.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from ..controller.congestion import CongestionOptions, Uncontrolled
from ..controller.placement.model.problem import PlacementError
from ..controller.placement.strategies import STRATEGIES, Need, description
from ..controller.watching.settings import Watching
from ..hosts.numerics.quantization import chunk_count
from ..imports import user_files
from ..topologies import Topology, TopologyError, file_keys
from ..topologies.key_errors import problems_of
from ..topologies.problems import BadFile, shown, told
from ..topologies.schema import parse_topology, shipped
from ..topologies.spelling import nearest
from ..topologies.targets import LIKE_TOFINO
from ..topologies.units import format_delay
from ..topologies.yaml_file import YamlFile
from ..wire.frames import FRAME_HEADER_BYTES
from ..wire.heartbeat import HEARTBEAT_BYTES, HEARTBEAT_PORT
from .background import Background, SteadyFlow, YieldingFlow, uncontrolled, windowed
from .congestion import CongestionConfig
from .errors import ExperimentError
from .jobs import JobConfig, OtherJobConfig
from .sections import Duration, FileName, LongDuration, Section, one_of_or_own, read_section, strange_hosts
from .synchronisation import SynchronisationConfig
from .telemetry import TelemetryConfig
from .workloads.digits import TrainingJob, TrainingOptions
from .workloads.script import ScriptOptions, ScriptWorkload, gradient_values, script_digest
from .workloads.workload import Workload

NEED_SERVER: Final = frozenset(name for name, known in STRATEGIES.items() if Need.SERVER in known.needs)
"""Strategies that cannot do with a switch as the root."""


StrategyName = Annotated[str, one_of_or_own(STRATEGIES)]


class TrainingConfig(Section):
    """For how long is trained, and how the digits' network is, where the run has no workload of its own."""

    hidden: int = Field(128, ge=1, le=4096)
    """Of the digits' network: units of the hidden layer."""
    batch: int = Field(16, ge=1, le=1024)
    """Of the digits' network: images per worker and step."""
    steps: int = Field(150, ge=1)
    learning_rate: float = Field(0.15, gt=0)
    """Of the digits' network."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Of the digits' network."""
    compute: Duration = 500_000
    """Virtual time that a worker takes for one gradient."""

    @property
    def options(self) -> TrainingOptions:
        return TrainingOptions(self.hidden, self.batch, self.steps, self.learning_rate, self.momentum)


OF_THE_DIGITS: Final = frozenset({"hidden", "batch", "learning_rate", "momentum"})
"""Keys of `training` that mean nothing to a workload of one's own."""


class WorkloadConfig(Section):
    """What is trained in the digits' place: workers that a Python file makes."""

    script: str
    """The file, from the run's file; a record has the whole path."""
    options: dict[str, Any] = Field({})
    """Given by name to the function `worker` of the script."""
    digest: str = ""
    """SHA-256 of the script, which a record has so that a replay runs the same one; a run's file leaves it out."""

    @field_validator("options")
    @classmethod
    def _as_a_record_has_them(cls, options: dict[str, Any]) -> dict[str, Any]:
        for name, value in options.items():
            try:
                json.dumps(value)
            except TypeError:
                raise ValueError(
                    f"{name}: {value} is no text, number, true, false, null, list or mapping of these; in quotes it is "
                    "text"
                ) from None
        return options


class ControlConfig(Section):
    """How often the controller looks, and how quickly it can act."""

    interval: LongDuration = 2_000_000
    """Time between two rounds of probes."""
    warm_up: Duration = 20_000_000
    """Probes alone, before the job is placed."""
    solve_interval: LongDuration = 20_000_000
    """Time between two looks at whether the job should move."""
    dwell: Duration = 50_000_000
    """A job that has moved stays for so long."""
    latency: Duration = 100_000
    """How long a message takes from the controller to a host, or back."""
    gain: float = Field(0.15, ge=0, lt=1)
    """A running job is moved when the predicted completion time falls by more than this share."""


HEARTBEAT_FRAME_BYTES: Final = FRAME_HEADER_BYTES + HEARTBEAT_BYTES
LEAST_STRETCH: Final = 0.75
"""An interval between two heartbeats is stretched by a factor from here to as much above 1."""


LEAST_INTERVAL_NS: Final = 10_000
"""Between a worker's heartbeats: in no time virtual time would not go on."""


class HeartbeatConfig(Section):
    """What workers say of themselves to the controller, through the fabric, and who is taken for dead."""

    to: str
    """The host where the controller takes them; it has no part in the job."""
    interval: Duration = 5_000_000
    """Between two heartbeats of a worker; 10us is the least."""
    lease: Duration = 20_000_000
    """A worker that was not heard of for so long is taken for dead, and its job waits for it."""
    in_class: bool = True
    """Whether they have the control class (DSCP 48, strict priority), or wait behind bulk traffic."""
    detector: Literal["telemetry", "timer"] = "telemetry"
    """Whether telemetry is asked if the network explains a worker's silence before it is taken for dead."""

    @field_validator("interval")
    @classmethod
    def _is_long_enough(cls, interval: int) -> int:
        if interval < LEAST_INTERVAL_NS:
            raise ValueError(f"too short; {format_delay(LEAST_INTERVAL_NS)} is the least")
        return interval

    def declared(self, hosts: Iterable[str]) -> tuple[Uncontrolled, ...]:
        """What those of these hosts bring to queues, or before them if they are in the control class."""
        rate_bps = 8e9 * HEARTBEAT_FRAME_BYTES / (LEAST_STRETCH * self.interval)
        ports = HEARTBEAT_PORT, HEARTBEAT_PORT
        return tuple(
            Uncontrolled(host, self.to, rate_bps, HEARTBEAT_FRAME_BYTES, ports=ports, in_control_class=self.in_class)
            for host in hosts
        )


class RunConfig(Section):
    """One run."""

    name: FileName
    seed: int = Field(1, ge=0, lt=1 << 32)
    fabric: dict[str, Any]
    """The fabric, spelled out as in topologies/*.yaml (a file may name another one: `fabric: leaf_spine.yaml`)."""
    job: JobConfig
    training: TrainingConfig = TrainingConfig()
    other_jobs: list[OtherJobConfig] = Field([])
    """Jobs beside the trained one: the same kind of traffic, whose sums are checked and lead to nothing."""
    workload: WorkloadConfig | None = None
    background: Background = Field([])
    host_poll: Duration = 30_000
    """Hosts take what has arrived at multiples of this, as NICs with interrupt moderation do; 0: frame by frame."""
    loss: float = Field(0.0, ge=0, lt=1)
    """Probability that a link loses a frame, on every link, in both directions, over what the fabric itself says."""
    control: ControlConfig = ControlConfig()
    congestion: CongestionConfig = CongestionConfig()
    heartbeats: HeartbeatConfig | None = None
    telemetry: TelemetryConfig | None = None
    """What switches report by themselves, besides what probes tell."""
    synchronisation: SynchronisationConfig | None = None
    """Modes in which is trained as well, under the last of the strategies; None: none."""
    strategies: list[StrategyName] = Field(["ps", "rack", "hierarchy", "blind", "widest"], min_length=1)

    @model_validator(mode="after")
    def _share_out(self) -> Self:
        chunks = chunk_count(self.gradient_values)
        if len(self.job.roots) > chunks:
            key = "stripes" if self.job.servers is None else "servers"
            raise ValueError(
                f"job.{key}: {len(self.job.roots)} {key} share the chunks of a gradient, which has {chunks}; "
                "take no more than that"
            )
        return self

    @model_validator(mode="after")
    def _check_modes(self) -> Self:
        if self.synchronisation is None:
            return self
        if self.workload is not None:
            raise ValueError(
                "synchronisation: modes train the digits' network or a convolutional one, and the run has a workload "
                "of its own; leave one of the two sections out"
            )
        self.synchronisation.check(len(self.job.workers), has_server=self.job.server is not None)
        return self

    @model_validator(mode="after")
    def _leave_int_to_hosts(self) -> Self:
        if self.congestion.law != "hpcc" or self.telemetry is None:
            return self
        if self.telemetry.watch:
            raise ValueError(
                "telemetry.watch: with congestion.law hpcc messages carry INT from host to host: sinks would take it "
                "out, and watchlists pass over what has INT; watch queues and drops, or take another law"
            )
        if self.telemetry.mtu is not None:
            raise ValueError(
                "telemetry.mtu: with congestion.law hpcc messages carry as much INT as links have room for; leave it "
                "out, or take another law"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _those_that_go(cls, data: Any) -> Any:
        """Without a server, and where the file names no strategies: those that need none."""
        if not isinstance(data, dict) or "strategies" in data or not isinstance(job := data.get("job"), dict):
            return data
        if job.get("server") is not None or job.get("servers") is not None:
            return data
        usual: list[str] = cls.model_fields["strategies"].default
        return {**data, "strategies": [name for name in usual if name not in NEED_SERVER]}

    @field_validator("strategies")
    @classmethod
    def _known(cls, names: list[str], others: ValidationInfo) -> list[str]:
        for name in names:
            try:
                description(name)
            except PlacementError as error:
                raise ValueError(str(error)) from None
        if len(set(names)) < len(names):
            raise ValueError("a strategy is named twice; name each once")
        job: JobConfig | None = others.data.get("job")  # there is none where it is wrong itself
        if (
            job is not None
            and None in job.roots
            and (needing := [name for name in names if Need.SERVER in STRATEGIES[name].needs])
        ):
            raise ValueError(
                f"{', '.join(needing)} needs a parameter server and the job has none; "
                f"without one go {', '.join(sorted(STRATEGIES.keys() - NEED_SERVER))}"
            )
        return names

    @classmethod
    def load(cls, path: Path) -> RunConfig:
        """Read a run's YAML file.

        Raises: ExperimentError: it cannot be read, or says something that no run can be.
        """
        try:
            written = YamlFile.read(path, "a run is a YAML mapping with name, fabric and job")
        except BadFile as error:
            raise ExperimentError(str(error)) from None
        data = dict(written.data)
        if isinstance(data.get("fabric"), str):
            data["fabric"] = _read_fabric(path, data["fabric"])
        elif isinstance(data.get("fabric"), dict):
            _check_fabric(data["fabric"], f"{path}: fabric", written, ["fabric"])
        if isinstance(workload := data.get("workload"), dict) and isinstance(workload.get("script"), str):
            data["workload"] = _found_script(path, workload, data.get("training"))
        if isinstance(names := data.get("strategies"), list):
            data["strategies"] = [found_strategy(path, name) for name in names]
        config = read_section(cls, written, data)
        config.check_names(str(path), written)
        return config

    def replaced(self, option: str, **values: object) -> RunConfig:
        """The same run but for some keys. Raises `ExperimentError`, in the name of `option`, for what no run can be."""
        return self._validated(option, {**self.model_dump(), **values})

    @property
    def congestion_options(self) -> CongestionOptions:
        """As the controller takes them, with what background flows may send."""
        own, workers = self.congestion, self.job.workers
        beating = dict.fromkeys([*workers, *(worker for other in self.other_jobs for worker in other.workers)])
        beats = self.heartbeats.declared(beating) if self.heartbeats is not None else ()
        return CongestionOptions(
            own.bound,
            (*uncontrolled(self.steady), *beats),
            own.lease,
            windows_obeyed=own.law == "explicit",
            marks=own.marks,
            virtual_share=own.virtual_share,
            windowed=windowed(self.yielding),
        )

    @property
    def steady(self) -> list[SteadyFlow]:
        """Background flows that never yield."""
        return [flow for flow in self.background if isinstance(flow, SteadyFlow)]

    @property
    def yielding(self) -> list[YieldingFlow]:
        """Background flows that do."""
        return [flow for flow in self.background if isinstance(flow, YieldingFlow)]

    @property
    def gradient_values(self) -> int:
        """How many numbers a worker hands over in a step. Raises ExperimentError where a script cannot tell."""
        script = self.script
        if script is None:
            return self.training.options.parameters
        return gradient_values(script, len(self.job.workers), self.seed)

    def new_job(self) -> Workload:
        """What is trained, at its beginning. Raises ExperimentError where a script cannot make it."""
        workers = len(self.job.workers)
        if (script := self.script) is not None:
            return ScriptWorkload(script, workers, self.seed)
        return TrainingJob(self.training.options, workers, self.seed)

    @property
    def script(self) -> ScriptOptions | None:
        """The workload of one's own; None: the digits."""
        given = self.workload
        if given is None:
            return None
        return ScriptOptions(given.script, given.digest, self.training.steps, given.options)

    @property
    def topology(self) -> Topology:
        """The fabric; its links lose frames as it says and, besides, as `loss` does."""
        topology = parse_topology(self.fabric, f"run {self.name}: fabric")
        links = tuple(replace(link, loss=1 - (1 - link.loss) * (1 - self.loss)) for link in topology.links)
        return replace(topology, links=links)

    def check_names(self, where: str, written: YamlFile | None = None) -> None:
        """Every host that the run names is one of the fabric's, whose switches can be emulated. Raises
        `ExperimentError`.
        """
        topology = self.topology
        refuse_chips(topology, f"{where}: fabric")
        named = [("job.workers", name) for name in self.job.workers]
        key = "job.server" if self.job.servers is None else "job.servers"
        named += [(key, name) for name in self.job.roots if name is not None]
        for index, other in enumerate(self.other_jobs):
            named += [(f"other_jobs.{index}", name) for name in sorted(other.hosts)]
        for index, flow in enumerate(self.background):
            named += [
                (f"background.{index}.source", flow.source),
                (f"background.{index}.destination", flow.destination),
            ]
            if flow.source == flow.destination:
                raise ExperimentError(f"{where}: background.{index}: {flow.source} sends to itself; name two hosts")
        ends = [(flow.source, flow.destination, flow.port) for flow in self.yielding]
        if twice := [end for end in ends if ends.count(end) > 1]:
            source, destination, port = twice[0]
            raise ExperimentError(
                f"{where}: background: two yielding flows go from port {port} of {source} to {destination}; give one "
                "of them another port"
            )
        if self.heartbeats is not None:
            named.append(("heartbeats.to", self.heartbeats.to))
            if any(self.heartbeats.to in job.hosts for job in (self.job, *self.other_jobs)):
                raise ExperimentError(
                    f"{where}: heartbeats.to: {self.heartbeats.to} has a part in the job; name a host that has none"
                )
            beating = [name for job in (self.job, *self.other_jobs) for name in job.workers]
            if shared := [name for name in beating if beating.count(name) > 1]:
                raise ExperimentError(
                    f"{where}: heartbeats: {shared[0]} is a worker of two jobs, and their bound counts one from a host"
                )
        if problems := strange_hosts(topology, named, written):
            raise ExperimentError(told(where, problems))
        if self.telemetry is not None:
            self.telemetry.watching(topology, f"{where}: telemetry")

    @property
    def watching(self) -> Watching | None:
        """What is watched in the run's fabric."""
        return None if self.telemetry is None else self.telemetry.watching(self.topology, f"run {self.name}: telemetry")

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """The JSON schema of a run's file, made of the models that read it: what it refuses, `load` refuses."""
        run, fabric = cls.model_json_schema(), file_keys.json_schema()
        spelled_out = {"anyOf": [{"type": "string"}, *fabric.pop("anyOf")]}
        run["properties"]["fabric"] |= spelled_out
        for key in ("type", "additionalProperties"):
            run["properties"]["fabric"].pop(key)
        return {**run, "$defs": {**fabric["$defs"], **run["$defs"]}}

    @classmethod
    def _validated(cls, where: str, data: dict[str, Any]) -> RunConfig:
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise ExperimentError(told(where, problems_of(error, cls, data))) from None


def refuse_chips(topology: Topology, where: str) -> None:
    """Raises `ExperimentError` where a switch is of a kind that the emulator and bmv2 cannot be."""
    if chips := [switch for switch in topology.switches if not switch.target.is_emulated]:
        raise ExperimentError(
            f"{where}: {', '.join(switch.name for switch in chips)}: {chips[0].target.name} is a chip, which no switch "
            f"made of software is; write target: {LIKE_TOFINO.name} for one within its limits"
        )


def _found_script(run_file: Path, workload: dict[str, Any], training: object) -> dict[str, Any]:
    """The section with the script's whole path and digest."""
    if strange := sorted(OF_THE_DIGITS & set(training if isinstance(training, dict) else ())):
        raise ExperimentError(
            f"{run_file}: training.{strange[0]}: is the digits' network's, and the run has a workload of its own; "
            "what that needs goes into workload.options"
        )
    path = (run_file.parent / workload["script"]).resolve()
    return {**workload, "script": str(path), "digest": script_digest(path)}


def found_strategy(file: Path, name: object) -> object:
    """A strategy of one's own by its whole path, as it stands beside the file that names it."""
    return str((file.parent / name).resolve()) if isinstance(name, str) and name.endswith(user_files.ENDING) else name


def _read_fabric(run_file: Path, name: str) -> dict[str, Any]:
    """The fabric file named by a run: beside the run's file, or one that ships with topologies/."""
    try:
        beside = run_file.parent / name
        path = beside if beside.exists() else Path(str(resources.files("weir.topologies") / name))
        if not path.is_file():
            raise ExperimentError(
                f"{run_file}: fabric: no file {shown(name)} beside it, nor one shipped in topologies/"
                f"{nearest(name, shipped())}"
            )
        written = YamlFile.read(path, "a fabric is a YAML mapping with name and links")
    except BadFile as error:
        raise ExperimentError(f"{run_file}: fabric: {error}") from None
    _check_fabric(written.data, f"{run_file}: fabric: {path}", written)
    return written.data


def _check_fabric(data: dict[str, Any], where: str, written: YamlFile, within: Sequence[str] = ()) -> None:
    try:
        parse_topology(data, where, written, within)
    except TopologyError as error:
        raise ExperimentError(str(error)) from None
