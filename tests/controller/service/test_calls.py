"""Workers that wait for calls of others: the service asks all for their calls, and tells all who is waited for."""

from __future__ import annotations

from contextlib import suppress

import grpc

from weir.tests.controller.service.test_departures import started
from weir.tests.support.control_rig import rig
from weir.wire import control_pb2 as pb
from weir.wire.control import CallRecord, Calls
from weir.wire.control_messages import calls_message

CALLS = (CallRecord("allreduce", "s1"), CallRecord("allreduce", "s2"))


async def test_workers_report_calls_and_learn_the_awaited_rank() -> None:
    async with rig() as service:
        _, hosts = await started(service, pb.ABORT)
        await hosts[2].say(calls=calls_message(Calls(0, CALLS, 1), asks=True).calls)
        for host, calls in zip(hosts[:2], (Calls(0, CALLS, 1), Calls(0, CALLS[:1], None)), strict=True):
            await host.hear("ask_calls")
            await host.say(calls=calls_message(calls, asks=False).calls)
        for host in hosts:
            report = await host.hear("call_report")
            assert report.text == "waiting for rank 1 (h2): it has not called allreduce 's2'; ranks 0, 2 have"
            assert report.speaker == 2


async def test_an_unanswering_or_departed_worker_delays_no_comparison() -> None:
    async with rig() as service:
        _, hosts = await started(service, pb.ABORT)
        await hosts[0].say(leave=pb.Leave(calls=2))
        await hosts[1].hear("departures")
        await hosts[1].say(calls=calls_message(Calls(0, CALLS, 1), asks=True).calls)
        report = await hosts[1].hear("call_report")
        assert report.text == "waiting for rank 2 (h3): it does not answer; rank 1 (h2) has called allreduce 's2'"


async def test_a_jobs_first_failure_is_kept_with_rank_and_reason() -> None:
    async with rig() as service:
        registration, hosts = await started(service, pb.ABORT)
        assert service.service.first_failure(registration.job) == ""
        await hosts[1].say(leave=pb.Leave(reason="KeyError: 'x'"))
        await hosts[0].hear("abort")
        with suppress(grpc.aio.AioRpcError):  # the abort may have ended the stream by now
            await hosts[0].say(leave=pb.Leave(reason="AllreduceAborted: …"))
        assert service.service.first_failure(registration.job) == "rank 1 (h2) failed first: KeyError: 'x'"
        assert service.service.first_failure(registration.job + 1) == ""
