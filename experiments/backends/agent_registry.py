"""Which host runs which core of which job, in virtual time; what the controller tells a host reaches its core here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...controller.controller import Message
from ...emulator.fabric import Wake
from ...hosts.congestion import Dctcp, DelayTarget, ExplicitWindow, FixedWindow, Hpcc, LossDriven, WindowLaw
from ...hosts.protocol.server import ParameterServerCore
from ...hosts.protocol.worker import WorkerCore, WorkerOptions
from ...wire.control import Held, Pause, Resume, ServerPlan, WorkerPlan
from ..config.congestion import Law
from ..errors import ExperimentError
from .agents import HostAgent, VirtualHost, VirtualWorker
from .emulated import EmulatedFabric


def window_law(name: Law, window: int, hpcc: Callable[[], Hpcc]) -> Callable[[], WindowLaw]:
    """How every worker of a job of this window finds its own, by the law's name in a run's file; `hpcc` makes the one
    that must know the fabric's links.
    """
    match name:
        case "dctcp":
            return Dctcp
        case "hpcc":
            return hpcc
        case "delay":
            return DelayTarget
        case "loss":
            return LossDriven
        case "fixed":
            return partial(FixedWindow, window)
    return ExplicitWindow


class AgentRegistry:
    """The hosts that take part in jobs, and what runs their cores."""

    def __init__(self, emulated: EmulatedFabric) -> None:
        self.hosts: dict[str, VirtualHost] = {}
        """Those that have had a part in any job, by name."""
        self._emulated = emulated
        self._agents: dict[tuple[int, str], VirtualWorker | HostAgent[ParameterServerCore]] = {}
        """By the job's number and the host's name; those of jobs that have left as well."""

    def start(self, job: int, message: Message, law: Callable[[], WindowLaw]) -> VirtualWorker | None:
        """A host begins with its part in a job; the worker, which goes by this law, if that is its part."""
        name = message.host
        if name not in self.hosts:
            self.hosts[name] = VirtualHost(self._emulated, name)
        where = self.hosts[name]
        match message.content:
            case WorkerPlan() as plan:
                worker = VirtualWorker(where, WorkerCore(plan, WorkerOptions(law=law)))
                self._agents[job, name] = worker
                worker.flush()
                return worker
            case ServerPlan() as plan:
                self._agents[job, name] = HostAgent(where, ParameterServerCore(plan))
            case other:
                raise ExperimentError(f"{message.host}: a job starts with plans, not with {type(other).__name__}")
        return None

    def stop(self, job: int) -> None:
        """The job has left: its cores run no more, and what they counted stays."""
        for (number, _), agent in self._agents.items():
            if number == job:
                agent.host.detach(job)

    def pause(self, host: str, pause: Pause) -> Held | None:
        """As `HostAgent.pause`."""
        return self._agents[pause.job, host].pause(pause)

    def resume(self, host: str, resume: Resume) -> None:
        """As `HostAgent.resume`."""
        self._agents[resume.plan.job, host].resume(resume)

    def handle(self, wake: Wake) -> None:
        """Frames or a timer at a host; of no job's host, they are nobody's."""
        if wake.host in self.hosts:
            self.hosts[wake.host].handle(wake)

    def drops(self) -> dict[str, int]:
        """What hosts dropped, by reason."""
        drops = {"host: not a datagram": sum(host.rejects.total for host in self.hosts.values())}
        for agent in self._agents.values():
            for reason, count in agent.core.counters.drops.items():
                drops[f"host: {reason}"] = drops.get(f"host: {reason}", 0) + count
        return drops
