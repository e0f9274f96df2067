"""The values of `wire.control` as messages of the control service, and back; and the service's methods.

Values decoded from a message are unchecked: the receiver of a plan validates it before use.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from . import control
from . import control_pb2 as pb
from .frames import BULK_PRIORITY, DSCP_CONTROL

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["Control"].full_name
SERVICE: Final = str(_SERVICE)
REGISTER: Final = f"/{SERVICE}/Register"
LIST_JOBS: Final = f"/{SERVICE}/ListJobs"
END_JOB: Final = f"/{SERVICE}/EndJob"
LOAD_MODEL: Final = f"/{SERVICE}/LoadModel"
LIST_MODELS: Final = f"/{SERVICE}/ListModels"
BALANCE: Final = f"/{SERVICE}/Balance"
TAKE_TURNS: Final = f"/{SERVICE}/TakeTurns"
ATTEND: Final = f"/{SERVICE}/Attend"
QUEUED: Final = "weir-queued"
"""Key of a registration's initial metadata, which are sent when the job has entered the queue."""
CONTROL_CLASS: Final = ("grpc.dscp", DSCP_CONTROL)
"""gRPC's option by which both sides' packets are of the control class where they cross the fabric."""

ToHostMessage = (
    control.WorkerPlan | control.ServerPlan | control.TrafficClass | control.Pause | control.Resume | control.Abort
)
"""Messages from the controller to a host."""


def to_host(value: ToHostMessage) -> pb.ToHost:
    """Encode a message of the controller to a host."""
    match value:
        case control.WorkerPlan():
            return pb.ToHost(worker_plan=_worker_plan(value))
        case control.ServerPlan():
            return pb.ToHost(server_plan=_server_plan(value))
        case control.Pause(job, generation):
            return pb.ToHost(pause=pb.Pause(job=job, generation=generation))
        case control.Resume(plan, final, again):
            rounds = [pb.FinalRound(round=each.round, holder=each.holder) for each in final]
            if isinstance(plan, control.WorkerPlan):
                return pb.ToHost(resume=pb.Resume(worker_plan=_worker_plan(plan), final=rounds, again=again))
            return pb.ToHost(resume=pb.Resume(server_plan=_server_plan(plan), final=rounds, again=again))
        case control.TrafficClass(job, priority):
            return pb.ToHost(traffic_class=pb.TrafficClass(job=job, priority=priority))
        case control.Abort(job, reason):
            return pb.ToHost(abort=pb.Abort(job=job, reason=reason))


def read_to_host(message: pb.ToHost) -> ToHostMessage | None:
    """Decode a message into a value of `wire.control`; None for all others."""
    match message.WhichOneof("content"):
        case "worker_plan":
            return _read_worker_plan(message.worker_plan)
        case "server_plan":
            return _read_server_plan(message.server_plan)
        case "pause":
            return control.Pause(message.pause.job, message.pause.generation)
        case "resume":
            final = tuple(control.FinalRound(each.round, each.holder) for each in message.resume.final)
            again = tuple(message.resume.again)
            if message.resume.WhichOneof("plan") == "server_plan":
                return control.Resume(_read_server_plan(message.resume.server_plan), final, again)
            return control.Resume(_read_worker_plan(message.resume.worker_plan), final, again)
        case "traffic_class":
            return control.TrafficClass(message.traffic_class.job, message.traffic_class.priority)
        case "abort":
            return control.Abort(message.abort.job, message.abort.reason)
        case _:
            return None


def from_host(value: control.Held | control.Resumed) -> pb.FromHost:
    """Encode a message of a host to the controller."""
    match value:
        case control.Held():
            held = pb.Held(
                generation=value.generation,
                first_incomplete=value.first_incomplete,
                complete=sorted(value.complete),
                done=sorted(value.done),
            )
            return pb.FromHost(held=held)
        case control.Resumed():
            return pb.FromHost(resumed=pb.Resumed(generation=value.generation))


def departures_message(workers: Iterable[control.Departure], *, final: bool) -> pb.ToHost:
    """Tell a host which workers have left; `final`: the job's policy allows no sum without them."""
    departures = [
        pb.Departure(rank=each.rank, host=each.host, address=each.address, calls=each.calls) for each in workers
    ]
    return pb.ToHost(departures=pb.Departures(workers=departures, final=final))


def read_departures(message: pb.Departures) -> tuple[control.Departure, ...]:
    """Decode the workers that have left a job."""
    return tuple(control.Departure(each.rank, each.host, each.address, each.calls) for each in message.workers)


def calls_message(calls: control.Calls, *, asks: bool) -> pb.FromHost:
    """Tell the controller a worker's last calls; `asks`: compare them with those of all workers."""
    messages = [pb.Call(collective=each.collective, name=each.name, details=each.details) for each in calls.calls]
    return pb.FromHost(calls=pb.Calls(first=calls.first, calls=messages, awaited=calls.awaited, asks=asks))


def read_calls(message: pb.Calls) -> control.Calls:
    """Decode the calls that a worker reports."""
    return control.Calls(
        message.first,
        tuple(control.CallRecord(each.collective, each.name, tuple(each.details)) for each in message.calls),
        message.awaited if message.HasField("awaited") else None,
    )


def read_held(message: pb.Held) -> control.Held:
    """Decode a paused host's answer. Raises WireError for rounds out of range."""
    return control.Held(
        generation=message.generation,
        first_incomplete=message.first_incomplete,
        complete=frozenset(message.complete),
        done=frozenset(message.done),
    )


def report_message(report: control.JobReport) -> pb.Report:
    """Encode a report of progress."""
    return pb.Report(
        step=report.step,
        steps_left=report.steps_left,
        stage=report.stage,
        loss=report.loss,
        accuracy=report.accuracy,
        steps=report.steps,
        compute_ns=report.compute_ns,
        exposed_ns=report.exposed_ns,
        bytes=report.bytes,
        waiting_ns=report.waiting_ns,
    )


def read_report(message: pb.Report) -> control.JobReport:
    """Decode a report. Raises WireError for values out of range."""
    return control.JobReport(
        message.step,
        message.steps_left if message.HasField("steps_left") else None,
        message.stage,
        message.loss if message.HasField("loss") else None,
        message.accuracy if message.HasField("accuracy") else None,
        message.steps,
        message.compute_ns,
        message.exposed_ns,
        message.bytes,
        message.waiting_ns,
    )


def balance_request(
    job: int,
    samples: int,
    rule: str,
    reports: NDArray[np.float64],
    present: NDArray[np.bool_],
    *,
    token: str = "",
    size_step: int = 0,
) -> pb.BalanceRequest:
    """Build one worker's request for the number of samples of every worker in the next step.

    Args:
        job: Job number.
        samples: Samples of all workers together.
        rule: Name of the rule.
        reports: (workers, 3) float64 by rank: predicted samples per second, seconds of the last computation, maximum
            number of samples; 0 is unknown.
        present: (workers,) bool, True for ranks that reported.
        token: Token of the asking worker's seat.
        size_step: Samples that the numeric rule moves at once; 0: 5.
    """
    rows: list[Any] = reports.tolist()
    speeds = [
        pb.SpeedReport(rank=rank, speed=rows[rank][0], seconds=rows[rank][1], limit=int(rows[rank][2]))
        for rank in np.flatnonzero(present).tolist()
    ]
    return pb.BalanceRequest(job=job, token=token, samples=samples, rule=rule, size_step=size_step, reports=speeds)


def _worker_plan(plan: control.WorkerPlan) -> pb.WorkerPlan:
    return pb.WorkerPlan(
        job=plan.job,
        generation=plan.generation,
        rank=plan.rank,
        workers=plan.workers,
        aggregator=plan.aggregator,
        child_bit=plan.child_bit,
        slots=plan.slots,
        window=plan.window,
        lanes=plan.lanes,
        members=plan.members,
        key=plan.key,
        pacing=pb.Pacing(
            window=plan.pacing.window,
            hold_ns=plan.pacing.hold_ns,
            lease_ns=plan.pacing.lease_ns,
            gap_ns=plan.pacing.gap_ns,
            round_trip_ns=plan.pacing.round_trip_ns,
        ),
        presents=plan.presents,
        prunes=plan.prunes,
        traffic_class=plan.traffic_class,
    )


def _read_worker_plan(plan: pb.WorkerPlan) -> control.WorkerPlan:
    return control.WorkerPlan(
        job=plan.job,
        generation=plan.generation,
        rank=plan.rank,
        workers=plan.workers,
        aggregator=plan.aggregator,
        child_bit=plan.child_bit,
        slots=plan.slots,
        window=plan.window,
        lanes=plan.lanes,
        members=tuple(plan.members),
        key=plan.key,
        pacing=control.Pacing(
            window=plan.pacing.window,
            hold_ns=plan.pacing.hold_ns,
            lease_ns=plan.pacing.lease_ns,
            gap_ns=plan.pacing.gap_ns,
            round_trip_ns=plan.pacing.round_trip_ns,
        ),
        presents=plan.presents,
        prunes=plan.prunes,
        traffic_class=plan.traffic_class or BULK_PRIORITY,
    )


def _server_plan(plan: control.ServerPlan) -> pb.ServerPlan:
    return pb.ServerPlan(
        job=plan.job,
        generation=plan.generation,
        slots=plan.slots,
        children=[pb.Child(bit=child.bit, address=child.address, workers=child.workers) for child in plan.children],
        workers=plan.workers,
        first_round=plan.first_round,
        lanes=plan.lanes,
        members=plan.members,
        key=plan.key,
        traffic_class=plan.traffic_class,
    )


def _read_server_plan(plan: pb.ServerPlan) -> control.ServerPlan:
    return control.ServerPlan(
        job=plan.job,
        generation=plan.generation,
        slots=plan.slots,
        children=tuple(control.Child(child.bit, child.address, child.workers) for child in plan.children),
        workers=plan.workers,
        first_round=plan.first_round,
        lanes=plan.lanes,
        members=tuple(plan.members),
        key=plan.key,
        traffic_class=plan.traffic_class or BULK_PRIORITY,
    )
