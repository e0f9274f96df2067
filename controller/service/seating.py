"""The seats of all jobs, in step with the controller: hosts that join, messages in both directions, and ends of jobs.

Requests to the controller wait for their turn in the runner. Messages to an empty seat are lost, except the reason of
the job's end. Until a job starts its hosts have no plan and no part in moves: this module answers for them.
"""

from __future__ import annotations

import inspect
import logging
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import grpc

from ...errors.texts import printable
from ...wire import control_pb2 as pb
from ...wire.aggregation import check_rounds
from ...wire.control import (
    Abort,
    Departure,
    Held,
    Pause,
    Resume,
    ServerPlan,
    TrafficClass,
    WorkerPlan,
)
from ...wire.control_messages import departures_message, read_calls, read_held, read_report, to_host
from ...wire.errors import WireError
from ...wire.heartbeat import Heartbeat
from ..controller import Controller, Message
from ..errors import ControllerError
from ..jobs.journal import NO_RECORD
from ..leases import HEARTBEATS_IN_A_LEASE
from ..planning.plan import FailurePolicy
from .heartbeats import HeartbeatReader, HeartbeatSource
from .limits import Limits
from .requests import first_messages, joined
from .runner import Runner
from .seats import JobSeats, Seat, list_seats
from .streams import HostStream

_log = logging.getLogger(__name__)

_DURATION: Final = re.compile(r"\d+(\.\d+)? s\b")
"""Pattern of the elapsed time in a message, whose change alone is no news."""
_HEARTBEAT_WITHOUT_LEASE_NS: Final = 1_000_000_000
_LAST_ENDED: Final = 1_000
"""Number of ended jobs kept for hosts that come back too late."""
_LAST_NUMBER: Final = (1 << 15) - 1
"""A job's number is its multicast group's, and bmv2 keeps the groups from 2^15 on for itself."""


class TooMany(ControllerError):
    """More than one may have of the service."""


class Seating:
    """Every job's seats.

    A job of the journal whose tokens were never delivered is ended. Raises JournalError for malformed seats.
    """

    def __init__(
        self,
        controller: Controller,
        runner: Runner,
        limits: Limits,
        heartbeats: HeartbeatSource | None = None,
        heard: Callable[[Heartbeat], object] = lambda _: None,
    ) -> None:
        """Create the seats of the journal's jobs.

        Args:
            controller: The controller.
            runner: Runs the controller's actions.
            limits: Limits of the service.
            heartbeats: Source of heartbeats through the fabric; None: hosts' streams carry them.
            heard: Called with each heartbeat from that source.

        Raises:
            JournalError: The seats of a job are malformed.
        """
        self._heard = heard
        self.jobs: dict[int, JobSeats] = {}
        """The seats of the jobs that run, by number."""
        self.ended: OrderedDict[int, JobSeats] = OrderedDict()
        """The seats of the last jobs that have ended, by number: each has its `last`."""
        self._broken: dict[int, str] = {}
        """Families that are to end, by their first jobs: the first of their groups that was aborted, and why."""
        lease_ns = controller.jobs.leases.lease_ns
        self._heartbeat_ns = lease_ns // HEARTBEATS_IN_A_LEASE if lease_ns else _HEARTBEAT_WITHOUT_LEASE_NS
        self.heartbeats = HeartbeatReader(controller.topology, self._token_of, late_ns=self._heartbeat_ns)
        """Heartbeats received through the fabric."""
        self._heartbeats_from = heartbeats
        self._controller = controller
        self._runner = runner
        self._limits = limits
        for job, running in controller.jobs.items():
            if running.kept:
                try:
                    serves = running.spec.server if running.newcomer is None else None
                    self.jobs[job] = JobSeats.from_json(job, running.kept, serves)
                except NO_RECORD as error:
                    raise controller.jobs.journal.misfit(job, error) from None
            else:  # the registering client never received its tokens
                runner.post(partial(controller.finish, job))

    def add(self, seats: JobSeats) -> None:
        """Add the seats of a job that was admitted."""
        self.jobs[seats.job] = seats
        self.ended.pop(seats.job, None)
        self._broken.pop(seats.job, None)

    def new_number(self) -> int:
        """Draw a random job number, but not that of a running or recent job, whose rounds slots may still hold."""
        while (number := 1 + secrets.randbelow(_LAST_NUMBER)) in self._controller.jobs or number in self.ended:
            pass
        return number

    def waits_for(self, number: int, now_ns: int) -> str:
        """Return the reason as text why a job does not start yet; "" if it does not wait."""
        if awaited := self._awaited(self.jobs[number]):
            return f"waits for {list_seats(awaited)} to join"
        return self._controller.jobs.waiting_for(number, now_ns)

    def _awaited(self, seats: JobSeats) -> list[Seat]:
        return seats.awaited(self._controller.jobs[seats.job].gone)

    async def end(self, job: int, reason: str, now_ns: int) -> None:
        """Remove a job, those that share its chunks, and its groups from the switches; notify the hosts."""
        reasons = dict.fromkeys((self.jobs[job].stripes if job in self.jobs else ()) or (job,), reason)
        reasons |= {
            number: f"job {seats.parent}, its parent, is over: {reason}"
            for number, seats in self.jobs.items()
            if seats.parent in reasons
        }
        for number, why in reasons.items():
            if number in self.jobs:
                self._over(number, pb.ToHost(ended=pb.Ended(job=number, reason=why)))
        failure: ControllerError | None = None
        for number in reasons:
            if number in self._controller.jobs:
                try:
                    await self._controller.finish(number, now_ns)
                except ControllerError as error:  # the others are to end all the same
                    failure = error
        if failure is not None:
            raise failure

    def _over(self, job: int, last: pb.ToHost) -> None:
        """Send the last message of an ended job to its hosts, except those that it had lost."""
        self.ended[job] = seats = self.jobs.pop(job)
        if seats.started and seats.parent in self.jobs:
            self.jobs[seats.parent].had_groups = True
        for seat in seats.seats.values():
            self.heartbeats.reset(job, seat.host)
            seat.finish(last)
        while len(self.ended) > _LAST_ENDED:
            self.ended.popitem(last=False)

    def first_failure(self, job: int) -> str:
        """Return who was the first to fail in a job and why, or why it was aborted; empty if neither is known."""
        seats = self.jobs.get(job) or self.ended.get(job)
        return (seats.first_failure if seats is not None else "") or self._controller.jobs.aborted.get(job, "")

    def finished_calls(self) -> Sequence[tuple[int, int]]:
        """Return the sums that each job's workers had requested when they left, and its round-trip time in ns.

        Jobs that share one's chunks count once. Only the last ended jobs are known.
        """
        known = {**self.ended, **self.jobs}.values()
        first = (seats for seats in known if seats.job == next(iter(seats.stripes), seats.job))
        return [(seats.calls, seats.round_trip_ns) for seats in first if seats.calls]

    def no_job(self, job: int) -> str:
        """Return the text of a refusal for a number that no job has."""
        return f"no job {job}; there are {', '.join(map(str, self.jobs)) or 'none'}"

    def attend(self, seats: JobSeats, seat: Seat, generation: int) -> HostStream:
        """Open a host's stream; with the last host of a job, the job starts."""
        if seat.stream is not None:
            seat.stream.end((grpc.StatusCode.ABORTED, f"job {seats.job}: {seat} attends by another stream now"))
        if not generation:  # perhaps another process than before, whose heartbeats are numbered from 0 again
            self.heartbeats.reset(seats.job, seat.host)
        seat.stream = stream = HostStream()
        beats_to = 0 if self._heartbeats_from is None else self._heartbeats_from.address
        host = self._controller.topology.host(seat.host)
        stream.send(pb.ToHost(joined=joined(host, seats, self._heartbeat_ns, beats_to)))
        if seats.told:  # before it came
            now = self.waits_for(seats.job, self._runner.now_ns())
            stream.send(pb.ToHost(waiting=pb.Waiting(reason=now)))
        if not seats.started:
            self._post(seats.job, partial(self._start, seats))
        elif not generation:
            self._seat_anew(seats, seat)
        elif (running := self._controller.jobs.get(seats.job)) is not None:  # it may have missed a change
            stream.send(to_host(TrafficClass(seats.job, running.spec.traffic_class)))
        if seats.started and (departed := seats.departed()) and seat.rank is not None and seat not in departed:
            stream.send(self._departures(seats, departed))  # its last stream may have broken before it was told
        return stream

    def _start(self, seats: JobSeats, now_ns: int) -> None:
        """Send all hosts their plans, once all are there and their job is not moving.

        Their leases begin, since some may die before their first message. Raises JournalError if the start cannot be
        written: then no host starts.
        """
        job = seats.job
        if seats.started or self.jobs.get(job) is not seats:
            return
        running = self._controller.jobs[job]
        if running.move is not None or running.renew or self._awaited(seats):
            return
        for seat in seats.seats.values():
            if not seat.spare:
                self._controller.members.heartbeat(job, seat.host, 0, now_ns, waiting=False)
        self._controller.jobs.keep(job, replace(seats, started=True).as_json())
        seats.started = True
        for host, plan in first_messages(running).items():
            seats.seats[host].send(plan)

    def _seat_anew(self, seats: JobSeats, seat: Seat) -> None:
        """A host without a plan joins a job that runs: it has missed the plan of the start, or lost what it knew."""
        assert seat.stream is not None
        running = self._controller.jobs[seats.job]
        # a host that takes over gets its plan from the move, for the generation that begins then
        own = None if seat.host == running.newcomer else first_messages(running).get(seat.host)
        if own is not None and not seat.ran:
            seat.stream.send(own)
        elif seat.ran:
            lost = "was started anew, and has lost the sums that it had"
            self._fail(seats, seat, lost)
            seat.stream.end((grpc.StatusCode.FAILED_PRECONDITION, f"job {seats.job}: {seat} ran already: it {lost}"))

    def on_message(self, seats: JobSeats, seat: Seat, message: pb.FromHost) -> None:
        """Handle a host's message. Raises ValueError for an invalid one."""
        job, host, controller = seats.job, seat.host, self._controller
        match message.WhichOneof("content"):
            case "heartbeat":
                check_rounds("heartbeat", message.heartbeat.rounds)
                self._lives(seats, seat, message.heartbeat.rounds, waiting=message.heartbeat.waiting)
            case "held":
                held = read_held(message.held)
                self._post(job, lambda _: controller.moves.held(job, host, held))
            case "resumed":
                generation, seat.ran = message.resumed.generation, True
                self._post(job, lambda now_ns: controller.moves.resumed(job, host, generation, now_ns))
            case "leave":
                if message.leave.HasField("calls"):
                    seat.calls = message.leave.calls
                    seats.round_trip_ns = seats.round_trip_ns or controller.jobs[job].plan.round_trip_ns
                if message.leave.HasField("rounds"):
                    check_rounds("leave", message.leave.rounds)
                    seat.rounds_held = message.leave.rounds
                self._leave(seats, seat, printable(message.leave.reason))
            case "calls" if seat.rank is not None:
                self._compare(seats, seat, seat.rank, message.calls)
            case "report":
                self._receive_report(seats, seat, message.report)
            case other:
                raise ValueError(f"{other or 'an empty message'} has no place in a stream that has begun")

    def _compare(self, seats: JobSeats, seat: Seat, rank: int, calls: pb.Calls) -> None:
        """Handle a worker's calls: if it waits for long, all others are asked for theirs."""
        if seats.comparison.receive(rank, read_calls(calls), self._runner.now_ns(), asks=calls.asks):
            for other in seats.seats.values():
                if other.rank is not None and other is not seat:
                    other.send(pb.ToHost(ask_calls=pb.AskCalls()))
        self._report_calls(seats)

    def _report_calls(self, seats: JobSeats) -> None:
        """Tell workers the result of a comparison that has ended."""
        if not seats.comparison.under_way:
            return
        running = self._controller.jobs.get(seats.job)
        gone = {} if running is None else running.gone
        workers = {
            seat.rank: seat.host
            for seat in seats.seats.values()
            if seat.rank is not None and not seat.left and seat.host not in gone
        }
        if (comparison := seats.comparison.result(workers, self._runner.now_ns())) is not None:
            text, speaker = printable(comparison[0]), comparison[1]
            _log.info("job %d: %s", seats.job, text)
            seats.broadcast(pb.ToHost(call_report=pb.CallReport(text=text, speaker=speaker)))

    def _receive_report(self, seats: JobSeats, seat: Seat, message: pb.Report) -> None:
        """Keep a worker's report of progress. Raises ValueError for an invalid one."""
        if seat.rank is None:
            raise ValueError("a parameter server reports no progress; workers do")
        try:
            report = read_report(message)
        except WireError as error:
            raise ValueError(str(error)) from None
        job, jobs = seats.job, self._controller.jobs
        self._post(job, lambda now_ns: jobs[job].reports.add(report, now_ns))

    def _lives(self, seats: JobSeats, seat: Seat, rounds: int, *, waiting: bool) -> None:
        """A heartbeat of a host, by whichever way."""
        job, host, members = seats.job, seat.host, self._controller.members
        seat.rounds, seat.waiting, seat.heard_ns = rounds, waiting, self._runner.now_ns()
        seat.ran |= seats.started and not seat.spare
        self._post(job, lambda now_ns: members.heartbeat(job, host, rounds, now_ns, waiting=waiting))

    def poll_heartbeats(self) -> None:
        """Process heartbeats that have arrived through the fabric."""
        if self._heartbeats_from is None:
            return
        for address, payload in self._heartbeats_from.receive():
            if (heard := self.heartbeats.read(address, payload, self._runner.now_ns())) is not None:
                host, beat = heard
                self._heard(beat)
                seats = self.jobs[beat.job]
                self._lives(seats, seats.seats[host], beat.rounds, waiting=beat.waiting)

    def _token_of(self, job: int, host: str) -> str | None:
        seats = self.jobs.get(job)
        seat = None if seats is None else seats.seats.get(host)
        return None if seat is None else seat.token

    def _leave(self, seats: JobSeats, seat: Seat, reason: str) -> None:
        """Handle a departure. A finished host stays while it may hold rounds that others lack. A failed one is lost."""
        if reason:
            self._fail(seats, seat, reason)
            if seat.stream is not None:
                seat.stream.end()
            return
        seat.left = True
        self._post(seats.job, partial(self._end_left, seats))

    async def _end_left(self, seats: JobSeats, now_ns: int) -> None:
        """End a job whose remaining workers are all done with it."""
        running = self._controller.jobs.get(seats.job)
        if running is not None and all(seats.seats[host].left or host in running.left for host in running.active):
            await self.end(seats.job, "all workers have left", now_ns)

    def hang_up(self, seats: JobSeats, seat: Seat) -> None:
        """Handle the end of a host's stream: one that is done leaves the job."""
        if seat.left:
            self._post(seats.job, lambda _: self._controller.members.leave(seats.job, seat.host))

    def _fail(self, seats: JobSeats, seat: Seat, why: str) -> None:
        """Handle a failure: a host with a plan is lost to the job at once, a spare once it has confirmed one.

        Before the job starts another process may take the seat.
        """
        if seat.ran or (seats.started and not seat.spare):
            seats.first_failure = seats.first_failure or f"{seat} failed first: {why}"
            self._post(seats.job, lambda now_ns: self._controller.members.fail(seats.job, seat.host, why, now_ns))

    def _post(self, job: int, action: Callable[[int], object]) -> None:
        """Schedule an action for a job that may have ended before its turn comes."""

        async def act(now_ns: int) -> None:
            if job in self._controller.jobs:
                with self._controller.jobs.failing_alone(job):
                    result = action(now_ns)
                    if inspect.isawaitable(result):
                        await result

        self._runner.post(act)

    def deliver(self, message: Message) -> None:
        """Deliver the controller's message to a host."""
        content, job = message.content, message.job
        if (seats := self.jobs.get(job)) is None:
            return
        if isinstance(content, Abort):
            seats.seats[message.host].finish(to_host(content))
        elif seats.started:
            seats.seats[message.host].send(to_host(content))
        else:
            self._answer(job, message)

    def _answer(self, job: int, message: Message) -> None:
        """Answer for a host that has no plan yet: it holds nothing, and accepts any move."""
        moves, host, content = self._controller.moves, message.host, message.content
        if isinstance(content, Pause):
            held = Held(content.generation, 0)
            self._post(job, lambda _: moves.held(job, host, held))
        elif isinstance(content, Resume | WorkerPlan | ServerPlan):
            generation = (content.plan if isinstance(content, Resume) else content).generation
            self._post(job, lambda now_ns: moves.resumed(job, host, generation, now_ns))

    async def announce(self, now_ns: int) -> None:
        """Notify hosts of their job's pending condition; end abandoned jobs.

        These are jobs without any host for long, and jobs whose last unfinished worker is lost.
        """
        self.sweep()
        await self._end_incomplete(now_ns)
        await self._end_unattended(now_ns)
        for seats in list(self.jobs.values()):
            await self._end_left(seats, now_ns)
        for job, seats in self.jobs.items():
            self._start(seats, now_ns)
            reason = self.waits_for(job, now_ns)
            self._send_departures(seats)
            self._release(seats)
            self._report_calls(seats)
            if _DURATION.sub("", reason) != _DURATION.sub("", seats.told):
                seats.told = reason
                seats.broadcast(pb.ToHost(waiting=pb.Waiting(reason=reason)))

    def _send_departures(self, seats: JobSeats) -> None:
        """Tell workers that have not left which others have since the last time."""
        new = [seat for seat in seats.departed() if not seat.departure_told]
        if new and seats.started:
            message = self._departures(seats, new)
            for seat in seats.seats.values():
                if seat.rank is not None and not seat.left:
                    seat.send(message)
            for seat in new:
                seat.departure_told = True

    def _release(self, seats: JobSeats) -> None:
        """End the job for workers that have left, once the others have all rounds that these may hold.

        Those of all stripes: one that went on without a worker sooner might be aborted, and sums of the others with it.
        """
        stripes = seats.stripes or (seats.job,)
        for seat in seats.departed():
            if seat.last is None and all(self._may_go(stripe, seat.host) for stripe in stripes):
                reason = f"{seat} has left, and the others have its sums"
                seat.finish(pb.ToHost(ended=pb.Ended(job=seats.job, reason=reason)))
                self.hang_up(seats, seat)

    def _may_go(self, job: int, host: str) -> bool:
        seats, running = self.jobs.get(job), self._controller.jobs.get(job)
        if seats is None or running is None:  # it is over, and all its stripes end by that
            return False
        return seats.may_go(host, [other for other in running.active if other not in running.left])

    def _departures(self, seats: JobSeats, departed: Iterable[Seat]) -> pb.ToHost:
        topology = self._controller.topology
        workers = [
            Departure(seat.rank, seat.host, int(topology.host(seat.host).address), seat.calls)
            for seat in departed
            if seat.rank is not None and seat.calls is not None
        ]
        policy = self._controller.jobs[seats.job].spec.policy
        return departures_message(workers, final=policy is not FailurePolicy.CONTINUE)

    async def _end_incomplete(self, now_ns: int) -> None:
        """End jobs with those whose fate they share: a group with its parent, and any stripe with the others.

        An aborted group ends its family, too.
        """
        for parent, why in list(self._broken.items()):
            if parent in self.jobs:
                await self.end(parent, why, now_ns)
        self._broken.clear()
        aborted = self._controller.jobs.aborted
        for job, seats in list(self.jobs.items()):
            if job in self.jobs and seats.parent and seats.parent not in self.jobs:
                why = aborted.get(seats.parent, "")
                await self.end(job, f"job {seats.parent}, its parent, is over{why and f': {why}'}", now_ns)
            gone = next((stripe for stripe in seats.stripes if stripe not in self.jobs), None)
            if job in self.jobs and gone is not None:
                why = aborted.get(gone, "")
                await self.end(job, f"job {gone}, which had a share of its chunks, is over{why and f': {why}'}", now_ns)

    async def _end_unattended(self, now_ns: int) -> None:
        """End families that no host attends and of which no job runs.

        A family that had groups is over soon after its last host has left, whether or not all its jobs have begun.
        """
        attended = {seats.family for seats in self.jobs.values() if seats.attended or seats.started}
        for job, seats in list(self.jobs.items()):
            if seats.family in attended or seats.attended_ns is None:
                seats.attended_ns = now_ns
                continue
            limit_ns = self._limits.left_ns if seats.had_groups else self._limits.unattended_ns
            if job in self.jobs and now_ns - seats.attended_ns >= limit_ns:
                why = f"no host has attended it for {limit_ns / 1e9:g} s, and it has not begun"
                _log.warning("job %d is ended: %s", job, why)
                await self.end(job, why, now_ns)

    def check_room(self, client: str, more: int, each: str) -> None:
        """Check that a client may register `more` further jobs. Raises TooMany; it says what `each` of them is for."""
        limits, its = self._limits, sum(seats.client == client for seats in self.jobs.values())
        asked = f"; {more} more are asked for, {each}" if more > 1 else ""
        if len(self.jobs) + more > limits.jobs:
            raise TooMany(
                f"{len(self.jobs)} jobs run, and no more than {limits.jobs} may{asked}; end one (weir jobs end)"
            )
        if its + more > limits.jobs_of_client:
            raise TooMany(
                f"{its} jobs of {client} run, and one client may have {limits.jobs_of_client}{asked}; end one (weir "
                "jobs end)"
            )

    def sweep(self) -> None:
        """Remove the seats of jobs that the controller has ended by itself."""
        for job in [job for job in self.jobs if job not in self._controller.jobs]:
            if (reason := self._controller.jobs.aborted.get(job)) is not None:
                if parent := self.jobs[job].parent:
                    self._broken.setdefault(parent, f"job {job}, a group of it, is over: {reason}")
                self._over(job, to_host(Abort(job, reason)))
            else:
                self._over(job, pb.ToHost(ended=pb.Ended(job=job, reason="no worker is left")))
