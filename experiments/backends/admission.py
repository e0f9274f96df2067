"""Admission of a run's jobs by the controller, and the start of their hosts' cores.

::

    Participants ─▶ JobSpec ─▶ Controller.admit ─▶ plans ─▶ cores at the hosts, with the run's window law
"""

from __future__ import annotations

from collections.abc import Callable

from ...controller.congestion.bound_log import window_advice
from ...controller.controller import Controller, Message
from ...controller.planning.plan import FailurePolicy, JobPlan, JobSpec, lanes_of, round_bytes
from ...hosts.congestion import WindowLaw
from ...topologies import Routes
from ..config.jobs import Participants
from .agent_registry import AgentRegistry
from .agents import VirtualWorker
from .job_progress import JobTraces
from .round_count import Rounds
from .window_laws import WindowLaws


class Admission:
    """Entry of jobs: the trained job's shards, and competing jobs."""

    def __init__(
        self,
        controller: Controller,
        routes: Routes,
        agents: AgentRegistry,
        laws: WindowLaws,
        *,
        policy: FailurePolicy,
        note: Callable[[str], object],
    ) -> None:
        """Admit jobs to this controller.

        Args:
            controller: The fabric's controller.
            routes: Paths in the fabric.
            agents: The hosts' cores.
            laws: Window law of the workers.
            policy: Reaction of every job to a lost host.
            note: Receives advice on windows.
        """
        self.progress = JobTraces()
        """Progress of every admitted job."""
        self._controller = controller
        self._routes = routes
        self._agents = agents
        self._laws = laws
        self._policy = policy
        self._note = note

    async def admit(
        self, number: int, job: Participants, server: str | None, rounds: Rounds, now_ns: int, latency_ns: int
    ) -> list[Message]:
        """Have the controller admit a job.

        Args:
            number: The job's number on the wire.
            job: Hosts, window and slots.
            server: Host of the parameter server; None: a switch is the root.
            rounds: Rounds of each of its sums.
            now_ns: Virtual time, in ns.
            latency_ns: Time until its hosts receive their plans, in ns.

        Returns:
            The messages to its hosts.
        """
        controller = self._controller
        messages = await controller.admit(self.spec(number, job, server, rounds), now_ns)
        plan, probes = controller.jobs[number].plan, controller.prober.probes
        if advice := window_advice(controller.topology, self._routes, plan, probes, controller.windows.options):
            self._note(advice)
        self.progress.begin(plan, rounds.within(plan.spec.window), self._turn_ns(plan), now_ns, latency_ns)
        return messages

    def start(
        self, number: int, message: Message, window: int, law: Callable[[], WindowLaw] | None = None
    ) -> VirtualWorker | None:
        """Start a host's core with its plan.

        Args:
            number: The job's number.
            message: The plan, with the host.
            window: The job's window, in rounds.
            law: Window law; None: the run's.

        Returns:
            The worker; None for a server.
        """
        if law is None:
            streams = max((budget.streams for budget in self._controller.windows.budgets.values()), default=1)
            law = self._laws.factory(window, streams)
        return self._agents.start(number, message, law)

    def spec(self, number: int, job: Participants, server: str | None, rounds: Rounds) -> JobSpec:
        """Return the specification of a job.

        Args:
            number: Number of the job on the wire.
            job: Its participants, slots, window and traffic class.
            server: Host of the parameter server; None: the root is a switch.
            rounds: Rounds of one of its sums, which give the bytes of a gradient.
        """
        return JobSpec(
            number,
            tuple(job.workers),
            server,
            job.slots,
            job.window,
            policy=self._policy,
            gradient_bytes=rounds.bytes(lanes_of(self._controller.topology)),
            classes=(job.traffic_class,),
        )

    def _turn_ns(self, plan: JobPlan) -> int:
        """Return `JobTrace.turn_ns` with the present jobs."""
        topology, budgets = self._controller.topology, self._controller.windows.budgets
        frame_bits = 8e9 * round_bytes(topology)
        shared = (link for link in plan.max_streams if link in budgets)
        return round(max(budgets[link].streams * frame_bits / topology.link_at(link).rate_bps for link in shared))
