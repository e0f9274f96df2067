"""The relay by itself, which needs no PyTorch: it ends with its training process, and keeps nothing of old jobs."""

from __future__ import annotations

import gc
import json
import os
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from ipaddress import IPv4Address
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, Final

import pytest

from weir.hosts import HostError, ParameterServerCore
from weir.hosts.drivers.client import Membership
from weir.hosts.drivers.udp import UdpEndpoint
from weir.hosts.torch import relay
from weir.hosts.torch.relay_client import Relay
from weir.wire.control import Child, ServerPlan

ADDRESS: Final = int(IPv4Address("127.0.12.1"))
ANSWER_S: Final = 20.0


def a_seat(control: Path) -> dict[str, Any]:
    """Seat in a job whose controller does not answer, and is awaited as long as a slow start of training may take."""
    return {"control": f"unix:{control}", "job": 7, "token": "secret", "timeout_s": 1800.0, "nic": ""}


def eventually(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + ANSWER_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_it_ends_with_its_process_whatever_its_seats_wait_for(tmp_path: Path) -> None:
    client, told = Relay(), Future[HostError | None]()
    client.open_seat(told.set_result, lambda _: None, **a_seat(tmp_path / "nobody"))
    client.end()
    assert str(told.result(ANSWER_S)) == "the back end was shut down"
    assert client._process.wait(ANSWER_S) == 0


def test_a_seat_that_is_over_is_forgotten_when_the_next_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients in flight are forgotten, too."""
    memberships: list[weakref.ref[Membership]] = []

    class Known(Membership):
        def __init__(self, *words: Any, **options: Any) -> None:
            super().__init__(*words, **options)
            memberships.append(weakref.ref(self))

    monkeypatch.setattr(relay, "Membership", Known)
    ours, its = Pipe()
    serving = threading.Thread(target=relay.serve, args=(its, os.getpid()), daemon=True)
    serving.start()

    def say(**command: Any) -> None:
        ours.send_bytes(json.dumps(command).encode())

    for seat in (1, 2):
        say(do="join", seat=seat, **a_seat(tmp_path / "nobody"))
        say(do="leave", seat=seat, reason="the group was aborted")
        assert ours.poll(ANSWER_S)
        assert json.loads(ours.recv_bytes()) == {"over": seat, "kind": "HostError", "text": "the group was aborted"}
        eventually(lambda: all(thread.name != f"seat {seat}" for thread in threading.enumerate()))  # noqa: B023
    say(do="sum", seat=1, call=9, block=1)  # it crossed the word that the seat is over, and nobody waits for it
    eventually(lambda: gc.collect() >= 0 and memberships[0]() is None)
    say(do="end")
    serving.join(ANSWER_S)
    assert not serving.is_alive()


def test_a_mistake_in_a_seat_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise threads that wait for its sums would wait for ever."""

    class Broken(Membership):
        def __enter__(self) -> Any:
            raise MemoryError("no room for a seat")

    monkeypatch.setattr(relay, "Membership", Broken)
    ours, its = Pipe()
    serving = threading.Thread(target=relay.serve, args=(its, os.getpid()), daemon=True)
    serving.start()
    ours.send_bytes(json.dumps({"do": "join", "seat": 1, **a_seat(tmp_path / "nobody")}).encode())
    assert ours.poll(ANSWER_S)
    assert json.loads(ours.recv_bytes()) == {"over": 1, "kind": "MemoryError", "text": "no room for a seat"}
    ours.close()
    serving.join(ANSWER_S)
    assert not serving.is_alive()


def test_an_address_whose_thread_has_ended_is_had_again() -> None:
    class Broken(ParameterServerCore):
        @property
        def deadline_ns(self) -> int | None:
            raise RuntimeError("no time")

    hosts = relay.SeatSockets()
    try:
        first = hosts.at(ADDRESS, "")
        plan = ServerPlan(job=7, generation=1, slots=16, children=(Child(1, ADDRESS),), workers=1)
        with UdpEndpoint(Broken(plan), first):
            eventually(lambda: first.ended)
            second = hosts.at(ADDRESS, "")
            assert not second.ended
            assert hosts.at(ADDRESS, "") is second
    finally:
        hosts.close()
