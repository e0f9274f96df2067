"""Participants of a run's jobs: the trained one, and competing ones, which come and go."""

from __future__ import annotations

from typing import Final, Self

from pydantic import Field, model_validator

from ...controller.placement.multi_job.multi_tree import MAX_STRIPES
from ...wire.frames import BULK_PRIORITY, JOB_CLASSES
from .sections import Duration, Section

LARGEST_WINDOW: Final = 512


class Participants(Section):
    """The hosts of one job, and its window."""

    workers: list[str] = Field(min_length=1)
    server: str | None = None
    """The parameter server's host; without one the root is a switch."""
    window: int = Field(16, ge=1, le=LARGEST_WINDOW)
    """W: most rounds in flight."""
    slots: int = Field(32, ge=2, le=2 * LARGEST_WINDOW)
    """S: aggregation slots of the job in each of its switches, a power of two, at least 2 W."""
    traffic_class: int = Field(BULK_PRIORITY, ge=min(JOB_CLASSES), le=max(JOB_CLASSES))
    """Class of its messages: 1 is bulk traffic, 5 goes before all other jobs."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.slots & (self.slots - 1):
            raise ValueError(f"slots {self.slots} is not a power of two; use {1 << self.slots.bit_length()}")
        if self.slots < 2 * self.window:
            raise ValueError(f"window {self.window} needs at least {2 * self.window} slots, not {self.slots}")
        if len(set(self.workers)) < len(self.workers):
            raise ValueError("a host is named twice among the workers; each host runs one worker")
        hosts = [host for host in self.roots if host is not None]
        for host in hosts:
            if host in self.workers:
                raise ValueError(f"server {host} is a worker too; give the parameter server a host of its own")
            if hosts.count(host) > 1:
                raise ValueError(f"{host} is named twice among the servers; each host runs one")
        return self

    @property
    def roots(self) -> tuple[str | None, ...]:
        """The server of each shard; None: a switch is its root."""
        return (self.server,)

    @property
    def hosts(self) -> frozenset[str]:
        """All that have a part in the job."""
        return frozenset([*self.workers, *(host for host in self.roots if host is not None)])


class JobConfig(Participants):
    """Participants of the job."""

    servers: list[str] | None = Field(None, min_length=1)
    """Hosts of several parameter servers, which share every tensor's chunks."""
    stripes: int = Field(1, ge=1, le=MAX_STRIPES)
    """Maximum number of trees of a job without servers, each with a switch as root, that share every tensor's chunks;
    telemetry decides on the number and the proportions.
    """

    @model_validator(mode="after")
    def _one_kind_of_root(self) -> Self:
        if self.server is not None and self.servers is not None:
            raise ValueError(f"server {self.server} and servers {', '.join(self.servers)} are both given; keep one")
        if self.stripes > 1 and (self.server is not None or self.servers is not None):
            raise ValueError(f"stripes {self.stripes} have switches as roots; leave out server and servers")
        return self

    @property
    def roots(self) -> tuple[str | None, ...]:
        """The server of each shard; None: a switch is its root. Of stripes there may be fewer."""
        return (self.server,) * self.stripes if self.servers is None else tuple(self.servers)


class OtherJobConfig(Participants):
    """A competing job: it sums as often as it can, from its start to its stop."""

    values: int | None = Field(None, ge=1)
    """Numbers in each of its sums; as many as in a gradient of the trained job where nothing is said."""
    start: Duration = 0
    """When it asks the controller to be taken in; not before the trained job is."""
    stop: Duration | None = None
    """Time from which it begins no further sum, and leaves after the current one; with None it stays."""
    sums: int | None = Field(None, ge=1)
    """Sums after which it leaves; with None it stays until `stop`."""
    search: str = Field("", max_length=32, pattern=r"^[^/]*$")
    """Search that it is a part of. Jobs of one search are one cojob of the controller's order, and their sums are the
    steps of its stage.
    """
    obeys: bool = True
    """True if its workers keep to the windows that switches allow; false: they always send as much as `window` states,
    which is not part of any allowance, and are policed.
    """

    @model_validator(mode="after")
    def _comes_before_it_goes(self) -> Self:
        if self.stop is not None and self.stop <= self.start:
            raise ValueError(f"stop {self.stop} ns is not after start {self.start} ns; a job comes before it goes")
        return self
