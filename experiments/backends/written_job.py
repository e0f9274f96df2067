"""One job written into a fabric's switches by P4Runtime, as a controller does, for whoever measures the rest."""

from __future__ import annotations

from collections.abc import Mapping

from ...controller.congestion import CongestionOptions, WindowController
from ...controller.congestion.marking import marked_states
from ...controller.p4runtime.reconcile import reconcile_all
from ...controller.p4runtime.session import SwitchSession
from ...controller.placement import Placement
from ...controller.planning.admission import admitting_states
from ...controller.planning.memory import FabricMemory
from ...controller.planning.plan import JobPlan, JobSpec, base_state, fabric_state, job_plan
from ...topologies import Routes, Topology


async def write_job(
    topology: Topology,
    sessions: Mapping[str, SwitchSession],
    spec: JobSpec,
    placement: Placement,
    bounded: CongestionOptions,
) -> JobPlan:
    """Write routes, marking and a job into every switch.

    Args:
        topology: The fabric.
        sessions: Open session of each switch, by name.
        spec: Specification of the job.
        placement: Its placement.
        bounded: Options of congestion control.

    Returns:
        Plan for the job's hosts.

    Raises:
        ControllerError: A switch refuses, or the job does not fit.
    """
    routes = Routes(topology)
    nodes = {*placement.aggregators.values(), *placement.parents, placement.root} - {spec.server}
    allotments = FabricMemory(topology).allot(spec.job, sorted(nodes), spec.slots)
    plan = job_plan(topology, routes, spec, placement, 1, allotments)
    bases = {switch.name: base_state(topology, routes, switch.name) for switch in topology.switches}
    windows = WindowController(topology, bounded)
    (plan,) = windows.update(routes, [plan], (), 0)
    states = admitting_states(topology, fabric_state(bases, [plan]), [plan])
    states = marked_states(topology, states, windows.budgets, [plan], bounded)
    await reconcile_all(sessions, states)
    return plan
