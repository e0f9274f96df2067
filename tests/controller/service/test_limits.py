"""Limits on the harm a client can do to others: hosts that die or hang before a job begins, unwanted jobs, quotas,
queues, and endless messages.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from weir.controller.errors import ControllerError
from weir.controller.service.limits import MESSAGE_BYTES, Limits, client_of
from weir.controller.service.streams import MAX_UNSENT, HostStream
from weir.errors.texts import LONGEST
from weir.tests.support.control_rig import certificates, refusal, rig
from weir.tests.support.errors import raises
from weir.wire import control_pb2 as pb
from weir.wire.control_channel import Tls
from weir.wire.control_messages import ATTEND, END_JOB, LIST_JOBS, REGISTER
from weir.wire.errors import WireError

WORKERS = ["h1", "h2"]
_MANY_LEASES_S = 40.0
"""Time of many leases of one second each, also on a busy machine."""

JOINS_AND_HANGS = """
import sys, threading
import grpc
from weir.wire import control_pb2 as pb
from weir.wire.control_messages import ATTEND
address, job, token = sys.argv[1:]
attend = grpc.insecure_channel(address).stream_stream(
    ATTEND, request_serializer=pb.FromHost.SerializeToString, response_deserializer=pb.ToHost.FromString)
def says():
    yield pb.FromHost(join=pb.Join(job=int(job), token=token))
    threading.Event().wait()
for message in attend(says()):
    print(message.WhichOneof("content"), flush=True)
"""


async def test_a_worker_that_died_before_the_others_came_is_not_there() -> None:
    async with rig() as service:
        registration = await service.register(workers=WORKERS)
        dead = await service.joined(registration, 0)
        await dead.hear("joined")
        dead.call.cancel()
        while (await service.jobs())[0].hosts[0].attending:
            await asyncio.sleep(0.01)
        other = await service.joined(registration, 1)
        assert (await other.hear("waiting")).reason == "waits for rank 0 (h1) to join"
        (state,) = await service.jobs()
        assert state.waiting_for == "waits for rank 0 (h1) to join"
        again = await service.joined(registration, 0)
        for host in (again, other):
            assert (await host.hear("worker_plan")).generation == 1


async def test_a_joining_host_is_not_told_to_wait_for_itself() -> None:
    async with rig() as service:
        registration = await service.register(workers=[*WORKERS, "h3"])
        first = await service.joined(registration, 0)
        assert (await first.hear("waiting")).reason == "waits for rank 1 (h2), rank 2 (h3) to join"
        second = await service.joined(registration, 1)
        for host in (first, second):
            assert (await host.hear("waiting")).reason == "waits for rank 2 (h3) to join"
        second.call.cancel()
        assert (await first.hear("waiting")).reason == "waits for rank 1 (h2), rank 2 (h3) to join"


async def test_a_worker_that_hangs_before_the_others_come_is_not_there() -> None:
    """Its connection stands, for its kernel keeps it; but it answers no ping."""
    async with rig(lease_ns=1_000_000_000) as service:
        registration = await service.register(workers=WORKERS)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", JOINS_AND_HANGS),
            *(service.service.address, str(registration.job), registration.seats[0].token),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            assert await process.stdout.readline() == b"joined\n"
            os.kill(process.pid, signal.SIGSTOP)
            async with asyncio.timeout(_MANY_LEASES_S):  # gRPC by itself waits longer for a ping's answer
                while (await service.jobs())[0].hosts[0].attending:
                    await asyncio.sleep(0.05)
            await service.joined(registration, 1)
            assert (await service.jobs())[0].waiting_for == "waits for rank 0 (h1) to join"
        finally:
            process.kill()
            await process.wait()


async def test_a_job_that_nobody_comes_to_ends(caplog: pytest.LogCaptureFixture) -> None:
    async with rig(limits=Limits(unattended_ns=1)) as service:
        registration = await service.register(workers=WORKERS)
        while await service.jobs():
            await asyncio.sleep(0.05)
        assert service.controller.jobs == {}
        late = await service.joined(registration, 0)
        assert (await late.hear("ended")).reason.startswith("no host has attended it for 1e-09 s, and it has not begun")
        assert f"job {registration.job} is ended" in caplog.text


async def test_an_attended_or_started_job_does_not_expire() -> None:
    async with rig(limits=Limits(unattended_ns=1)) as service:
        alone = await service.register(workers=["h4"], job=1)
        waits = await service.register(workers=WORKERS, job=2)
        begun, waiting = await service.joined(alone, 0), await service.joined(waits, 0)
        await begun.hear("worker_plan")
        begun.call.cancel()
        assert (await waiting.hear("waiting")).reason  # the announcements look after jobs as well
        await asyncio.sleep(1.2)
        assert {state.job for state in await service.jobs()} == {1, 2}


async def test_jobs_are_as_many_as_one_client_and_all_may_have() -> None:
    async with rig(limits=Limits(jobs=5, jobs_of_client=3)) as service:
        for job in (1, 2, 3):
            await service.register(workers=["h1"], job=job)
        code, details = await refusal(service.register(workers=["h1"], job=4))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert details == "3 jobs of ipv4:127.0.0.1 run, and one client may have 3; end one (weir jobs end)"
        await service.end(1)
        await service.register(workers=["h1"], job=4)
        clients = ("another", "ipv4:127.0.0.2", "unix")
        for seats, client in zip(service.service._seating.jobs.values(), clients, strict=True):
            seats.client = client
        for job in (5, 6):
            await service.register(workers=["h1"], job=job)
        code, details = await refusal(service.register(workers=["h1"], job=7))
        assert (code, details) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "5 jobs run, and no more than 5 may; end one (weir jobs end)",
        )


@pytest.mark.parametrize(
    ("peer", "client"),
    [
        ("ipv4:10.0.0.1:4711", "ipv4:10.0.0.1"),
        ("ipv6:[::1]:80", "ipv6:[::1]"),
        ("unix:", "unix"),
        ("unix:/x:1", "unix"),
    ],
)
def test_connections_are_attributed_to_their_client(peer: str, client: str) -> None:
    assert client_of(peer) == client


async def test_streams_are_as_many_as_may_be() -> None:
    async with rig(limits=Limits(streams=1, half_open=1)) as service:
        registration = await service.register(workers=WORKERS)
        silent = service.host()
        await silent.call.wait_for_connection()
        while not service.service._half_open:
            await asyncio.sleep(0.01)
        code, details = await (await service.joined(registration, 0)).end()
        assert (code, "1 streams have not said Join yet" in details) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)
        silent.call.cancel()
        while service.service._half_open:
            await asyncio.sleep(0.01)
        first = await service.joined(registration, 0)
        await first.hear("joined")
        code, details = await (await service.joined(registration, 1)).end()
        assert (code, "1 hosts attend, and no more than 1 may" in details) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            True,
        )
        first.call.cancel()
        while service.service._attending:
            await asyncio.sleep(0.01)
        await (await service.joined(registration, 1)).hear("joined")


async def test_a_silent_connection_is_closed() -> None:
    """Not a word of gRPC, or a stream without a Join."""
    async with rig(limits=Limits(first_words_s=0.5)) as service:
        host, _, port = service.service.address.rpartition(":")
        connections = [await asyncio.open_connection(host, int(port)) for _ in range(20)]
        stream = service.host()
        async with asyncio.timeout(_MANY_LEASES_S):
            for number, (_, writer) in enumerate(connections):
                writer.write(b"PRI * HTTP/2.0"[:number])
            for reader, writer in connections:
                while await reader.read(1024):
                    pass  # the server's own settings
                writer.close()
            assert (await stream.end())[0] is grpc.StatusCode.INVALID_ARGUMENT
        registration = await service.register(workers=WORKERS)
        assert await (await service.joined(registration, 0)).hear("joined")


async def test_messages_for_a_host_that_reads_none_are_bounded() -> None:
    stream = HostStream()
    for again in range(10_000):
        stream.send(pb.ToHost(pause=pb.Pause(job=1, generation=1)))
        stream.send(pb.ToHost(waiting=pb.Waiting(reason=f"since {again} s")))
        stream.send(pb.ToHost(resume=pb.Resume()))
    stream.end()
    said = [message async for message in stream.messages()]
    assert sorted(message.WhichOneof("content") or "" for message in said) == ["pause", "resume", "waiting"]
    assert pb.ToHost(waiting=pb.Waiting(reason="since 9999 s")) in said
    stream = HostStream()
    for generation in range(MAX_UNSENT + 1):
        stream.send(pb.ToHost(pause=pb.Pause(job=1, generation=generation)))
    assert [message async for message in stream.messages()] == []
    assert stream.failure == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        f"this host has not taken {MAX_UNSENT} messages; join again",
    )


async def test_bytes_that_are_no_message_are_an_invalid_argument(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    async with rig() as service:
        registration = await service.register(workers=WORKERS)
        for method, kind in ((REGISTER, "RegisterRequest"), (LIST_JOBS, "ListJobsRequest"), (END_JOB, "EndJobRequest")):
            garbage: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = service.channel.unary_unary(method)
            assert await refusal(garbage(b"\xff\xff\xff")) == (
                grpc.StatusCode.INVALID_ARGUMENT,
                f"3 bytes are no {kind}",
            )
        join = pb.FromHost(join=pb.Join(job=registration.job, token=registration.seats[0].token)).SerializeToString()
        for before in ([], [join]):
            stream: grpc.aio.StreamStreamCall[bytes, bytes] = service.channel.stream_stream(ATTEND)()
            for message in [*before, b"\xff\xff\xff"]:
                await stream.write(message)
            async with asyncio.timeout(60):
                with suppress(grpc.aio.AioRpcError):
                    while await stream.read() is not grpc.aio.EOF:
                        pass
                assert await stream.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "3 bytes are no FromHost" in (await stream.details() or "")
        assert "Traceback" not in caplog.text + capfd.readouterr().err


async def test_texts_of_hosts_are_one_short_printable_line(caplog: pytest.LogCaptureFixture) -> None:
    """Reasons and differing calls, as they are kept, told to other hosts and clients, and logged."""
    hostile = "\x1b[2J\r\n12:00 forged\u202e[/x]"
    shown = r"\x1b[2J\r\n12:00 forged\u202e[/x]"
    caplog.set_level(0)
    async with rig() as service:
        registration = await service.register(workers=WORKERS)
        hosts = [await service.joined(registration, rank) for rank in range(2)]
        for rank, host in enumerate(hosts):
            await host.hear("worker_plan")
            await host.say(resumed=pb.Resumed(generation=1))
            calls = [pb.Call(collective=hostile, name=f"{rank}{hostile}", details=[hostile])]
            await host.say(calls=pb.Calls(first=0, calls=calls, awaited=0, asks=True))
        report = (await hosts[0].hear("call_report")).text
        assert report.isprintable()
        assert shown in report
        await hosts[1].say(leave=pb.Leave(reason=hostile + "x" * 500_000))
        while not (gone := service.controller.jobs[registration.job].gone):
            await asyncio.sleep(0.01)
        kept = f"{shown}{'x' * (LONGEST - len(hostile))}… ({500_000 + len(hostile)} characters)"
        assert gone == {"h2": f"rank 1 (h2) failed: {kept}"}
        code, _ = await refusal(service.end(registration.job, "y" * 2 * MESSAGE_BYTES))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        _, details = await refusal(service.register(workers=[hostile]))
        assert details.isprintable()
        await service.end(registration.job, hostile)
        assert (await hosts[0].hear("ended")).reason == shown
    assert all(record.getMessage().isprintable() for record in caplog.records if record.name.startswith("weir"))


async def test_pem_files_that_do_not_belong_together_are_named(tmp_path: Path) -> None:
    certificate, other = certificates(tmp_path, "one"), certificates(tmp_path, "other")
    mixed = Tls(certificate.certificate, other.key, certificate.authority)
    with raises(ControllerError, place="control service", value=str(other.key)):
        async with rig(tls=mixed):
            pass
    with raises(WireError, value=str(other.key)):
        mixed.channel_credentials()
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    with raises(WireError, place=str(broken)):
        Tls(certificate.certificate, certificate.key, broken).server_credentials()
    with raises(WireError, place=f"{broken}, {certificate.key}"):
        Tls(broken, certificate.key, certificate.authority).server_credentials()
