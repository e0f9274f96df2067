"""Run configuration: fabric, job, training, background traffic and strategies, from a YAML file.

Every error names the file, the key, the value and the allowed values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from ...controller.congestion import CongestionOptions
from ...controller.int_config.settings import IntConfig
from ...controller.placement.model.problem import PlacementError
from ...controller.placement.strategies import STRATEGIES, Need, description, strategy
from ...hosts.congestion import LAWS
from ...hosts.numerics.quantization import chunk_count
from ...imports import user_files
from ...topologies import Topology
from ...topologies.problems import FileProblem, listed
from ...topologies.schema import parse_topology
from ...topologies.units import format_rate
from ...topologies.yaml_file import YamlFile
from ...training.replicated import ReplicatedJob
from ...training.workloads.digits import TrainingJob
from ..errors import ExperimentError
from ..script import ScriptOptions, ScriptWorkload, gradient_values
from .background import (
    Background,
    SteadyFlow,
    TransferFlow,
    YieldingFlow,
    located_traces,
    uncontrolled,
    windowed,
)
from .congestion import CongestionConfig
from .control import ControlConfig
from .fabric import FabricFile, read_run_file, refuse_chips
from .heartbeats import HeartbeatConfig
from .jobs import JobConfig, OtherJobConfig
from .sections import Duration, FileName, found_user_file, is_left_alone, read_section, strange_hosts
from .strategies import NEED_SERVER, StrategyName
from .synchronisation import SynchronisationConfig
from .telemetry import TelemetryConfig
from .training import TrainingConfig, WorkloadConfig, found_script


class RunConfig(FabricFile):
    """One run."""

    name: FileName
    seed: int = Field(1, ge=0, lt=1 << 32)
    fabric: dict[str, Any]
    """The fabric, spelled out as in topologies/*.yaml (a file may name another one: `fabric: leaf_spine.yaml`)."""
    job: JobConfig
    training: TrainingConfig = TrainingConfig()
    other_jobs: list[OtherJobConfig] = Field([])
    """Competing jobs: the same kind of traffic; their sums are checked and then discarded."""
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
    """Reports that switches send unprompted, in addition to probes."""
    synchronisation: SynchronisationConfig | None = None
    """Modes in which is trained as well, under the last of the strategies; None: none."""
    strategies: list[StrategyName] = Field(["ps", "rack", "hierarchy", "blind", "widest"], min_length=1)
    strategy_options: dict[str, dict[str, Any]] = Field({})
    """Options of the strategies, by name, such as agg: {streams: {s1: 4}}."""

    @model_validator(mode="after")
    def _share_out(self, info: ValidationInfo) -> Self:
        if self.script is not None and is_left_alone(self.script.path, info):
            return self
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
        self.synchronisation.check(
            len(self.job.workers), self.training.options.batch, has_server=self.job.server is not None
        )
        return self

    @model_validator(mode="after")
    def _leave_int_to_hosts(self, info: ValidationInfo) -> Self:
        law = self.congestion.law
        if self.telemetry is None or is_left_alone(law, info) or not LAWS[law].reads_int:
            return self
        if self.telemetry.watch:
            raise ValueError(
                f"telemetry.watch: with congestion.law {law} messages carry INT from host to host: sinks would take "
                "it out, and watchlists pass over what has INT; watch queues and drops, or take another law"
            )
        if self.telemetry.mtu is not None:
            raise ValueError(
                f"telemetry.mtu: with congestion.law {law} messages carry as much INT as links have room for; leave it "
                "out, or take another law"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _those_that_go(cls, data: Any) -> Any:
        """Default strategies without a server: those that need none."""
        if not isinstance(data, dict) or "strategies" in data or not isinstance(job := data.get("job"), dict):
            return data
        if job.get("server") is not None or job.get("servers") is not None:
            return data
        usual: list[str] = cls.model_fields["strategies"].default
        return {**data, "strategies": [name for name in usual if name not in NEED_SERVER]}

    @field_validator("strategies")
    @classmethod
    def _known(cls, names: list[str], info: ValidationInfo) -> list[str]:
        known = [name for name in names if not is_left_alone(name, info)]
        for name in known:
            try:
                description(name)
            except PlacementError as error:
                raise ValueError(str(error)) from None
        if len(set(names)) < len(names):
            raise ValueError("a strategy is named twice; name each once")
        job: JobConfig | None = info.data.get("job")  # there is none where it is wrong itself
        if (
            job is not None
            and None in job.roots
            and (needing := [name for name in known if Need.SERVER in STRATEGIES[name].needs])
        ):
            raise ValueError(
                f"{', '.join(needing)} needs a parameter server and the job has none; "
                f"without one go {', '.join(sorted(STRATEGIES.keys() - NEED_SERVER))}"
            )
        return names

    @model_validator(mode="after")
    def _check_options(self, info: ValidationInfo) -> Self:
        for name, options in self.strategy_options.items():
            if name not in self.strategies:
                raise ValueError(
                    f"strategy_options.{name}: the run has no strategy of that name; name it in strategies"
                )
            if is_left_alone(name, info):
                continue
            try:
                strategy(name, options)
            except PlacementError as error:
                raise ValueError(f"strategy_options.{name}: {error}") from None
        return self

    @classmethod
    def load(cls, path: Path) -> RunConfig:
        """Read a run's YAML file, in order to run it.

        Its Python files are executed after everything else is known to be right.

        Raises: ExperimentError: it cannot be read, or says something that no run can be.
        """
        checked, written, data = cls._read(path)
        if not checked.python_files:
            return checked
        return read_section(cls, written, data)

    @classmethod
    def check(cls, path: Path) -> RunConfig:
        """Read a run's YAML file without execution of the Python files that it names, which are not checked.

        Raises: ExperimentError: as `load`.
        """
        return cls._read(path)[0]

    @classmethod
    def _read(cls, path: Path) -> tuple[RunConfig, YamlFile, dict[Any, Any]]:
        """Read a file and execute nothing; return the run, the file, and its data with full paths."""
        written, data = read_run_file(path, "a run is a YAML mapping with name, fabric and job")
        if isinstance(workload := data.get("workload"), dict) and isinstance(workload.get("script"), str):
            data["workload"] = found_script(path, workload, data.get("training"))
        if "background" in data:
            data["background"] = located_traces(path, data["background"])
        if isinstance(names := data.get("strategies"), list):
            data["strategies"] = [found_user_file(path, name) for name in names]
        if isinstance(options := data.get("strategy_options"), dict):
            data["strategy_options"] = {found_user_file(path, name): option for name, option in options.items()}
        if isinstance(congestion := data.get("congestion"), dict) and "law" in congestion:
            data["congestion"] = {**congestion, "law": found_user_file(path, congestion["law"])}
        if isinstance(training := data.get("training"), dict) and "optimiser" in training:
            data["training"] = {**training, "optimiser": found_user_file(path, training["optimiser"])}
        if isinstance(asked := data.get("synchronisation"), dict) and isinstance(asked.get("modes"), list):
            data["synchronisation"] = asked = {**asked, "modes": [_found_mode(path, mode) for mode in asked["modes"]]}
            if "workload" in asked:
                asked["workload"] = found_user_file(path, asked["workload"])
        config = read_section(cls, written, data, execute=False)
        config.check_names(str(path), written)
        return config, written, data

    @property
    def python_files(self) -> list[str]:
        """Paths of the user's Python files that the run executes."""
        script = [] if self.workload is None else [self.workload.script]
        return [*named_files(self.model_dump(mode="json")), *script]

    @property
    def congestion_options(self) -> CongestionOptions:
        """Options of the controller, including the traffic of background flows."""
        settings, workers = self.congestion, self.job.workers
        beating = dict.fromkeys([*workers, *(worker for other in self.other_jobs for worker in other.workers)])
        beats = self.heartbeats.declared(beating) if self.heartbeats is not None else ()
        return CongestionOptions(
            settings.bound,
            (*uncontrolled(self.steady), *beats),
            settings.lease,
            windows_obeyed=LAWS[settings.law].bounded,
            marks=settings.marks,
            virtual_share=settings.virtual_share,
            windowed=windowed([*self.yielding, *self.transfers]),
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
    def transfers(self) -> list[TransferFlow]:
        """Background flows of the point-to-point transport."""
        return [flow for flow in self.background if isinstance(flow, TransferFlow)]

    @property
    def gradient_values(self) -> int:
        """Number of values that a worker contributes in a step. Raises ExperimentError if a script cannot supply it."""
        script = self.script
        if script is None:
            return self.training.options.parameters
        return gradient_values(script, len(self.job.workers), self.seed)

    def new_job(self) -> ReplicatedJob:
        """Make the training at its start. Raises ExperimentError if a script cannot make it."""
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

    def _flows_beyond_their_links(self, topology: Topology, written: YamlFile | None) -> Iterator[FileProblem]:
        """Steady flows with a rate that their source's link does not have: the rest would wait without end."""
        rates = {end.node: link.rate_bps for link in topology.links for end in link.ends}
        for index, flow in enumerate(self.background):
            if isinstance(flow, SteadyFlow) and flow.rate > rates[flow.source]:
                yield FileProblem(
                    f"background.{index}.rate: {format_rate(flow.rate)} is above the {format_rate(rates[flow.source])} "
                    f"of {flow.source}'s link",
                    None if written is None else written.line(["background", index, "rate"]),
                )

    def check_names(self, where: str, written: YamlFile | None = None) -> None:
        """Check that the fabric has every host that the run names, and that its switches can be emulated. Raises
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
        if twice := [end for end, count in Counter(ends).items() if count > 1]:
            source, destination, port = twice[0]
            raise ExperimentError(
                f"two yielding flows go from port {port} of {source} to {destination}; give one of them another port",
                place=f"{where}: background",
                value=twice[0],
            )
        if self.heartbeats is not None:
            named.append(("heartbeats.to", self.heartbeats.to))
            if any(self.heartbeats.to in job.hosts for job in (self.job, *self.other_jobs)):
                raise ExperimentError(
                    f"{self.heartbeats.to} has a part in the job; name a host that has none",
                    place=f"{where}: heartbeats.to",
                    value=self.heartbeats.to,
                )
            beating = [name for job in (self.job, *self.other_jobs) for name in job.workers]
            if shared := [name for name, count in Counter(beating).items() if count > 1]:
                raise ExperimentError(
                    f"{shared[0]} is a worker of two jobs, and their bound counts one from a host",
                    place=f"{where}: heartbeats",
                    value=shared[0],
                )
        if problems := strange_hosts(topology, named, written):
            raise ExperimentError(listed(where, problems))
        if problems := list(self._flows_beyond_their_links(topology, written)):
            raise ExperimentError(listed(where, problems))
        if self.telemetry is not None:
            self.telemetry.watching(topology, f"{where}: telemetry")

    @property
    def watching(self) -> IntConfig | None:
        """Telemetry configuration in the run's fabric."""
        return None if self.telemetry is None else self.telemetry.watching(self.topology, f"run {self.name}: telemetry")


def named_files(config: Mapping[str, object]) -> list[str]:
    """Return the Python files of an unchecked configuration besides the workload's: strategies, law, optimiser, modes
    and their options.
    """
    strategies, training, asked = (config.get(key) for key in ("strategies", "training", "synchronisation"))
    names = list(strategies) if isinstance(strategies, list) else []
    if isinstance(congestion := config.get("congestion"), dict):
        names.append(congestion.get("law"))
    if isinstance(training, dict):
        names.append(training.get("optimiser"))
    if isinstance(asked, dict):
        names.append(asked.get("workload"))
        modes = asked.get("modes")
        if isinstance(modes, list):
            for mode in modes:
                names += mode.values() if isinstance(mode, dict) else [mode]  # options name files, too: a gossip policy
    files = [name for name in names if isinstance(name, str) and name.endswith(user_files.ENDING)]
    return list(dict.fromkeys(files))


def _found_mode(file: Path, entry: object) -> object:
    """A mode with the whole paths of the user's files that it and its options name."""
    if isinstance(entry, dict):
        return {key: found_user_file(file, value) for key, value in entry.items()}
    return found_user_file(file, entry)
