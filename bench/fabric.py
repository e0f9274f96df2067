"""One job written into a fabric's switches by P4Runtime, as a controller does, for benchmarks that measure the rest."""

from __future__ import annotations

from collections.abc import Mapping

from weir.controller.p4runtime.reconcile import reconcile_all
from weir.controller.placement import Placement
from weir.controller.planning.memory import FabricMemory
from weir.controller.planning.plan import JobPlan, JobSpec, Marking, base_state, fabric_state, job_plan
from weir.experiments.backends.sessions import open_sessions
from weir.topologies import Routes, Topology


async def write_job(
    topology: Topology, addresses: Mapping[str, str], spec: JobSpec, placement: Placement, marking: Marking
) -> JobPlan:
    """Load the program into every switch, write routes, marking and the job; the plan for the job's hosts.

    `addresses`: where each switch serves P4Runtime. Raises ControllerError.
    """
    routes = Routes(topology)
    nodes = {*placement.aggregators.values(), *placement.parents, placement.root} - {spec.server}
    allotments = FabricMemory(topology).allot(spec.job, sorted(nodes), spec.slots)
    plan = job_plan(topology, routes, spec, placement, 1, allotments)
    bases = {switch.name: base_state(topology, routes, switch.name) for switch in topology.switches}
    async with open_sessions(topology, addresses) as sessions:
        await reconcile_all(sessions, fabric_state(topology, bases, [plan], marking))
    return plan
