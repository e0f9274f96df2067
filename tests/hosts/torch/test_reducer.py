"""One group's sums alone: a failure reaches all waiting threads, and nothing is delivered after it."""

from __future__ import annotations

import mmap
import threading
from datetime import timedelta
from importlib.util import find_spec
from typing import Any, Final
from unittest.mock import Mock

import pytest

from weir.hosts import AllreduceAborted, ControlClient, HostError

if find_spec("torch") is None:
    pytest.skip("PyTorch is not installed (pip install 'weir-fabric[torch]')", allow_module_level=True)

import torch
import torch.distributed as dist

from weir.hosts.torch import process_group
from weir.hosts.torch.reducer import Sum, WeirReducer
from weir.hosts.torch.relay_client import SharedBlock
from weir.hosts.torch.rendezvous import Rendezvous
from weir.hosts.torch.settings import Settings
from weir.hosts.torch.work import FabricWork, completers

ANSWER_S: Final = 20.0


class OneSeat:
    """A relay in which sums are complete when the test says so."""

    def __init__(self) -> None:
        self.left: list[str] = []
        self.sums: list[Any] = []
        self.asked = threading.Event()

    def acquire_block(self, size: int) -> SharedBlock:
        return SharedBlock(1, mmap.mmap(-1, size), size)

    def release_block(self, block: SharedBlock) -> None:
        pass

    def open_seat(self, *_: Any, **__: Any) -> int:
        return 1

    def leave(self, seat: int, reason: str = "") -> None:
        self.left.append(reason)

    def sum(self, seat: int, block: SharedBlock, told: Any, **_: Any) -> None:
        self.sums.append(told)
        self.asked.set()


@pytest.fixture
def relay(monkeypatch: pytest.MonkeyPatch) -> OneSeat:
    relay = OneSeat()
    monkeypatch.setattr("weir.hosts.torch.reducer.relay", lambda: relay)
    monkeypatch.setattr(Rendezvous, "seat", lambda *_: (7, "secret"))
    monkeypatch.setenv("WEIR_HOST", "h1")
    return relay


@pytest.fixture
def sums(relay: OneSeat) -> WeirReducer:
    settings = Settings.read()
    return WeirReducer(
        Rendezvous(dist.HashStore(), 0, 1, settings), settings, lambda _: None, lambda: None, lambda: None
    )


def wanted(deliver: Any, tensor: torch.Tensor) -> Sum:
    return Sum(FabricWork([tensor], "a sum"), [tensor], "sum", (), False, deliver, ANSWER_S, None)


def test_a_failure_during_a_sum_keeps_the_tensors_numbers(relay: OneSeat, sums: WeirReducer) -> None:
    tensor = torch.zeros(4)
    call = wanted(tensor.copy_, tensor)
    sums.start(call)
    assert relay.asked.wait(ANSWER_S)
    sums.fail(AllreduceAborted("the process group was aborted"), "aborted")
    with pytest.raises(AllreduceAborted, match="the process group was aborted"):
        call.work.wait(timedelta(seconds=ANSWER_S))
    tensor.fill_(7.0)  # the script goes on
    (told,) = relay.sums
    told(None)
    completers.close()  # all that was told has been done
    assert tensor.tolist() == [7.0] * 4


def test_an_abort_during_delivery_leaves_the_sum(relay: OneSeat, sums: WeirReducer) -> None:
    """Its numbers are in place when a waiting thread continues."""
    tensor, begun, go_on = torch.zeros(4), threading.Event(), threading.Event()

    def deliver(_: torch.Tensor) -> None:
        begun.set()
        assert go_on.wait(ANSWER_S)
        tensor.fill_(1.0)

    call = wanted(deliver, tensor)
    sums.start(call)
    assert relay.asked.wait(ANSWER_S)
    relay.sums[0](None)
    assert begun.wait(ANSWER_S)
    sums.fail(AllreduceAborted("the process group was aborted"), "aborted")
    assert not call.work.is_completed()
    go_on.set()
    assert call.work.wait(timedelta(seconds=ANSWER_S))
    assert tensor.tolist() == [1.0] * 4


def test_the_end_of_a_job_without_a_seat_here_is_not_awaited(
    sums: WeirReducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default group of a mesh whose rows alone have summed: nobody tells this rank."""
    ended: list[int] = []
    monkeypatch.setattr(ControlClient, "end", lambda _, job, reason: ended.append(job))
    monkeypatch.setattr(sums._ended, "wait", Mock(side_effect=AssertionError("waits")))
    sums.place = "unix:/nowhere", 7, "secret"
    sums.end("out of time")
    assert ended == [7]
    assert isinstance(sums.error, AllreduceAborted)


def test_a_group_that_was_left_takes_no_more_sums(sums: WeirReducer) -> None:
    sums.close()
    with pytest.raises(AllreduceAborted, match="process group was destroyed before"):
        sums.start(wanted(lambda _: None, torch.zeros(4)))


def test_a_reconfigured_group_leaves_its_seat_after_any_failure(relay: OneSeat) -> None:
    """A call over Gloo fails before the sums do, where a connection to a lost rank breaks."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    group = process_group.unconfigured(timedelta(seconds=ANSWER_S))
    try:
        group.configure(f"127.0.0.1:{store.port}/first", "replica", 0, 1)
        call = wanted(lambda _: None, torch.zeros(4))
        group._sums.start(call)
        assert relay.asked.wait(ANSWER_S)
        group._reason(RuntimeError("Connection closed by peer"))
        assert isinstance(group.errored(), RuntimeError)
        group.configure(f"127.0.0.1:{store.port}/second", "replica", 0, 1)
        with pytest.raises(HostError, match="the process group is configured anew"):
            call.work.wait(timedelta(seconds=ANSWER_S))
        assert relay.left == [""]
        assert group.errored() is None
    finally:
        group.shutdown()
