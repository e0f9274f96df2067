"""One worker or one server alone: its counters, messages, deadlines and refusals."""

from __future__ import annotations

from dataclasses import asdict, replace
from ipaddress import IPv4Address
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from weir.hosts import InvalidPlan, InvalidTensor, ParameterServerCore, WorkerCore, WorkerOptions, reference_sum
from weir.hosts.congestion import ExplicitWindow, Feedback
from weir.hosts.numerics.tensors import Tensor
from weir.hosts.protocol.counters import Counters
from weir.hosts.protocol.messages import MessageWriter, by_job, job_numbers, open_messages, reduced_columns
from weir.hosts.protocol.rounds import RoundStore
from weir.hosts.protocol.timers import MULTIPLE
from weir.tests.support.errors import raises
from weir.wire.aggregation import (
    HEADER,
    HEADER_BYTES,
    LANES,
    MESSAGE,
    MESSAGE_BYTES,
    MessageFlag,
    MessageType,
    make_tag,
    set_checksum,
    version_type,
)
from weir.wire.control import Child, FinalRound, Held, Pacing, Resume, ServerPlan, WorkerPlan
from weir.wire.fields import BY_NAME
from weir.wire.frames import Datagrams

MS = 1_000_000
SERVER, WORKER, OTHER = 99, 10, 11
PLAN = WorkerPlan(
    job=5,
    generation=1,
    rank=0,
    workers=2,
    aggregator=SERVER,
    child_bit=1,
    slots=16,
    window=8,
    members=(WORKER, OTHER),
    pacing=Pacing(window=1000),
)
SERVER_PLAN = ServerPlan(
    job=5, generation=1, slots=16, children=(Child(1, WORKER), Child(2, OTHER)), workers=2, members=(WORKER, OTHER)
)
OPTIONS = WorkerOptions(initial_timeout_ns=10 * MS, min_timeout_ns=1 * MS, max_timeout_ns=100 * MS)


def headers(datagrams: Datagrams) -> NDArray[np.void]:
    return datagrams.payload[:, :HEADER_BYTES].copy().view(HEADER)[:, 0]


def tags(datagrams: list[Datagrams]) -> list[int]:
    return [int(tag) & 0xFFFFFF for d in datagrams for tag in headers(d)["tag"]]


def test_datagrams_are_for_the_job_that_they_name() -> None:
    """Datagrams of another job, or too short to name one, go to the first core, which counts them."""
    told = np.zeros(4, HEADER)
    told["job"] = [9, 300, 5, 300]
    datagrams = Datagrams(np.arange(4, dtype=np.uint32), told.view(np.uint8).reshape(4, HEADER_BYTES))
    assert job_numbers(datagrams).tolist() == [9, 300, 5, 300]
    assert [(job, each.addresses.tolist()) for job, each in by_job(datagrams, [5, 300])] == [(5, [0, 2]), (300, [1, 3])]
    least = BY_NAME["job"].offset + 2
    assert job_numbers(Datagrams(datagrams.addresses, datagrams.payload[:, :least])).tolist() == [9, 300, 5, 300]
    short = Datagrams(datagrams.addresses, datagrams.payload[:, : least - 1])
    assert job_numbers(short).tolist() == [0] * 4
    assert [(job, len(each)) for job, each in by_job(short, [5, 300])] == [(5, 4)]
    assert by_job(short, []) == []
    assert by_job(datagrams, [9]) == [(9, datagrams)]
    ((job, whole),) = by_job(sources(short, WORKER), [300, 5])
    assert (job, whole.addresses.tolist()) == (300, [WORKER] * 4)


def test_three_jobs_each_get_their_datagrams_and_int() -> None:
    told = np.zeros(5, HEADER)
    told["job"] = [7, 5, 300, 5, 7]
    int_headers = np.arange(5, dtype=np.uint8)[:, None]
    datagrams = Datagrams(
        np.arange(5, dtype=np.uint32), told.view(np.uint8).reshape(5, HEADER_BYTES), int_headers=int_headers
    )
    parts = {job: part.int_headers for job, part in by_job(datagrams, [300, 7, 5])}
    assert {job: None if said is None else said[:, 0].tolist() for job, said in parts.items()} == {
        5: [1, 3],
        7: [0, 4],
        300: [2],
    }
    alone = Datagrams(datagrams.addresses[1:2], datagrams.payload[1:2])
    ((job, part),) = by_job(alone, [300, 7, 5])
    assert job == 5
    assert part is alone, "nothing is copied where all are for one"


def sources(datagrams: Datagrams, address: int) -> Datagrams:
    return Datagrams(np.full(len(datagrams), address, np.uint32), datagrams.payload)


def changed(datagrams: Datagrams, *, lane: int | None = None, **fields: int) -> Datagrams:
    """The same with header fields changed (and the checksum made good), or one lane."""
    payload = datagrams.payload.copy()
    records = payload.view(MESSAGE if payload.shape[1] == MESSAGE_BYTES else HEADER)[:, 0]
    header = records["header"] if lane is not None or payload.shape[1] == MESSAGE_BYTES else records
    if lane is not None:
        records["lanes"][:, lane] += 1
    for name, value in fields.items():
        header[name] = value
    if "checksum" not in fields:
        set_checksum(header)
    return Datagrams(datagrams.addresses, payload)


class Job:
    """Two workers and a server on a perfect network, moved by hand."""

    def __init__(self, options: WorkerOptions = OPTIONS, **plan: Any) -> None:
        worker_plan = replace(PLAN, **plan)
        self.workers = [
            WorkerCore(worker_plan, options),
            WorkerCore(replace(worker_plan, rank=1, child_bit=2), options),
        ]
        self.server = ParameterServerCore(replace(SERVER_PLAN, slots=worker_plan.slots))
        self.now = 0

    def answer(self) -> list[list[Datagrams]]:
        """Messages of the server to each worker, in answer to the pending messages of both."""
        for worker, address in zip(self.workers, (WORKER, OTHER), strict=True):
            for datagrams in worker.poll(self.now):
                self.server.receive(self.now, sources(datagrams, address))
        out = self.server.poll(self.now)
        return [
            [
                Datagrams(np.full(int((d.addresses == a).sum()), SERVER, np.uint32), d.payload[d.addresses == a])
                for d in out
            ]
            for a in (WORKER, OTHER)
        ]

    def step(self, after_ns: int = MS, **fields: int) -> None:
        self.deliver(self.answer(), after_ns, **fields)

    def deliver(self, answers: list[list[Datagrams]], after_ns: int = MS, **fields: int) -> None:
        self.now += after_ns
        for worker, batches in zip(self.workers, answers, strict=True):
            for datagrams in batches:
                worker.receive(self.now, changed(datagrams, **fields) if fields else datagrams)


def ones(chunks: int) -> NDArray[np.float32]:
    return np.ones(chunks * LANES, np.float32)


# --- worker ---


def test_a_worker_sends_scales_and_then_lanes_within_its_window() -> None:
    job = Job()
    for worker in job.workers:
        worker.submit(ones(20))
    sent = job.workers[0].poll(0)
    assert [headers(d)["version_type"].tolist() for d in sent] == [[0x10 | MessageType.SCALE] * 8]
    assert tags(sent) == list(range(8))
    assert headers(sent[0])["exponent"].tolist() == [128] * 8  # 1 < 2¹
    assert headers(sent[0])["slot"].tolist() == list(range(8))
    assert job.workers[0].poll(1) == []
    assert job.workers[0].deadline_ns == 10 * MS


def test_default_time_outs_are_10_ms_initially_400_us_to_1_s() -> None:
    job = Job()
    job.workers = [WorkerCore(worker.plan) for worker in job.workers]
    worker = job.workers[0]
    for member in job.workers:
        member.submit(ones(8))
    job.answer()
    assert worker.deadline_ns == 10 * MS
    job.now = 10 * MS
    job.step(1000)
    job.step(1000)
    assert worker.idle
    worker.submit(ones(1))
    sent_ns = job.now
    worker.poll(sent_ns)
    waits: list[int] = []
    while len(waits) < 20:
        due_ns = worker.deadline_ns
        assert due_ns is not None
        waits.append(due_ns - sent_ns)
        sent_ns = due_ns
        worker.poll(sent_ns)
    assert (waits[0], waits[-1]) == (400_000, 1_000 * MS)


def test_a_worker_is_due_exactly_when_it_has_something_to_send() -> None:
    worker = WorkerCore(PLAN, OPTIONS)
    assert worker.deadline_ns is None
    worker.submit(ones(1))
    assert worker.deadline_ns == 0


def test_a_lost_packet_is_sent_again_with_back_off_and_a_flag() -> None:
    worker = WorkerCore(PLAN, OPTIONS)
    worker.submit(ones(1))
    assert not headers(worker.poll(0)[0])["flags"][0]
    waits = []
    now = 0
    for _ in range(6):
        deadline = worker.deadline_ns
        assert deadline is not None
        assert worker.poll(deadline - 1) == []
        (again,) = worker.poll(deadline)
        assert headers(again)["flags"].tolist() == [MessageFlag.RETRANSMISSION]
        waits.append((deadline - now) // MS)
        now = deadline
    assert waits == [10, 20, 40, 80, 100, 100]
    assert worker.counters.retransmitted == 6
    assert worker.counters.sent == 7


def test_the_timeout_follows_the_round_trip_and_keeps_its_bounds() -> None:
    job = Job()
    for worker in job.workers:
        worker.submit(ones(600))
    for _ in range(12):
        job.step(after_ns=4 * MS)
    worker = job.workers[0]
    answers = job.answer()
    assert worker.deadline_ns is not None
    assert worker.deadline_ns - job.now == MULTIPLE * 4 * MS
    job.deliver(answers)
    for _ in range(70):
        job.step(after_ns=1000)
    assert worker.idle
    worker.submit(ones(1))
    worker.poll(job.now)
    assert worker.deadline_ns == job.now + 1 * MS


def test_a_resent_round_is_no_sample_and_keeps_the_back_off() -> None:
    job = Job(window=2, slots=4)
    for worker in job.workers:
        worker.submit(ones(4))
        worker.poll(0)
        worker.poll(10 * MS)  # resent: whichever copy the answer is to, its round trip is unknown
    for worker, address in zip(job.workers, (WORKER, OTHER), strict=True):
        for datagrams in worker.poll(40 * MS):
            job.server.receive(0, sources(datagrams, address))
    for datagrams in job.server.poll(0):
        mine = datagrams.addresses == WORKER
        job.workers[0].receive(41 * MS, Datagrams(np.full(int(mine.sum()), SERVER, np.uint32), datagrams.payload[mine]))
    job.workers[0].poll(41 * MS)
    assert job.workers[0].deadline_ns == 41 * MS + 40 * MS  # 10 ms twice doubled, and not "1 ms"


@pytest.mark.parametrize("resent_by", ["nobody", "another", "itself"])
def test_the_round_trip_of_what_anybody_sent_twice_is_no_sample(resent_by: str) -> None:
    """Another's resend shows in the result's flag, one's own in nothing that comes where the first copy was summed."""
    job = Job(window=2, slots=4)
    for member in job.workers:
        member.submit(ones(4))
    job.step()  # exponents
    answers, worker = job.answer(), job.workers[0]
    if resent_by == "itself":
        worker.poll(job.now + 10 * MS)
    flags = int(MessageFlag.RETRANSMISSION) if resent_by == "another" else 0
    job.deliver(answers, 12 * MS, flags=flags)
    worker.poll(job.now)
    expected = {"nobody": MULTIPLE * 12 * MS, "another": 10 * MS, "itself": 2 * 10 * MS}  # its own doubles the time-out
    assert worker.deadline_ns == job.now + expected[resent_by]


def test_no_two_workers_resend_in_step() -> None:
    """Workers in step would find the same queue full each time, and lose the same packets for ever."""
    job = Job()
    waits = set()
    for worker in job.workers:
        worker.submit(ones(1))
        worker.poll(0)
        first = worker.deadline_ns
        assert first is not None
        worker.poll(first)
        assert worker.deadline_ns is not None
        waits.add(worker.deadline_ns - first)
    assert len(waits) == len(job.workers)
    assert max(waits) < 2 * min(waits)


def test_every_generation_starts_with_few_rounds_until_a_result() -> None:
    job = Job()
    job.workers = [WorkerCore(replace(worker.plan, pacing=Pacing(window=2))) for worker in job.workers]
    for worker in job.workers:
        worker.submit(ones(100))
    assert [len(batch) for batch in job.workers[0].poll(0)] == [2]
    job.workers[1].poll(0)
    job.now = 20 * MS  # resent, answered
    job.step(window=5)
    assert [len(batch) for batch in job.workers[0].poll(job.now)] == [5]
    job.step(window=6)
    for worker in job.workers:
        worker.pause()
        worker.resume(Resume(replace(worker.plan, generation=2)))
    job.server.pause()
    job.server.resume(Resume(replace(job.server.plan, generation=2)))
    assert [len(batch) for batch in job.workers[0].poll(job.now)] == [2]


@pytest.mark.parametrize(("window", "expected"), [(0xFFFF, 8), (8, 8), (3, 3), (1, 1), (0, 1)])
def test_the_window_in_results_is_obeyed(window: int, expected: int) -> None:
    job = Job()
    for worker in job.workers:
        worker.submit(ones(100))
    job.step(window=window)
    ((batch,), _) = answers = job.answer()
    assert len(batch) == expected
    job.deliver(answers)  # without a limit again
    ((batch,), _) = job.answer()
    assert len(batch) == 8


def test_the_later_of_two_results_sets_the_window() -> None:
    job = Job()
    for worker in job.workers:
        worker.submit(ones(100))
    ((batch,), _) = job.answer()
    worker = job.workers[0]
    for row, window in ((4, 3), (2, 7)):
        only = Datagrams(batch.addresses[[row]], batch.payload[[row]])
        worker.receive(MS, changed(only, window=window))
    worker.receive(MS, changed(Datagrams(batch.addresses[[0, 1, 3]], batch.payload[[0, 1, 3]]), window=6))
    assert worker.poll(MS) == [], "three of the eight are in the network"


class Listener(ExplicitWindow):
    """Law that applies windows and keeps its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Feedback] = []
        self.lost: list[tuple[int, int]] = []

    def on_loss(self, rounds: int, now_ns: int) -> None:
        self.lost.append((rounds, now_ns))
        super().on_loss(rounds, now_ns)

    def update(self, feedback: Feedback) -> None:
        self.told.append(feedback)
        super().update(feedback)


def test_a_law_gets_rounds_in_flight_and_round_trips_with_lanes() -> None:
    """Rounds that bring exponents only are a fraction of the others, and so are their round trips."""
    law = Listener()
    job = Job()
    job.workers[0] = WorkerCore(PLAN, replace(OPTIONS, law=lambda: law))
    for worker in job.workers:
        worker.submit(ones(20))
    answers = job.answer()
    for part in (slice(0, 3), slice(3, 8)):
        job.deliver([[Datagrams(d.addresses[part], d.payload[part]) for d in own] for own in answers], after_ns=5)
    assert [(heard.rounds, heard.in_flight, heard.round_trip_ns) for heard in law.told] == [(3, 5, None), (5, 0, None)]
    job.step(after_ns=7)
    assert [(heard.rounds, heard.in_flight, heard.round_trip_ns) for heard in law.told[2:]] == [(8, 0, 7)]


def test_a_law_is_told_how_many_rounds_found_queues_long() -> None:
    law = Listener()
    job = Job()
    job.workers[0] = WorkerCore(PLAN, replace(OPTIONS, law=lambda: law))
    for worker in job.workers:
        worker.submit(ones(20))
    ((batch,), _) = job.answer()
    flags = np.zeros(8, np.uint8)
    flags[:3], flags[3] = MessageFlag.CONGESTION, MessageFlag.RETRANSMISSION
    job.workers[0].receive(MS, changed(batch, flags=flags))  # type: ignore[arg-type]
    assert [heard.marked for heard in law.told] == [3]


def test_contributions_with_lanes_carry_their_laws_request() -> None:
    class Asking(ExplicitWindow):
        int_header = b"ask"

    job = Job()
    job.workers[0] = worker = WorkerCore(PLAN, replace(OPTIONS, law=Asking))
    for member in job.workers:
        member.submit(ones(3))
    assert [datagram.int_headers for datagram in worker.poll(0)] == [None]
    job.now = 10 * MS
    job.step()
    (batch,) = worker.poll(job.now)
    assert batch.int_headers is not None
    assert batch.int_headers.tobytes() == 3 * b"ask"


def test_a_law_is_told_of_rounds_that_are_taken_for_lost() -> None:
    law = Listener()
    worker = WorkerCore(PLAN, replace(OPTIONS, law=lambda: law))
    worker.submit(ones(20))
    sent = sum(map(len, worker.poll(0)))
    worker.poll(10 * MS - 1)
    assert not law.lost
    worker.poll(10 * MS)
    assert law.lost == [(sent, 10 * MS)]


def test_paced_rounds_become_due_between_rare_polls() -> None:
    class Paced(ExplicitWindow):
        gap_ns = 10

    worker = WorkerCore(PLAN, replace(OPTIONS, law=Paced))
    worker.poll(0)
    worker.submit(ones(20))
    assert [sum(map(len, worker.poll(now_ns))) for now_ns in (1_000, 1_009, 1_010, 1_055)] == [1, 0, 1, 4]
    assert worker.deadline_ns == 1_060


class Unbounded(ExplicitWindow):
    """Law without a bound on queues, under which workers send copies without turns."""

    bounded = False


UNBOUNDED = replace(OPTIONS, law=Unbounded)


def test_a_paced_repair_is_sent_when_the_pace_allows() -> None:
    """Repairs are due after 20 ms here and a gap is 50 ms, but the time-out of first sendings has doubled so often that
    the worker wakes up in between, and finds nothing to send.
    """
    gap_ns = 50 * MS
    job = Job(UNBOUNDED, pacing=Pacing(window=32, gap_ns=gap_ns, round_trip_ns=1))
    worker = job.workers[0]
    for member in job.workers:
        member.submit(ones(1))
    for sent_ms, looks_ms in ((0, 10), (50, 70), (100, 140)):
        assert len(worker.poll(sent_ms * MS)) == 1
        assert worker.poll(looks_ms * MS) == [], "it is lost, and not to be sent yet"
        assert worker.deadline_ns == sent_ms * MS + gap_ns
    job.now = 150 * MS
    job.step()  # the exponents are there; repeated sendings give no round-trip time
    assert len(worker.poll(200 * MS)) == 1
    assert worker.poll(250 * MS) == []
    assert worker.deadline_ns == 280 * MS, "its first time-out"
    assert len(worker.poll(280 * MS)) == 1
    assert worker.deadline_ns == 330 * MS, "it may be lost at 300 ms, and sent again only then"
    assert worker.poll(300 * MS) == []
    assert worker.deadline_ns == 330 * MS
    assert len(worker.poll(330 * MS)) == 1


def test_a_paced_repair_waits_for_no_other_time_out() -> None:
    """Two rounds are lost at once; the second is sent again a gap after the first, not when that one's time is out."""
    worker = WorkerCore(replace(PLAN, pacing=Pacing(window=32, gap_ns=2 * MS, round_trip_ns=1)), UNBOUNDED)
    worker.submit(ones(2))
    for now_ns in (0, 2 * MS, 4 * MS):
        worker.poll(now_ns)
    assert tags(worker.poll(12 * MS)) == [0]
    assert worker.deadline_ns == 14 * MS
    assert tags(worker.poll(14 * MS)) == [1]


def test_small_tensors_overlap_but_wait_for_their_own_exponents() -> None:
    job = Job()
    for worker in job.workers:
        for _ in range(3):
            worker.submit(ones(1))
    assert tags(job.workers[0].poll(0)) == [0, 2, 4]  # each tensor: a scale round, then a round with lanes
    for worker in job.workers[1:]:
        for datagrams in worker.poll(0):
            job.server.receive(0, sources(datagrams, OTHER))
    again = job.workers[0].poll(10 * MS)
    for datagrams in again:
        job.server.receive(0, sources(datagrams, WORKER))
    for datagrams in job.server.poll(0):
        row = datagrams.addresses == WORKER
        only = Datagrams(np.array([SERVER], np.uint32), datagrams.payload[row][1:2])  # round 2's alone
        job.workers[0].receive(0, only)
    assert tags(job.workers[0].poll(0)) == [3]


def test_every_sum_and_the_failure_settle_once_taken_or_not() -> None:
    """Waiting threads are woken by that."""
    job = Job()

    def sum_all(*signatures: int) -> list[int]:
        for worker, signature in zip(job.workers, signatures, strict=True):
            worker.submit(Tensor(ones(1), workers=2, signature=signature))
        for _ in range(5):
            job.step()
        return [worker.settled for worker in job.workers]

    assert sum_all(3, 3) == [1, 1]
    assert sum_all(5, 5) == [2, 2]
    assert job.workers[0].pop_result(0) is not None
    assert sum_all(7, 9) == [3, 3]
    assert all(worker.failure for worker in job.workers)


def test_a_differing_call_waits_for_no_round() -> None:
    job = Job()
    for worker, signature in zip(job.workers, (7, 9), strict=True):
        worker.submit(Tensor(ones(8), workers=2, signature=signature))
    (batch,), _ = job.answer()
    worker = job.workers[0]
    worker.receive(MS, Datagrams(batch.addresses[:1], batch.payload[:1]))
    assert worker.failure is not None
    assert worker.poll(MS) == []
    assert worker.deadline_ns is None


def test_a_tensor_weighs_one_unless_told_otherwise() -> None:
    job = Job()
    for worker in job.workers:
        worker.submit(ones(1))
    while not job.workers[0].idle:
        job.step()
    reduced = job.workers[0].pop_result(0)
    assert reduced is not None
    assert reduced.weights.tolist() == [2]


def test_no_time_out_is_below_the_round_trip_that_the_plan_tells() -> None:
    job = Job(pacing=Pacing(window=1000, round_trip_ns=5 * MS))
    for worker in job.workers:
        worker.submit(ones(1))
    job.step(1000)
    job.step(1000)
    worker = job.workers[0]
    worker.submit(ones(1))
    worker.poll(job.now)
    assert worker.deadline_ns == job.now + 5 * MS


def test_a_new_generation_takes_no_back_off_over() -> None:
    worker = WorkerCore(PLAN, OPTIONS)
    worker.submit(ones(1))
    for now_ns in (0, 10 * MS, 30 * MS):
        worker.poll(now_ns)
    worker.pause()
    worker.resume(Resume(replace(PLAN, generation=2)))
    worker.poll(40 * MS)
    assert worker.deadline_ns == 50 * MS


def result_for(worker: WorkerCore) -> Datagrams:
    """A right result for a worker's first round with lanes, which is in flight."""
    job = Job()
    job.workers[0] = worker
    for member in job.workers:
        member.submit(ones(1))
    job.step()
    (batch,) = job.answer()[0]
    return batch


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("bad_checksum", {"checksum": 1}),
        ("malformed", {"version_type": 0x22}),
        ("malformed", {"version_type": 0x14}),
        ("unexpected_type", {"version_type": 0x11}),
        ("unexpected_type", {"version_type": 0x16}),
        ("unknown_job", {"job": 6}),
        ("stale_generation", {"tag": 2 << 24 | 1}),
        ("stale_generation", {"tag": 1}),
        ("bad_slot", {"slot": 2}),
        ("bad_check", {"lane": 17}),
        ("bad_check", {"weight": 3}),
        ("bad_check", {"check": 3}),
        ("out_of_window", {"tag": 1 << 24 | 2, "slot": 2}),
        ("out_of_window", {"tag": 1 << 24 | 1 << 22, "slot": 0}),
        ("duplicate", {"tag": 1 << 24 | 0, "slot": 0}),
    ],
)
def test_a_worker_drops_and_counts_by_reason(reason: str, change: dict[str, int]) -> None:
    worker = WorkerCore(PLAN, OPTIONS)
    good = result_for(worker)
    before = asdict(worker.counters)
    worker.receive(0, changed(good, **change))
    after = asdict(worker.counters)
    differing = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert differing == {"received": 1, reason: 1}
    assert not worker.idle
    worker.receive(0, Datagrams(np.repeat(good.addresses, 2), np.repeat(good.payload, 2, axis=0)))  # good, and twice
    assert worker.idle
    assert worker.counters.duplicate == after["duplicate"] + 1
    worker.receive(0, Datagrams(np.array([SERVER + 1], np.uint32), good.payload))
    assert worker.counters.received == worker.counters.accepted + worker.counters.dropped


def test_a_result_from_a_stranger_is_foreign() -> None:
    worker = WorkerCore(PLAN, OPTIONS)
    worker.receive(0, sources(result_for(worker), SERVER + 1))
    assert worker.counters.foreign == 1
    assert not worker.idle


@given(st.lists(st.binary(min_size=HEADER_BYTES, max_size=HEADER_BYTES), min_size=1, max_size=5))
@example([b"\xff" * HEADER_BYTES])
def test_noise_never_raises(rows: list[bytes]) -> None:
    payload = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), HEADER_BYTES)
    for core in (WorkerCore(PLAN), ParameterServerCore(SERVER_PLAN)):
        core.receive(0, Datagrams(np.full(len(rows), WORKER, np.uint32), payload))
        core.receive(0, Datagrams(np.full(len(rows), WORKER, np.uint32), payload[:, :11]))
        assert core.counters.received == core.counters.dropped == 2 * len(rows)
        assert core.poll(0) == []


def test_weights_are_summed_and_give_the_weighted_mean() -> None:
    job = Job()
    gradients = [ones(2)[:300] * 3, ones(2)[:300] * 6]
    for worker, gradient, samples in zip(job.workers, gradients, (30, 10), strict=True):
        worker.submit(gradient * np.float32(samples), name="g", weight=samples)
    while not job.workers[0].idle:
        job.step()
    reduced = job.workers[0].pop_result(0)
    assert reduced is not None
    assert reduced.weights.tolist() == [40, 40]
    assert reduced.mean().tolist() == [(3 * 30 + 6 * 10) / 40] * 300
    assert job.workers[0].pop_result(0) is None


@pytest.mark.parametrize("weight", [-1, 1 << 31, 1 << 32])
def test_a_weight_out_of_range_is_refused(weight: int) -> None:
    with raises(InvalidTensor, place="tensor 'tensor'", value=weight):
        WorkerCore(PLAN).submit(ones(1), weight=weight)


def test_a_weight_is_any_whole_number() -> None:
    weights: list[Any] = [np.int64(3), np.uint8(3), np.array(3), True]
    for weight in weights:
        Tensor(ones(1), workers=2, weight=weight, mean=True)
    with raises(InvalidTensor, place="tensor 'w'", value=2.5):
        Tensor(ones(1), workers=2, weight=2.5, name="w")  # type: ignore[arg-type]


@pytest.mark.parametrize("lanes", [8, 128])
def test_a_tensor_for_messages_of_another_size_is_refused(lanes: int) -> None:
    with raises(InvalidTensor, place="tensor 'w'", value=256):
        WorkerCore(replace(PLAN, lanes=lanes)).submit(Tensor(ones(1), workers=2, name="w"))
    with raises(InvalidTensor, place="tensor 'w'", value=lanes):
        WorkerCore(PLAN).submit(Tensor(ones(1), workers=2, lanes=lanes, name="w"))


def test_a_refused_tensor_leaves_nothing_behind() -> None:
    worker = WorkerCore(PLAN)
    with pytest.raises(InvalidTensor):
        worker.submit(np.array([1, np.nan], np.float32))
    assert worker.idle
    assert worker.poll(0) == []
    assert worker.submit(ones(1)) == 0


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"window": 9}, "window", 9),
        ({"window": 0}, "window", 0),
        ({"slots": 12}, "slots", 12),
        ({"slots": 10}, "slots", 10),
        ({"child_bit": 3}, "child_bit", 3),
        ({"child_bit": 5}, "child_bit", 5),
        ({"child_bit": 0}, "child_bit", 0),
        ({"child_bit": 1 << 32}, "child_bit", 1 << 32),
        ({"child_bit": 1 << 33}, "child_bit", 1 << 33),
        ({"generation": 0}, "generation", 0),
        ({"generation": 256}, "generation", 256),
        ({"job": 0}, "job", 0),
        ({"generation": -1}, "generation", -1),
        ({"generation": 257}, "generation", 257),
        ({"job": 65_536}, "job", 65_536),
        ({"job": 65_537}, "job", 65_537),
        ({"job": -1}, "job", -1),
        ({"rank": 2}, "rank", 2),
        ({"rank": 6, "workers": 5}, "rank", 6),
        ({"rank": -1}, "rank", -1),
        ({"aggregator": 0}, "aggregator", 0),
        ({"aggregator": -1}, "aggregator", -1),
        ({"aggregator": 1 << 32}, "aggregator", 1 << 32),
        ({"aggregator": 5 << 32}, "aggregator", 5 << 32),
        ({"key": "9f"}, "key", 2),
    ],
)
def test_a_plan_that_cannot_be_right_is_refused(change: dict[str, Any], field: str, value: int) -> None:
    with raises(InvalidPlan, place=f"job {change.get('job', 5)}, worker {change.get('rank', 0)}: {field}", value=value):
        WorkerCore(replace(PLAN, **change))


@pytest.mark.parametrize(
    "change", [{"aggregator": 1}, {"aggregator": (1 << 32) - 1}, {"slots": 1 << 16}, {"window": 1}]
)
def test_a_plan_at_an_end_of_what_is_right_is_taken(change: dict[str, Any]) -> None:
    worker = WorkerCore(replace(PLAN, **change))
    worker.submit(ones(1))
    assert [datagram.addresses.tolist() for datagram in worker.poll(0)] == [[worker.plan.aggregator]]


def test_a_resume_that_does_not_fit_is_refused() -> None:
    worker = WorkerCore(PLAN)
    with raises(InvalidPlan, place="job 5", value="worker 0"):
        worker.resume(Resume(replace(PLAN, generation=2)))
    worker.pause()
    changes: list[tuple[str, Any]] = [("generation", 1), ("workers", 3), ("lanes", 8), ("rank", 1), ("key", "9f" * 32)]
    for field, value in changes:
        plan = replace(PLAN, **{"generation": 2, field: value})
        place = f"job 5, worker {plan.rank}: {field}"
        with raises(InvalidPlan, place=place, value=None if field == "key" else value):
            worker.resume(Resume(plan))
    with raises(InvalidPlan, place="job 5", value="ServerPlan"):
        worker.resume(Resume(replace(SERVER_PLAN, generation=2)))
    assert worker.paused


def test_a_worker_keeps_its_key_and_its_rank() -> None:
    plan = replace(PLAN, rank=1, key="9f" * 32)
    worker = WorkerCore(plan)
    worker.pause()
    with raises(InvalidPlan, place="job 5, worker 0: rank", value=0):
        worker.resume(Resume(replace(plan, generation=2, rank=0)))
    with raises(InvalidPlan, place="job 5, worker 1: key"):
        worker.resume(Resume(replace(plan, generation=2, key="")))


def test_a_repeated_resume_changes_nothing() -> None:
    worker, server = WorkerCore(PLAN, OPTIONS), ParameterServerCore(SERVER_PLAN)
    worker.submit(ones(3))
    for core, resume in (
        (worker, Resume(replace(PLAN, generation=2))),
        (server, Resume(replace(SERVER_PLAN, generation=2))),
    ):
        core.pause()
        core.resume(resume)
        core.poll(0)
        core.resume(Resume(replace(resume.plan)))
        assert core.poll(0) == []
        with raises(InvalidPlan, place="job 5", value="worker 0" if core is worker else "the parameter server"):
            core.resume(Resume(replace(resume.plan, generation=3)))


def test_a_paused_worker_is_silent_and_says_what_it_holds() -> None:
    job = Job()
    for worker in job.workers:
        worker.submit(ones(20))
    job.step()
    (batch,) = job.answer()[0]
    worker = job.workers[0]
    worker.receive(job.now, Datagrams(batch.addresses[2:4], batch.payload[2:4]))
    assert worker.pause() == Held(1, 8, frozenset({10, 11})) == worker.pause()
    worker.receive(job.now, batch)
    assert (worker.counters.paused, worker.counters.received) == (8, 8 + 2 + 8)
    assert worker.poll(10**12) == []
    assert worker.deadline_ns is None
    worker.resume(Resume(replace(PLAN, generation=2), (FinalRound(8, 1234),)))
    sent = worker.poll(job.now)
    by_kind = {int(headers(d)["version_type"][0]) & 15: (d.addresses.tolist(), tags([d])) for d in sent}
    assert by_kind == {
        MessageType.FETCH: ([1234], [8]),
        MessageType.CONTRIBUTION: ([SERVER] * 5, [9, 12, 13, 14, 15]),
    }
    assert [headers(d)["contributors"].tolist() for d in sent if len(d) == 1] == [[0]]


# --- server ---


def contribution(worker_bit: int = 1, address: int = WORKER, round_number: int = 0, value: int = 1) -> Datagrams:
    worker = WorkerCore(replace(PLAN, child_bit=worker_bit), replace(OPTIONS, first_round=round_number))
    worker.submit(np.float32(value) * ones(1), weight=worker_bit)
    return sources(worker.poll(0)[0], address)


def test_a_server_answers_all_on_completion_and_one_on_a_repeat() -> None:
    server = ParameterServerCore(SERVER_PLAN)
    first, second = contribution(1, WORKER), contribution(2, OTHER, value=5)
    server.receive(0, first)
    server.receive(0, first)
    assert server.poll(0) == []
    assert server.deadline_ns is None
    server.receive(0, second)
    assert server.deadline_ns == 0
    (result,) = server.poll(0)
    assert result.addresses.tolist() == [WORKER, OTHER]
    assert headers(result)["exponent"].tolist() == [127 + 3] * 2  # 5 < 2³
    assert headers(result)["weight"].tolist() == [3, 3]
    server.receive(0, second)
    (again,) = server.poll(0)
    assert again.addresses.tolist() == [OTHER]
    assert again.payload[0].tobytes() == result.payload[1].tobytes()
    counters = server.counters
    assert (counters.accepted, counters.duplicate, counters.answered, counters.sent) == (2, 1, 1, 3)
    assert counters.received == 4


def test_a_server_takes_a_round_from_all_children_in_one_batch() -> None:
    server = ParameterServerCore(SERVER_PLAN)
    batches = [contribution(1, WORKER), contribution(2, OTHER), contribution(1, WORKER, 1), contribution(2, OTHER, 1)]
    server.receive(
        0,
        Datagrams(np.concatenate([b.addresses for b in batches]), np.concatenate([b.payload for b in batches])),
    )
    assert sorted(tags(server.poll(0))) == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("bad_checksum", {"checksum": 1}),
        ("malformed", {"version_type": 0x11}),
        ("unexpected_type", {"version_type": 0x14}),
        ("unknown_job", {"job": 6}),
        ("stale_generation", {"tag": 2 << 24}),
        ("foreign", {"contributors": 2}),
        ("foreign", {"contributors": 3}),
        ("foreign", {"contributors": 0}),
        ("bad_slot", {"slot": 1}),
        ("bad_check", {"check": 77}),
    ],
)
def test_a_server_drops_and_counts_by_reason(reason: str, change: dict[str, int]) -> None:
    server = ParameterServerCore(SERVER_PLAN)
    server.receive(0, changed(contribution(), **change))
    assert {k: v for k, v in asdict(server.counters).items() if v} == {"received": 1, reason: 1}
    server.receive(0, contribution())
    server.receive(0, contribution(2, OTHER))
    assert len(server.poll(0)) == 1


def joined(*batches: Datagrams) -> Datagrams:
    return Datagrams(np.concatenate([b.addresses for b in batches]), np.concatenate([b.payload for b in batches]))


def test_a_message_counts_for_its_first_error() -> None:
    """Its form, then its checksum, its job and its generation."""
    server = ParameterServerCore(SERVER_PLAN)

    def times(count: int, **fields: int) -> Datagrams:
        one = changed(contribution(), **fields)
        return Datagrams(one.addresses.repeat(count), one.payload.repeat(count, axis=0))

    malformed = times(20, version_type=0x11), times(7, version_type=0x20, job=6, checksum=1)
    bad_checksum = times(3, checksum=1), times(3, checksum=0xFFFF), times(7, job=6, tag=2 << 24, checksum=1)
    unknown_job = times(3, job=6), times(4, job=4, tag=2 << 24)
    stale_generation = times(2, tag=2 << 24), times(1, tag=0)
    good = contribution(1, WORKER), contribution(2, OTHER)
    server.receive(0, joined(*malformed, *bad_checksum, good[0], *unknown_job, *stale_generation, good[1]))
    assert {name: count for name, count in asdict(server.counters).items() if count} == {
        "received": 52, "malformed": 27, "bad_checksum": 13, "unknown_job": 7, "stale_generation": 3,
        "accepted": 2, "sent": 2,
    }  # fmt: skip
    (result,) = server.poll(0)
    assert result.addresses.tolist() == [WORKER, OTHER]


@pytest.mark.parametrize("lanes", [8, LANES])
def test_messages_of_other_sizes_are_malformed(lanes: int) -> None:
    whole = HEADER_BYTES + 4 * lanes
    for core in (WorkerCore(replace(PLAN, lanes=lanes)), ParameterServerCore(replace(SERVER_PLAN, lanes=lanes))):
        core.receive(0, Datagrams(np.empty(0, np.uint32), np.empty((0, HEADER_BYTES), np.uint8)))
        assert not any(asdict(core.counters).values())
        for size in (0, HEADER_BYTES - 1, HEADER_BYTES + 1, whole - 4, whole - 1, whole + 1, whole + 4):
            payload = np.zeros((1, size), np.uint8)
            sent = contribution().payload[:, :size]
            payload[:, : sent.shape[1]] = sent
            before = core.counters.malformed
            core.receive(0, Datagrams(np.full(1, SERVER, np.uint32), payload))
            assert core.counters.malformed - before == 1, size
        assert core.counters.dropped == core.counters.received


def test_a_store_of_results_grows_and_never_shrinks() -> None:
    store = RoundStore(8, lanes=4)
    numbers = np.array([9, 31, 34, 36, 45])
    places = numbers % 8
    reduced = reduced_columns(5, weight=numbers, flags=1, window=numbers)
    for rows, lanes in (([0, 2], None), ([1, 3, 4], np.arange(12, dtype=np.int32).reshape(3, 4))):
        writer = MessageWriter(5, 1, 8)
        kind = MessageType.SCALE_RESULT if lanes is None else MessageType.RESULT
        payload = writer.write(kind, numbers[rows], contributors=0, reduced=reduced[:, rows], lanes=lanes)
        messages = open_messages(Datagrams(np.zeros(len(rows), np.uint32), payload), 5, 1, Counters(), 4)
        assert messages is not None
        assert messages.flags.tolist() == [1] * len(rows)
        store.put(places[rows], numbers[rows], messages)
    assert store.grown(4) is store
    assert store.grown(8) is store
    for larger in (store, store.grown(32)):
        asked = np.arange(64)
        assert asked[larger.holds(asked)].tolist() == numbers.tolist()
        at = numbers & (larger.size - 1)
        assert larger.has_lanes[at].tolist() == [False, True, False, True, True]
        assert larger.lanes[at].tolist() == [[0] * 4, [0, 1, 2, 3], [0] * 4, [4, 5, 6, 7], [8, 9, 10, 11]]
        assert np.array_equal(larger.reduced[:, at], reduced)


def test_a_server_has_as_many_children_as_there_are_bits() -> None:
    children = tuple(Child(1 << index, 100 + index) for index in range(32))
    server = ParameterServerCore(replace(SERVER_PLAN, children=children, workers=32))
    first, *others = (changed(contribution(1, child.address), contributors=child.bit) for child in children)
    server.receive(0, joined(*others))
    assert server.poll(0) == []
    server.receive(0, first)
    (result,) = server.poll(0)
    assert result.addresses.tolist() == [child.address for child in children]
    assert headers(result)["weight"].tolist() == [32] * 32


def test_a_message_naming_no_child_is_dropped_for_any_address() -> None:
    server = ParameterServerCore(SERVER_PLAN)
    server.receive(0, changed(contribution(1, 0), contributors=0))
    assert server.counters.drops["foreign"] == server.counters.dropped == 1


def test_a_server_counts_each_message_of_a_batch_by_its_outcome() -> None:
    """Rounds 16 and 17 are complete and 18 has begun: its exponents, from one child."""
    server = ParameterServerCore(SERVER_PLAN)
    server.receive(0, joined(*(contribution(*child, at) for at in (16, 17) for child in ((1, WORKER), (2, OTHER)))))
    server.receive(0, contribution(1, WORKER, 18))
    server.poll(0)
    late = [contribution(1, WORKER, at) for at in (0, 1, 2)]
    repeats = [contribution(2, OTHER, 16), contribution(1, WORKER, 17), contribution(1, WORKER, 18)]
    before = asdict(server.counters)
    server.receive(0, joined(*late, *repeats, contribution(1, WORKER, 19), contribution(2, OTHER, 18)))
    after = asdict(server.counters)
    assert {name: after[name] - before[name] for name in after if after[name] != before[name]} == {
        "received": 8, "late": 3, "duplicate": 1, "answered": 2, "accepted": 2, "sent": 4
    }  # fmt: skip
    repeated, completed = server.poll(0)
    assert (repeated.addresses.tolist(), tags([repeated])) == ([OTHER, WORKER], [16, 17])
    assert (completed.addresses.tolist(), tags([completed])) == ([WORKER, OTHER], [18, 18])


def test_a_round_has_lanes_for_all_children_or_for_none() -> None:
    job = Job()
    for worker in job.workers:
        worker.submit(ones(1))
    job.step()
    (lanes,) = job.workers[0].poll(job.now)
    job.server.receive(0, sources(lanes, WORKER))
    job.server.receive(0, joined(contribution(2, OTHER, 1), contribution(2, OTHER, 2)))
    assert job.server.counters.drops["unexpected_type"] == job.server.counters.dropped == 1


def test_a_server_takes_rounds_as_far_ahead_as_it_has_slots() -> None:
    server = ParameterServerCore(SERVER_PLAN)
    for child in ((1, WORKER), (2, OTHER)):
        server.receive(0, contribution(*child, 20))
    server.receive(0, contribution(1, WORKER, 20 + 16))
    assert server.counters.dropped == 0
    server.receive(0, contribution(1, WORKER, 20 + 17))
    assert server.counters.drops["out_of_window"] == server.counters.dropped == 1


def test_a_server_takes_rounds_up_to_its_slots_beyond_final_ones() -> None:
    """A sender that has them all continues there, while the one that is not final is summed."""
    server = ParameterServerCore(SERVER_PLAN)
    server.pause()
    final = tuple(FinalRound(at, OTHER) for at in [*range(17, 32), *range(16)])
    server.resume(Resume(replace(SERVER_PLAN, generation=2), final))

    def receive(bit: int, address: int, round_number: int) -> None:
        server.receive(0, changed(contribution(bit, address, round_number), tag=make_tag(2, round_number)))

    receive(1, WORKER, 16)
    receive(2, OTHER, 16)
    receive(1, WORKER, 31 + 16)
    assert server.counters.dropped == 0
    receive(1, WORKER, 31 + 17)
    assert server.counters.drops["out_of_window"] == server.counters.dropped == 1


def test_a_paused_server_takes_and_sends_nothing() -> None:
    server = ParameterServerCore(replace(SERVER_PLAN, first_round=3))
    for child in ((1, WORKER), (2, OTHER)):
        server.receive(0, contribution(*child, 3))
    assert server.pause() == Held(1, 4) == server.pause()
    assert server.deadline_ns is None
    server.receive(0, joined(contribution(1, WORKER, 4), contribution(2, OTHER, 4)))
    assert (server.counters.paused, server.counters.received, server.settled) == (2, 4, 0)
    assert server.poll(0) == []


def test_an_answer_has_the_asking_packets_flags_and_int() -> None:
    """And a result that of the contribution which completed it."""
    server = ParameterServerCore(SERVER_PLAN)

    def with_int(datagrams: Datagrams, value: int) -> Datagrams:
        return replace(datagrams, int_headers=np.full((len(datagrams), 3), value, np.uint8))

    def flags_and_int() -> list[tuple[int, list[int]]]:
        (out,) = server.poll(0)
        assert out.int_headers is not None
        return list(zip(headers(out)["flags"].tolist(), out.int_headers.tolist(), strict=True))

    server.receive(0, with_int(contribution(1, WORKER), 7))
    server.receive(0, with_int(contribution(2, OTHER), 8))
    assert flags_and_int() == [(0, [8, 8, 8])] * 2
    server.receive(0, with_int(changed(contribution(2, OTHER), flags=int(MessageFlag.RETRANSMISSION)), 9))
    assert flags_and_int() == [(int(MessageFlag.RETRANSMISSION), [9, 9, 9])]


def test_a_server_drops_late_rounds_and_impossible_ones() -> None:
    server = ParameterServerCore(SERVER_PLAN)
    for first_round in (16, 16):
        for bit, address in ((1, WORKER), (2, OTHER)):
            server.receive(0, contribution(bit, address, first_round))
    server.poll(0)
    server.receive(0, contribution(1, WORKER, 0))
    server.receive(0, contribution(1, WORKER, 1 << 20))
    assert (server.counters.late, server.counters.out_of_window) == (1, 1)
    assert server.poll(0) == []


def test_a_damaged_contribution_is_dropped_alone_and_resent() -> None:
    job = Job()
    arrays = [ones(1) / 3, ones(1) / 7]
    for worker, array in zip(job.workers, arrays, strict=True):
        worker.submit(array)
    job.step()
    (mine,), (other,) = job.workers[0].poll(job.now), job.workers[1].poll(job.now)
    job.server.receive(0, changed(sources(mine, WORKER), lane=200))
    job.server.receive(0, sources(other, OTHER))
    assert job.server.poll(0) == []
    assert job.server.counters.bad_check == 1
    job.now = job.workers[0].deadline_ns or 0
    job.step()
    reduced = job.workers[0].pop_result(0)
    assert reduced is not None
    assert reduced.array.tobytes() == reference_sum(arrays).tobytes()


def test_a_server_keeps_the_last_rounds_for_whoever_fetches() -> None:
    job = Job(slots=4, window=2)
    for worker in job.workers:
        worker.submit(ones(4))
    while not job.workers[0].idle:
        job.step()
    assert job.server.pause() == Held(1, 6)
    job.server.resume(Resume(replace(SERVER_PLAN, generation=2, slots=4, children=())))
    asker = WorkerCore(replace(PLAN, slots=4, window=2), replace(OPTIONS, first_round=1))
    asker.submit(ones(3))  # rounds 1…5: round 1 has left the server's slots
    asker.pause()
    asker.resume(Resume(replace(PLAN, generation=2, slots=4, window=2), tuple(FinalRound(r, SERVER) for r in range(6))))
    fetches = asker.poll(0)
    assert tags(fetches) == [1, 2]
    job.server.receive(0, sources(fetches[0], WORKER))
    (answer,) = job.server.poll(0)
    assert headers(answer)["version_type"].tolist() == [0x10 | MessageType.FETCHED]
    assert tags([answer]) == [2]
    assert job.server.counters.unknown_round == 1


def test_each_fetch_of_a_batch_is_answered_or_counted() -> None:
    """Rounds 0 and 1 brought exponents, 2 and 3 lanes, and there are no others; three that ask are no members."""
    job = Job()
    for worker in job.workers:
        worker.submit(ones(2))
    while not job.workers[0].idle:
        job.step()
    job.server.pause()
    job.server.resume(Resume(replace(SERVER_PLAN, generation=2, children=())))
    asker = WorkerCore(PLAN, OPTIONS)
    asker.submit(ones(8))
    asker.pause()
    asker.resume(Resume(replace(PLAN, generation=2), tuple(FinalRound(index, SERVER) for index in range(8))))
    (fetches,) = asker.poll(0)
    askers = np.array([WORKER, OTHER, OTHER, WORKER, 1234, WORKER, 1235, 1236], np.uint32)
    before = asdict(job.server.counters)
    job.server.receive(0, Datagrams(askers, fetches.payload))
    after = asdict(job.server.counters)
    told = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    lanes, scales = job.server.poll(0)
    assert (lanes.addresses.tolist(), tags([lanes])) == ([OTHER, WORKER], [2, 3])
    assert (scales.addresses.tolist(), tags([scales])) == ([WORKER, OTHER], [0, 1])
    for each, kind in ((lanes, MessageType.FETCHED), (scales, MessageType.SCALE_FETCHED)):
        assert set(headers(each)["version_type"].tolist()) == {version_type(kind)}
        assert set(headers(each)["contributors"].tolist()) == set((headers(each)["flags"] & 3).tolist()) == {0}
    assert told == {"received": 8, "foreign": 3, "unknown_round": 1, "answered": 4, "sent": 4}


def test_a_worker_answers_fetches_at_once_or_not_while_paused() -> None:
    job = Job()
    for worker in job.workers:
        worker.submit(ones(1))
    while not job.workers[0].idle:
        job.step()
    asker, holder = WorkerCore(PLAN, OPTIONS), job.workers[1]
    asker.submit(ones(1))
    asker.pause()
    asker.resume(Resume(replace(PLAN, generation=2), (FinalRound(0, OTHER),)))
    holder.poll(job.now)
    for generation in (2, 3):
        holder.pause()
        holder.resume(Resume(replace(holder.plan, generation=generation)))
        holder.poll(job.now)
        assert holder.deadline_ns is None
        (fetch,) = (changed(datagram, tag=make_tag(generation, 0)) for datagram in asker.poll(job.now))
        holder.receive(job.now, sources(fetch, WORKER))
        assert holder.deadline_ns == 0
        if generation == 2:
            assert sum(map(len, holder.poll(job.now))) == 1
            job.now = asker.deadline_ns or 0
    holder.pause()
    holder.resume(Resume(replace(holder.plan, generation=4)))
    assert holder.poll(job.now) == []


def test_a_stranger_is_not_told_what_a_job_sums() -> None:
    job = Job()
    for worker in job.workers:
        worker.submit(ones(1))
    while not job.workers[0].idle:
        job.step()
    asker = WorkerCore(PLAN, OPTIONS)
    asker.submit(ones(1))
    asker.pause()
    asker.resume(Resume(replace(PLAN, generation=2), (FinalRound(0, SERVER), FinalRound(1, OTHER))))
    (fetch,) = (changed(datagram, tag=make_tag(1, 0)) for datagram in asker.poll(0))
    for holder in (job.server, job.workers[1]):
        holder.poll(job.now)
        for address, answers in ((1234, 0), (WORKER, 1)):
            holder.receive(job.now, sources(fetch, address))
            assert sum(map(len, holder.poll(job.now))) == answers
        assert holder.counters.foreign == 1


def test_the_awaited_event_is_that_of_the_oldest_tensor() -> None:
    job = Job(slots=4, window=2)
    job.workers[0] = worker = WorkerCore(job.workers[0].plan, OPTIONS)
    for name in "uvw":
        for member in job.workers:
            member.submit(ones(3), name=name)
    while worker.rounds_complete < 6:
        job.step()
    sent_ns, again_ns = job.now, job.now + 50 * MS
    worker.poll(sent_ns)
    worker.poll(again_ns)
    assert worker.waiting_for(sent_ns + 4_000_000_000_000_000) == (
        "job 5, rank 0, generation 1: tensor 'v' lacks 4 rounds; waits for round 6 from 0.0.0.99, "
        "sent 2 times in 4000000.000 s"
    )


def test_the_awaited_event_is_one_sentence() -> None:
    worker = WorkerCore(PLAN, OPTIONS)
    who = "job 5, rank 0, generation 1"
    assert worker.waiting_for(0) == f"{who}: waits for nothing"
    worker.submit(ones(2), name="w")
    lacks = f"{who}: tensor 'w' lacks 4 rounds"
    assert worker.waiting_for(0) == f"{lacks}; round 0 was not sent yet"
    worker.poll(0)
    peer = IPv4Address(PLAN.aggregator)
    assert worker.waiting_for(1_500_000_000) == f"{lacks}; waits for round 0 from {peer}, sent 1 times in 1.500 s"
    worker.pause()
    assert worker.waiting_for(0) == f"{who}: paused; waits for a new plan"


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"job": 65_536}, "job", 65_536),
        ({"generation": 0}, "generation", 0),
        ({"workers": 0}, "workers", 0),
        ({"slots": 12}, "slots", 12),
        ({"slots": 0}, "slots", 0),
        ({"slots": 1}, "slots", 1),
        ({"slots": 1 << 17}, "slots", 1 << 17),
        ({"lanes": 257}, "lanes", 257),
        ({"lanes": 258}, "lanes", 258),
        ({"lanes": 3}, "lanes", 3),
        ({"children": (Child(3, 10),)}, "children", 3),
        ({"children": (Child(1, 10),) * 33}, "children", 33),
        ({"key": "9f"}, "key", 2),
    ],
)
def test_a_server_s_plan_that_cannot_be_right_is_refused(change: dict[str, Any], field: str, value: int) -> None:
    with raises(InvalidPlan, place=f"job {change.get('job', 5)}, parameter server: {field}", value=value):
        ParameterServerCore(replace(SERVER_PLAN, **change))


def test_two_children_with_one_bit_are_refused() -> None:
    with raises(InvalidPlan, place="job 5, parameter server: children", value=1):
        ParameterServerCore(replace(SERVER_PLAN, children=(Child(1, 10), Child(1, 11))))


def test_a_round_that_later_ones_overtake_is_sent_again_at_once() -> None:
    worker = WorkerCore(PLAN, OPTIONS)
    worker.submit(ones(20))
    worker.poll(0)

    def result(number: int) -> Datagrams:
        message = np.zeros(1, HEADER)
        message["version_type"] = version_type(MessageType.SCALE_RESULT)
        message["job"], message["tag"], message["slot"] = PLAN.job, make_tag(PLAN.generation, number), number
        message["window"], message["exponent"] = 0xFFFF, 128
        set_checksum(message)
        return Datagrams(np.full(1, SERVER, np.uint32), message.view(np.uint8).reshape(1, -1))

    for number in (0, 1, 3, 4):
        worker.receive(MS, result(number))
    assert tags(worker.poll(MS)) == [8, 9]  # rounds 3 and 4 may have overtaken round 2 in a switch
    worker.receive(MS, result(5))
    again, *_ = worker.poll(MS)
    assert tags([again]) == [2]
    assert headers(again)["flags"].tolist() == [MessageFlag.RETRANSMISSION]
    worker.receive(MS, result(6))
    assert worker.poll(MS) == []  # once is enough: nothing that was sent later has overtaken the copy


def test_a_round_resent_by_another_worker_is_no_sample() -> None:
    job = Job()
    for worker in job.workers:
        worker.submit(ones(600))
    for _ in range(12):
        job.step(after_ns=2 * MS)
    answers, timeouts = job.answer(), []
    for flags in (0, MessageFlag.RETRANSMISSION):
        assert job.workers[0].deadline_ns is not None
        timeouts.append(job.workers[0].deadline_ns - job.now)
        job.deliver(answers, after_ns=MS, flags=flags)
        answers = job.answer()
    assert job.workers[0].deadline_ns is not None
    timeouts.append(job.workers[0].deadline_ns - job.now)
    assert timeouts[0] != timeouts[1] == timeouts[2]


def test_arrivals_may_wait_for_a_quarter_of_a_round_trip() -> None:
    job = Job()
    assert (job.workers[0].batching_delay_ns, job.server.batching_delay_ns) == (0, 0)
    for worker in job.workers:
        worker.submit(ones(20))
    job.step(after_ns=8 * MS)
    job.answer()
    assert (job.workers[0].batching_delay_ns, job.server.batching_delay_ns) == (2 * MS, 0)


def test_arrivals_wait_at_most_for_the_rounds_in_flight() -> None:
    job = Job(slots=64, window=32)
    for worker in job.workers:
        worker.submit(ones(1))
    job.step(after_ns=8 * MS)
    answers = job.answer()
    assert job.workers[0].batching_delay_ns == 8 * MS // 32  # one round, of the 32 that take a round trip
    job.deliver(answers)
    assert job.workers[0].batching_delay_ns == 0  # nothing


def test_rounds_exceed_the_window_while_a_lost_one_is_repaired() -> None:
    """The window bounds what is in the network, the span what is open: a lost round leaves the one, not the other."""
    job = Job(slots=64, window=32)
    for worker in job.workers:
        worker.submit(ones(100))
    job.step(window=4)
    first = job.workers[0].plan.window
    sent: set[int] = set()
    for _ in range(20):
        mine, theirs = job.answer()
        sent.update(number for d in mine for number in tags([d]))
        rows = [np.array(tags([d])) != first for d in mine]
        kept = [Datagrams(d.addresses[row], d.payload[row]) for d, row in zip(mine, rows, strict=True)]
        job.deliver([kept, theirs], window=4)
    assert max(sent) == first + 31  # the span is full
    assert job.workers[0].rounds_complete == first
    assert job.workers[0].counters.retransmitted > 0


class Shrinking(ExplicitWindow):
    size = 16

    def window(self, now_ns: int) -> int:
        return self.size


def test_one_resend_slot_is_for_held_back_rounds() -> None:
    """Rounds 4 to 7 wait for their exponents while the next tensor's first four are sent; then the window is four, and
    all of it would be repeats of those.
    """
    law = Shrinking()
    worker = WorkerCore(
        replace(PLAN, workers=1, slots=64, window=16, members=(WORKER,)), replace(OPTIONS, law=lambda: law)
    )
    server = ParameterServerCore(
        replace(SERVER_PLAN, slots=64, workers=1, children=(Child(1, WORKER),), members=(WORKER,))
    )
    for _ in range(2):
        worker.submit(np.ones(4 * LANES, np.float32))
    sent = worker.poll(0)
    assert tags(sent) == [0, 1, 2, 3, 8, 9, 10, 11]
    for datagrams in sent:
        server.receive(0, sources(datagrams, WORKER))
    law.size = 4
    for datagrams in server.poll(0):
        first = (headers(datagrams)["tag"] & 0xFFFFFF) < 4
        worker.receive(MS, sources(Datagrams(datagrams.addresses[first], datagrams.payload[first]), SERVER))
    assert worker.poll(MS) == []
    again, held_back = worker.poll(50 * MS)
    assert tags([again]) == [8, 9, 10]
    assert headers(again)["flags"].tolist() == [MessageFlag.RETRANSMISSION] * 3
    assert tags([held_back]) == [4]
