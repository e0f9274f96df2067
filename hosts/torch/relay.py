"""Relay: a companion process of each training process that holds its seats in jobs and moves its packets.

`python -m weir.hosts.torch.relay DESCRIPTOR` is started by `relay_client` with one end of a pipe. Commands and answers
are JSON, numbers are in blocks of shared memory::

    ▶ {"do": "block", "block": 3, "size": 65536}                       its descriptor follows
    ▶ {"do": "join", "seat": 1, "control": …, "job": …, "token": …, "timeout_s": …, "nic": …}
    ▶ {"do": "sum", "seat": 1, "call": 8, "block": 3, "count": 9000, "dtype": "float32", "op": "sum", "cuts": […], …}
    ▶ {"do": "report", "seat": 1, "values": {"step": 7, "loss": 0.31, …}}
    ▶ {"do": "balance", "seat": 1, "call": 9, "block": 3, "report": […], "samples": 96, "rule": "analytic", …}
    ▶ {"do": "take_turn", "seat": 1, "call": 10, "device": ""}         answered when the turn begins
    ▶ {"do": "release_turn", "seat": 1}
    ▶ {"do": "leave", "seat": 1, "reason": ""}                         with a reason: the rank is lost at once
    ◀ {"begun": 1, "presents": true}                                   all ranks have joined
    ◀ {"done": 8}    {"failed": 8, "kind": "AllreduceAborted", "text": …}    {"over": 1, "kind": …, "text": …}

Sums and balances have `refused`, the number of this rank's calls that were refused before, which is in their
signatures. A sum's `wanted` are the runs of elements, each as first and end, that this rank needs; only these are in
the block afterwards. The block of an all_gather has `count` words for each rank, one rank's after the other's.

If the training process disappears, all seats are given up at once instead of after their leases. The relay ends when
its seats are left.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import mmap
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Any, Final

import numpy as np

from ..collectives.handle import Handle
from ..drivers import call_reports
from ..drivers.batch_sizes import BatchSizes
from ..drivers.client import Membership
from ..drivers.turn_client import TurnClient
from ..drivers.udp import UdpHost
from ..errors import HostError
from ..numerics.datatypes import data_type
from ..numerics.tensors import Reduced

_BIND_S: Final = 15.0
"""Longest time in seconds that a job about to end may still occupy the host's address."""
_LOOK_S: Final = 0.1
"""Seconds between two checks whether an idle seat has ended."""

_COPIES: Final = ("broadcast", "all_gather")
"""Operations that copy bits."""

SendAnswer = Callable[[dict[str, Any]], None]


class SeatSockets:
    """The sockets that all seats of this process share, by address in the fabric."""

    def __init__(self) -> None:
        self._hosts: dict[int, UdpHost] = {}
        self._lock = threading.Lock()

    def at(self, address: int, nic: str) -> UdpHost:
        """Return the host's, which may have to wait for another process that leaves it. Raises OSError if that does
        not.
        """
        deadline = time.monotonic() + _BIND_S
        with self._lock:
            while address not in self._hosts or self._hosts[address].ended:
                if address in self._hosts:
                    self._hosts.pop(address).close()  # it has the address still
                try:
                    self._hosts[address] = UdpHost(address, nic=nic)
                except OSError as error:
                    if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                        raise
                    time.sleep(_LOOK_S)
            return self._hosts[address]

    def close(self) -> None:
        for host in self._hosts.values():
            host.close()


class RelaySeat:
    """One rank of one job: sums are started in the order of their commands, and answered as they come."""

    def __init__(
        self, command: dict[str, Any], hosts: SeatSockets, blocks: dict[int, mmap.mmap], send: SendAnswer
    ) -> None:
        self._number: int = command["seat"]
        self._timeout_s: float = command["timeout_s"]
        self._membership = Membership(
            command["control"],
            command["job"],
            command["token"],
            timeout_s=self._timeout_s,
            host=partial(hosts.at, nic=command["nic"]),
            nic=command["nic"],
        )
        self._control: tuple[str, int, str] = command["control"], command["job"], command["token"]
        self._sizes: dict[tuple[int, str], BatchSizes] = {}
        """Batch sizes by the step's samples and the rule."""
        self._turns: TurnClient | None = None
        self._clients = contextlib.ExitStack()
        self._blocks = blocks
        self._send = send
        self._commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._started: queue.SimpleQueue[tuple[dict[str, Any], Handle] | None] = queue.SimpleQueue()
        self._reason: str | None = None
        """Reason for leaving the seat; "" for a regular leave, None while it is held."""
        self._is_to_leave = False
        self._thread = threading.Thread(target=self._run, name=f"seat {self._number}")
        self._thread.start()

    @property
    def over(self) -> bool:
        """True if the seat was left, or has failed."""
        return not self._thread.is_alive()

    def put(self, command: dict[str, Any]) -> None:
        """Queue a sum, a question, or a leave; a leave with a reason goes before all others. Turns wait for nothing
        else.
        """
        if command["do"] in ("take_turn", "release_turn"):
            self._turn(command)
            return
        if command["do"] == "leave":
            self._is_to_leave = True
            if command["reason"]:
                self._reason = command["reason"]
                self._membership.abort(command["reason"])
        self._commands.put(command)

    def _turn(self, command: dict[str, Any]) -> None:
        """Ask for a turn, or end one."""
        try:
            if self._turns is None and command["do"] == "take_turn":
                self._turns = TurnClient(*self._control, device=command["device"])
                self._clients.callback(self._turns.close)
        except HostError as error:
            self._failed(command, error)
            return
        if self._turns is None:
            return
        if command["do"] == "release_turn":
            self._turns.release()
            return

        def told(error: HostError | None) -> None:
            if error is None:
                self._send({"done": command["call"]})
            else:
                self._failed(command, error)

        self._turns.ask(told)

    def forsake(self, reason: str) -> None:
        """Leave at once unless a leave was requested: the training process is gone."""
        if not self._is_to_leave:
            self.put({"do": "leave", "reason": reason})

    def join(self) -> None:
        """Wait until it has been left."""
        self._thread.join()

    def _run(self) -> None:
        try:
            with self._membership, self._clients:
                self._send({"begun": self._number, "presents": self._membership.worker.core.plan.presents})
                finisher = threading.Thread(target=self._finish, name=f"sums of seat {self._number}")
                finisher.start()
                try:
                    self._start()
                finally:
                    self._started.put(None)
                    finisher.join()
                if self._reason:
                    raise HostError(self._reason)
        except Exception as error:  # noqa: BLE001 (whoever waits is to have it)
            self._send({"over": self._number, "kind": type(error).__name__, "text": str(error)})

    def _start(self) -> None:
        """Start sums until it is said to leave. Raises what the job is over by."""
        while True:
            try:
                command = self._commands.get(timeout=_LOOK_S)
            except queue.Empty:
                self._membership.worker.endpoint.check()
                continue
            if command["do"] == "leave":
                self._reason = command["reason"]
                return
            if command["do"] == "report":
                phases_ns = (*command["phases_ns"], 0) if self._turns is None else self._turns.phases()
                measured = dict(zip(("compute_ns", "exposed_ns", "waiting_ns"), phases_ns, strict=True))
                self._membership.communicator.report(**{**measured, **command["values"]})
                continue
            self._membership.communicator.refused = command["refused"]
            if command["do"] == "balance":
                self._balance(command)
                continue
            if command["op"] not in ("sum", "mean", *_COPIES):
                self._combine(command)
                continue
            try:
                handle = self._begin(command)
            except HostError as error:
                self._failed(command, error)
                self._membership.worker.endpoint.check()
                continue
            self._started.put((command, handle))

    def _begin(self, command: dict[str, Any]) -> Handle:
        """Start a sum, whose numbers are delivered as soon as they are complete, or a copy, whose `wait` returns
        them.
        """
        communicator, numbers = self._membership.communicator, self._numbers(command)
        if command["op"] == "broadcast":
            return communicator.broadcast_async(numbers, command["root"], name=command["name"])
        if command["op"] == "all_gather":
            return communicator.all_gather_async(numbers[communicator.rank], name=command["name"])
        return communicator.reduced_async(
            numbers,
            partial(self._deliver, command),
            wanted=command["wanted"],
            op=command["op"],
            name=command["name"],
            dtype=command["dtype"],
            nonfinite=command["nonfinite"],
            cuts=command["cuts"],
        )

    def _combine(self, command: dict[str, Any]) -> None:
        """Make a call of several exchanges. The sums behind it wait, as they do at all ranks."""
        numbers = self._numbers(command)
        try:
            handle = self._membership.communicator.allreduce_async(
                numbers,
                op=command["op"],
                name=command["name"],
                dtype=command["dtype"],
                nonfinite=command["nonfinite"],
                cuts=command["cuts"],
            )
            numbers[:] = handle.wait(command["timeout_s"])
        except HostError as error:
            self._failed(command, error)
            self._membership.worker.endpoint.check()
        else:
            self._send({"done": command["call"]})

    def _balance(self, command: dict[str, Any]) -> None:
        """Write all ranks' batch sizes of the next step into the block, as int32 by rank, or zeros if there are none
        now.

        Sums behind it in the queue wait: no rank has a sum between the parts of this one.
        """
        communicator = self._membership.communicator
        wanted = command["samples"], command["rule"]
        if wanted not in self._sizes:
            sizes = BatchSizes(communicator, *self._control, wanted[0], rule=wanted[1])
            self._sizes[wanted] = self._clients.enter_context(sizes)
        try:
            found = self._sizes[wanted].next_step(command["report"], command["timeout_s"])
        except HostError as error:
            self._failed(command, error)
            self._membership.worker.endpoint.check()
            return
        np.frombuffer(self._blocks[command["block"]], np.int32, communicator.size)[:] = found or 0
        self._send({"done": command["call"]})

    def _finish(self) -> None:
        while (started := self._started.get()) is not None:
            command, handle = started
            try:
                result = handle.wait(command["timeout_s"])
                if command["op"] in _COPIES:
                    self._numbers(command)[:] = result
            except Exception as error:  # noqa: BLE001 (whoever waits is to have it)
                self._failed(command, error)
            else:
                self._send({"done": command["call"]})

    def _deliver(self, command: dict[str, Any], reduced: Reduced) -> None:
        """Put the wanted runs of the sum where the worker's own numbers were."""
        values = reduced.values
        if command["op"] == "mean":
            reduced.check_weights()
        elif command["rescale"]:
            values = reduced.as_of_all(self._membership.communicator.size)
        numbers, wanted = self._numbers(command), command["wanted"]
        for first, end in [(0, len(numbers))] if wanted is None else wanted:
            numbers[first:end] = values[first:end]

    def _numbers(self, command: dict[str, Any]) -> Any:
        """Return a call's numbers in its block: (count,), or (ranks, count) of an all_gather."""
        storage = data_type(command["dtype"]).storage
        block, count = self._blocks[command["block"]], command["count"]
        if command["op"] != "all_gather":
            return np.frombuffer(block, storage, count)
        ranks = self._membership.communicator.size
        return np.frombuffer(block, storage, ranks * count).reshape(ranks, count)

    def _failed(self, command: dict[str, Any], error: Exception) -> None:
        self._send({"failed": command["call"], "kind": type(error).__name__, "text": str(error)})


def serve(pipe: Connection, parent: int) -> None:
    """Do what comes through the pipe until its other end is closed, or the process `parent` is gone."""
    lock = threading.Lock()

    def send(answer: dict[str, Any]) -> None:
        with lock, contextlib.suppress(OSError):  # nobody listens any more
            pipe.send_bytes(json.dumps(answer).encode())

    hosts = SeatSockets()
    blocks: dict[int, mmap.mmap] = {}
    seats: dict[int, RelaySeat] = {}
    why = f"its training process {parent} has ended without leaving"
    while True:
        try:
            command = json.loads(pipe.recv_bytes())
            match command["do"]:
                case "block":
                    descriptor = recv_handle(pipe)
                    blocks[command["block"]] = mmap.mmap(descriptor, command["size"])
                    os.close(descriptor)
                case "join":
                    seats = {number: seat for number, seat in seats.items() if not seat.over}
                    seats[command["seat"]] = RelaySeat(command, hosts, blocks, send)
                case "end":
                    for seat in seats.values():
                        seat.forsake(why)
                    break
                case _ if command["seat"] in seats:
                    seats[command["seat"]].put(command)
        except (EOFError, OSError):
            for seat in seats.values():
                seat.put({"do": "leave", "reason": why})
            break
    for seat in seats.values():
        seat.join()
    hosts.close()


def main() -> None:
    """Run the relay; its arguments are the descriptor of the pipe and the id of the training process."""
    logging.getLogger(call_reports.__name__).setLevel(logging.ERROR)  # the training process says who is waited for
    serve(Connection(int(sys.argv[1])), int(sys.argv[2]))


if __name__ == "__main__":
    main()
