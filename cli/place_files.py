"""Input files of `weir place` besides the fabric: traffic by link, and jobs that are placed together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError, model_validator

from ..controller.placement.model.loads import LinkLoad
from ..controller.planning.plan import HIGHEST
from ..experiments.config.sections import Duration, Rate, Section, Title, read_section
from ..experiments.errors import ExperimentError
from ..topologies import Endpoint, Topology, TopologyError
from ..topologies.key_errors import dotted, problems_of
from ..topologies.problems import BadFile, FileProblem, listed
from ..topologies.spelling import nearest
from ..topologies.units import parse_rate
from ..topologies.yaml_file import YamlFile


class LinkReading(Section):
    """Telemetry reading of one directed link."""

    rate: Rate = 0
    """Rate of others' traffic, such as 300Mbit, up to the link's."""
    queue: float = Field(0.0, ge=0)
    """Packets in the egress queue."""
    loss: float = Field(0.0, ge=0, le=1)
    """Share of packets that are lost."""
    latency: Duration | None = None
    """Time of a packet in the sending switch, such as 30us; by default derived from the queue's depth."""

    @property
    def load(self) -> LinkLoad:
        """The load in the placement model's units."""
        seconds = None if self.latency is None else self.latency * 1e-9
        return LinkLoad(float(self.rate), self.queue, self.loss, seconds)


class PlacedJob(Section):
    """One of several jobs."""

    name: Title
    workers: list[str] = Field(min_length=1)
    """Hosts, by rank."""
    server: str | None = None
    """The parameter server's host; without, a switch is the root."""
    bytes: Annotated[int, Field(ge=1)] | None = None
    """Bytes of one worker's stream in a step, headers included; --size by default."""
    weight: float = Field(1.0, gt=0)
    """Weight of its time relative to other jobs'."""
    priority: Annotated[int, Field(ge=0, le=HIGHEST)] = 0
    """Its time counts before that of all jobs with a lower one."""


class JobsFile(Section):
    """Jobs that are placed together, in the order in which they come."""

    jobs: list[PlacedJob] = Field(min_length=1)

    @model_validator(mode="after")
    def _distinct(self) -> JobsFile:
        names = [job.name for job in self.jobs]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f'two jobs are called "{twice[0]}"; give each its own name')
        return self


def read_loads(path: Path, topology: Topology) -> Mapping[Endpoint, LinkLoad]:
    """Return others' traffic by directed link. Raises ExperimentError, which names file and key."""
    written = _read(path, "loads are a YAML mapping, such as s1-p3: 300Mbit")
    loads: dict[Endpoint, LinkLoad] = {}
    problems = list(written.problems)
    for key, value in written.data.items():
        try:
            link = Endpoint.parse(str(key))
            rate_bps = topology.link_at(link).rate_bps
            if isinstance(value, dict):
                loads[link] = LinkReading.model_validate(value).load
            else:
                loads[link] = LinkLoad(float(parse_rate(value)))
            if loads[link].background_bps > rate_bps:
                raise TopologyError(
                    f"{loads[link].background_bps:,.0f} bit/s is more than the link's {rate_bps:,} bit/s", value=value
                )
        except TopologyError as error:
            problems.append(FileProblem(f"{key}: {error}", written.line([key])))
        except ValidationError as error:
            problems += _wrong_reading(written, key, value, error)
    if problems:
        raise ExperimentError(listed(str(path), problems))
    return loads


def _wrong_reading(written: YamlFile, key: str, value: object, error: ValidationError) -> list[FileProblem]:
    def place(location: Sequence[str | int]) -> str:
        return dotted([key, *location])

    def line(location: Sequence[str | int]) -> int | None:
        return written.line([key, *location])

    return problems_of(error, LinkReading, value, place=place, line=line)


def read_jobs(path: Path, topology: Topology) -> list[PlacedJob]:
    """Return jobs of this fabric. Raises ExperimentError, which names file, line and key of all that is wrong."""
    written = _read(path, "jobs are a YAML mapping with jobs, a list")
    jobs = read_section(JobsFile, written).jobs
    if problems := [host for index, job in enumerate(jobs) for host in _wrong_hosts(written, index, job, topology)]:
        raise ExperimentError(listed(str(path), problems))
    return jobs


def _read(path: Path, kind: str) -> YamlFile:
    try:
        return YamlFile.read(path, kind)
    except BadFile as error:
        raise ExperimentError(str(error)) from None


def _wrong_hosts(written: YamlFile, index: int, job: PlacedJob, topology: Topology) -> Iterator[FileProblem]:
    known = [host.name for host in topology.hosts]
    names, seen = {*known}, set[str]()
    hosts: list[tuple[list[str | int], str]] = [(["workers", rank], host) for rank, host in enumerate(job.workers)]
    if job.server is not None:
        hosts.append((["server"], job.server))
    for key, host in hosts:
        location = ["jobs", index, *key]
        if host not in names:
            text = f'{dotted(location)}: no host "{host}" in {topology.name}{nearest(host, known)}'
            yield FileProblem(text, written.line(location))
        elif host in seen:
            text = f"{dotted(location)}: {host} is named twice in one job; workers and server are different hosts"
            yield FileProblem(text, written.line(location))
        seen.add(host)
