"""Registry of the cores of each job by host, in virtual time; it delivers the controller's messages to them."""

from __future__ import annotations

from collections.abc import Callable

from ...controller.controller import Message
from ...emulator.fabric import Wake
from ...hosts.congestion import WindowLaw
from ...hosts.protocol.server import ParameterServerCore
from ...hosts.protocol.worker import WorkerCore, WorkerOptions
from ...wire.control import Held, Pause, Resume, ServerPlan, TrafficClass, WorkerPlan
from ..errors import ExperimentError
from .agents import HostAgent, VirtualHost, VirtualWorker
from .emulated import EmulatedFabric


class AgentRegistry:
    """Hosts that take part in jobs, and the agents that run their cores."""

    def __init__(self, emulated: EmulatedFabric) -> None:
        self.hosts: dict[str, VirtualHost] = {}
        """Those that have had a part in any job, by name."""
        self._emulated = emulated
        self._agents: dict[tuple[int, str], VirtualWorker | HostAgent[ParameterServerCore]] = {}
        """Agents by job number and host name; those of jobs that have left as well."""

    def start(self, job: int, message: Message, law: Callable[[], WindowLaw]) -> VirtualWorker | None:
        """Begin a host's part in a job; return the worker, which goes by this law, if that is its part."""
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
        """Stop the cores of a job that has left; their counters stay."""
        for (number, _), agent in self._agents.items():
            if number == job:
                agent.host.detach(job)

    def classify(self, host: str, change: TrafficClass) -> None:
        """Change the traffic class of a core's messages; see `HostAgent.classify`."""
        self._agents[change.job, host].classify(change)

    def pause(self, host: str, pause: Pause) -> Held | None:
        """Pause a core; see `HostAgent.pause`."""
        return self._agents[pause.job, host].pause(pause)

    def resume(self, host: str, resume: Resume) -> None:
        """Resume a core; see `HostAgent.resume`."""
        self._agents[resume.plan.job, host].resume(resume)

    def handle(self, wake: Wake) -> None:
        """Handle frames or a timer at a host; frames at hosts without a job are dropped."""
        if wake.host in self.hosts:
            self.hosts[wake.host].handle(wake)

    def drops(self) -> dict[str, int]:
        """Return drops of all hosts, by reason."""
        drops = {"host: not a datagram": sum(host.rejects.total for host in self.hosts.values())}
        for agent in self._agents.values():
            for reason, count in agent.core.counters.drops.items():
                drops[f"host: {reason}"] = drops.get(f"host: {reason}", 0) + count
        return drops
