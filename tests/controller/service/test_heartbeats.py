"""Heartbeats through the fabric: their owners, and the states that they do and do not keep alive."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable

import grpc
import pytest

from weir.controller.service.heartbeats import HeartbeatReader
from weir.controller.service.limits import Limits
from weir.controller.service.seating import Seating
from weir.tests.support.control_rig import TOPOLOGY, rig
from weir.wire import control_pb2 as pb
from weir.wire.heartbeat import HEARTBEAT_BYTES, Heartbeat

WORKERS = ["h1", "h2"]
AT = TOPOLOGY.host("h4")
H1, H2, H3 = (int(TOPOLOGY.host(name).address) for name in ("h1", "h2", "h3"))


class Wire:
    """A source that the test writes to."""

    def __init__(self) -> None:
        self.address = int(AT.address)
        self._arrived: list[tuple[int, bytes]] = []
        self._reader, self._writer = socket.socketpair()

    def bring(self, address: int, payload: bytes) -> None:
        self._arrived.append((address, payload))
        self._writer.send(b"!")

    def fileno(self) -> int:
        return self._reader.fileno()

    def receive(self) -> Iterable[tuple[int, bytes]]:
        self._reader.recv(4096)
        arrived, self._arrived = self._arrived, []
        return arrived

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


def beat(sequence: int, token: str = "t1", job: int = 7, *, waiting: bool = True) -> bytes:
    return Heartbeat(job, sequence, rounds=sequence, waiting=waiting, sent_ns=sequence).pack(token)


def reader() -> HeartbeatReader:
    seats = {(7, "h1"): "t1", (7, "h2"): "t2"}
    return HeartbeatReader(TOPOLOGY, lambda job, host: seats.get((job, host)))


@pytest.mark.parametrize(
    ("address", "payload"),
    [
        (H2, beat(1)),  # in another host's name
        (H3, beat(1)),  # of a host without a seat
        (0x0A63_6363, beat(1)),  # of no host
        (H1, beat(1, token="t2")),
        (H1, beat(1, job=8)),
        (H1, beat(1)[:-1]),
        (H1, beat(1) + b"\0"),
        (H1, b""),
    ],
)
def test_an_invalid_heartbeat_is_dropped_and_counted(address: int, payload: bytes) -> None:
    heard = reader()
    assert heard.read(address, payload, 0) is None
    assert (heard.dropped, heard.came, heard.sent) == (1, 0, 0)
    assert (heard.damaged, heard.foreign) == ((0, 1) if len(payload) == HEARTBEAT_BYTES else (1, 0))
    damaged = bytearray(beat(1))
    damaged[20] ^= 1
    assert heard.read(H1, bytes(damaged), 0) is None
    assert heard.read(H1, beat(1), 0) == ("h1", Heartbeat(7, 1, 1, waiting=True, sent_ns=1))
    assert (heard.dropped, heard.came, heard.sent) == (2, 1, 1)


def test_copies_and_old_ones_are_ignored_and_gaps_counted() -> None:
    heard = reader()
    last = 2**32 - 2
    taken = [heard.read(H1, beat(sequence), 0) is not None for sequence in (last, last, last + 1, 3, 0, 2**31 + 4, 4)]
    assert taken == [True, False, True, True, False, False, True]
    assert heard.repeated == 3
    assert (heard.sent, heard.came, heard.dropped) == (7, 4, 3)  # 0, 1 and 2 came too late or not at all
    heard.reset(7, "h1")
    assert heard.read(H1, beat(0), 0) is not None, "another process has the seat, and counts from 0"
    assert (heard.sent, heard.came) == (8, 5)


def test_lateness_is_relative_to_the_fastest_for_any_clocks() -> None:
    """The host's clock is an hour ahead, and drifts by 100 ppm for a day: ten million heartbeats of no delay follow."""
    heard = HeartbeatReader(TOPOLOGY, lambda *_: "t1", late_ns=5_000_000)
    hour_ns, ms = 3_600_000_000_000, 1_000_000

    def come(sequence: int, sent_ms: int, took_ms: int, drift_ppm: int = 0) -> tuple[int, int]:
        sent_ns = sent_ms * ms
        told = Heartbeat(7, sequence, 0, waiting=True, sent_ns=sent_ns + hour_ns - sent_ns * drift_ppm // 1_000_000)
        assert heard.read(H1, told.pack("t1"), sent_ns + took_ms * ms) is not None
        seat = heard.seats[7, "h1"]
        assert seat.heard_ns == sent_ns + took_ms * ms
        return round(seat.delay_ns / ms), heard.late

    assert come(1, 0, took_ms=3) == (0, 0)
    assert come(2, 100, took_ms=2) == (0, 0)
    assert come(3, 200, took_ms=7) == (5, 0)
    assert come(4, 300, took_ms=9) == (7, 1)
    assert come(6, 500, took_ms=2) == (0, 1)
    for i in range(1, 100):
        assert come(6 + i, 500 + i * 864_000, took_ms=2, drift_ppm=100) == (0, 1)


async def test_heartbeats_alone_keep_leases_while_streams_are_broken() -> None:
    wire = Wire()
    async with rig(lease_ns=600_000_000, heartbeats=wire) as service:
        registration = await service.register(workers=[*WORKERS, "h3"], policy=pb.CONTINUE)
        job, tokens = registration.job, [seat.token for seat in registration.seats]
        hosts = [await service.joined(registration, seat) for seat in range(3)]
        for host in hosts:
            assert (await host.hear("joined")).heartbeats_to == int(AT.address)
            await host.hear("worker_plan")
            await host.say(resumed=pb.Resumed(generation=1))
        hosts[1].call.cancel()  # its stream breaks, and stays so
        kept = Heartbeat(job, 0, 0, waiting=True, sent_ns=0).pack(tokens[2])
        wire.bring(H3, kept)

        async def live() -> None:
            for sequence in range(1 << 20):
                for address, token in ((H1, tokens[0]), (H2, tokens[1])):
                    wire.bring(address, Heartbeat(job, sequence, 5, waiting=True, sent_ns=0).pack(token))
                wire.bring(H3, kept)  # somebody has recorded it; h3 itself is dead
                await asyncio.sleep(0.05)

        living = asyncio.create_task(live())
        pause = await hosts[0].hear("pause")
        assert pause.generation == 1
        running = service.controller.jobs[job]
        assert "h3 was silent for" in running.gone.get("h3", "") or running.move is not None
        assert not {"h1", "h2"} & running.gone.keys()
        assert service.controller.jobs.counts.leases_expired == 1
        states = {host.host: host for host in (await service.jobs())[0].hosts}
        assert (states["h1"].rounds, states["h2"].rounds) == (5, 5)
        assert (states["h2"].attending, states["h1"].attending) == (False, True)
        assert service.service.heartbeats.dropped > 0
        living.cancel()
        await hosts[0].say(leave=pb.Leave(reason="the test is over"))
        assert (await hosts[0].end())[0] is grpc.StatusCode.OK


async def test_a_process_that_takes_a_seat_again_counts_from_zero() -> None:
    wire = Wire()
    async with rig(heartbeats=wire) as service:
        registration = await service.register(workers=WORKERS)
        for came in (1, 2):
            host = await service.joined(registration, 0)
            await host.hear("joined")
            first = Heartbeat(registration.job, 0, 0, waiting=True, sent_ns=0).pack(registration.seats[0].token)
            wire.bring(H1, first)
            async with asyncio.timeout(10):
                while service.service.heartbeats.came < came:
                    await asyncio.sleep(0.01)
        assert service.service.heartbeats.dropped == 0
        await service.end(registration.job)
        assert service.service.heartbeats.seats == {}, "of jobs that are over nothing is kept"
        assert service.service.heartbeats.came == 2


async def test_a_host_that_comes_back_with_its_plan_counts_on() -> None:
    wire = Wire()
    async with rig(heartbeats=wire) as service:
        registration = await service.register(workers=["h1"])
        first = beat(0, registration.seats[0].token, registration.job)
        for generation in (0, 1):
            host = service.host()
            join = pb.Join(job=registration.job, token=registration.seats[0].token, generation=generation)
            await host.say(join=join)
            await host.hear("joined")
            wire.bring(H1, first)
            async with asyncio.timeout(10):
                while service.service.heartbeats.came + service.service.heartbeats.repeated <= generation:
                    await asyncio.sleep(0.01)
        assert (service.service.heartbeats.came, service.service.heartbeats.repeated) == (1, 1)


async def test_observers_get_each_heartbeat() -> None:
    wire, heard = Wire(), list[Heartbeat]()
    async with rig() as service:
        registration = await service.register(workers=WORKERS)
        seating = Seating(service.controller, service.service._runner, Limits(), wire, heard.append)
        for payload in (beat(1, registration.seats[0].token, registration.job), b"none"):
            wire.bring(H1, payload)
        seating.poll_heartbeats()
    wire.close()
    assert heard == [Heartbeat(registration.job, 1, rounds=1, waiting=True, sent_ns=1)]


async def test_the_receiver_closes_with_the_service() -> None:
    wire = Wire()
    watched = wire.fileno()
    async with rig(heartbeats=wire):
        pass
    assert wire.fileno() == -1
    assert not asyncio.get_running_loop().remove_reader(watched), "nobody looks at it any more"


async def test_a_heartbeat_in_flight_at_a_leave_begins_no_lease() -> None:
    wire = Wire()
    async with rig(lease_ns=500_000_000, heartbeats=wire) as service:
        registration = await service.register(workers=WORKERS, policy=pb.ABORT)
        hosts = [await service.joined(registration, rank) for rank in range(2)]
        tokens = [seat.token for seat in registration.seats]
        for host in hosts:
            await host.hear("worker_plan")
            await host.say(resumed=pb.Resumed(generation=1))
        wire.bring(H1, beat(0, tokens[0], registration.job))
        await hosts[0].say(leave=pb.Leave())
        await hosts[0].call.done_writing()
        await hosts[0].end()
        while "h1" not in service.controller.jobs[registration.job].left:
            await asyncio.sleep(0.01)
        wire.bring(H1, beat(1, tokens[0], registration.job))
        for number in range(15):
            wire.bring(H2, beat(number, tokens[1], registration.job, waiting=False))
            await asyncio.sleep(0.1)
        assert service.controller.jobs.keys() == {registration.job}
        again = await service.joined(registration, 0)  # its program is started anew by mistake
        assert (await again.end())[0] == grpc.StatusCode.FAILED_PRECONDITION
        await hosts[1].say(heartbeat=pb.Heartbeat(rounds=1))
        await asyncio.sleep(0.1)
        assert service.controller.jobs.keys() == {registration.job}
