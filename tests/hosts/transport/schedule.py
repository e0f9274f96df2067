"""Random schedules of the transport: calls, faults and restarts drawn from a seed, and the required outcomes."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from weir.hosts.errors import PeerLost, PeerRestarted
from weir.hosts.transport.core import Published, Request, TransportCore
from weir.hosts.transport.messages import Value
from weir.hosts.transport.options import TransportOptions
from weir.hosts.transport.pending import Pending
from weir.tests.hosts.transport.network import MS, US, Faults, Network

PAYLOAD_BYTES: Final = 256
TYPES: Final = ("u1", "<f4", ">i8", "?", "<c8", "<f2")
PATIENCE_NS: Final = 20_000 * MS


@dataclass
class Seen:
    """Counts of events that schedules met."""

    counts: Counter[str] = field(default_factory=Counter)

    def note(self, network: Network) -> None:
        for core in network.cores:
            self.counts.update(core.counters.drops)
            self.counts["sent"] += core.counters.sent


def drawn_options(rng: random.Random) -> TransportOptions:
    return TransportOptions(
        window=rng.choice([1, 2, 3, 8, 33]),
        payload_bytes=PAYLOAD_BYTES,
        first_timeout_ns=rng.choice([200 * US, 2 * MS]),
        min_timeout_ns=rng.choice([100 * US, 1 * MS]),
        patience_ns=PATIENCE_NS,
        inbox_bytes=rng.choice([1, 700, 1 << 20]),
    )


def drawn_faults(rng: random.Random) -> Faults:
    if rng.random() < 0.1:
        return Faults()
    return Faults(
        loss=rng.choice([0, 0.02, 0.2]),
        duplication=rng.choice([0, 0, 0.1, 0.5]),
        corruption=rng.choice([0, 0, 0.05]),
        forged=rng.choice([0, 0, 0.1]),
        replayed=rng.choice([0, 0, 0.1]),
        jitter_ns=rng.choice([0, 0, 10 * US, 200 * US]),
    )


def drawn_value(rng: random.Random, tag: int) -> Value:
    """A unique value, except for empty ones."""
    size = rng.choice([0, 1, 10, 56, 200, 1000, 3000]) if rng.random() < 0.5 else rng.randrange(400)
    data = np.random.default_rng(tag).integers(0, 256, size, np.uint8)
    if rng.random() < 0.3:
        return bytes(data)
    dtype = np.dtype(rng.choice(TYPES))
    count = size // dtype.itemsize
    array = (data[: count * dtype.itemsize] & 1).view(dtype) if dtype.kind == "b" else data[: count * dtype.itemsize]
    shape = rng.choice([(count,), (1, count), (count, 1, 1)])
    return array.view(dtype).reshape(shape) if count else np.zeros((3, 0), dtype)


def is_same(one: object, other: object) -> bool:
    if isinstance(one, bytes) or isinstance(other, bytes):
        return one == other and type(one) is type(other)
    assert isinstance(one, np.ndarray)
    assert isinstance(other, np.ndarray)
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


class Play:
    """One schedule: hosts that send, ask, publish and pull at random, while the network is as bad as was drawn."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.network = Network(seed, rng.choice([2, 2, 3]), faults=drawn_faults(rng), options=drawn_options(rng))
        self.cores = self.network.cores
        self.hosts = range(len(self.cores))
        self.sent: dict[tuple[int, int], list[tuple[Value, Pending[None]]]] = {}
        """Sent values by source and peer, in the order of the calls."""
        self.received: dict[tuple[int, int], list[Pending[Value]]] = {}
        self.asked: list[tuple[Value, Pending[Value]]] = []
        self.takers: list[tuple[TransportCore, Pending[Request]]] = []
        self.pulled: list[tuple[int, Pending[Published]]] = []
        self.versions: dict[int, list[Value]] = {host: [] for host in self.hosts}
        self.left = rng.randint(1, 8)
        """Acts that are still to come."""
        for host in self.hosts:
            self.publish(host)
        for _ in range(self.left):
            self.network.at(rng.randint(0, 2 * MS), self.act)

    def act(self) -> None:
        self.left -= 1
        rng = self.rng
        source, peer = rng.sample(self.hosts, 2)
        value, kind = drawn_value(rng, rng.getrandbits(32)), rng.random()
        if kind < 0.7:
            self.sent.setdefault((source, peer), []).append((value, self.cores[source].send(peer, value)))
            later_ns = rng.choice([0, 0, 3 * MS])
            self.left += 1
            self.network.at(self.network.now_ns + later_ns, lambda: self.receive(source, peer))
        elif kind < 0.8:
            self.asked.append((value, self.cores[source].request(peer, "q", value)))
            self.takers.append((self.cores[peer], self.cores[peer].receive_request()))
        elif kind < 0.9:
            self.pulled.append((peer, self.cores[source].pull(peer, "state")))
        else:
            self.publish(source)

    def receive(self, source: int, peer: int) -> None:
        self.left -= 1
        self.received.setdefault((source, peer), []).append(self.cores[peer].receive_message(source))

    def publish(self, host: int) -> None:
        self.versions[host].append(drawn_value(self.rng, self.rng.getrandbits(32)))
        self.cores[host].publish("state", self.versions[host][-1])

    def reply(self) -> None:
        """Every host returns what it was asked with."""
        for core, taker in [each for each in self.takers if each[1].done]:
            self.takers.remove((core, taker))
            core.reply(taker.result(), taker.result().value)

    def is_over(self) -> bool:
        self.reply()
        calls = [call for values in self.sent.values() for _, call in values]
        calls_in = [call for values in self.received.values() for call in values]
        others = [call for _, call in self.asked], [call for _, call in self.pulled]
        return not self.left and all(call.done for part in (calls, calls_in, *others) for call in part)

    def check(self) -> None:
        for pair, values in self.sent.items():
            got = [call.result() for call in self.received[pair]]
            assert len(got) == len(values)
            assert all(is_same(one, value) for one, (value, _) in zip(got, values, strict=True)), (
                f"{pair}: other values"
            )
        for value, call in self.asked:
            assert is_same(call.result(), value)
        for owner, pull in self.pulled:
            found = pull.result()
            assert is_same(found.value, self.versions[owner][found.version - 1])
        faults = self.network.faults
        if not faults.jitter_ns and not faults.loss and not faults.corruption:
            assert self.network.most_in_network <= self.cores[0].options.window
        if faults == Faults():
            assert not any(core.counters.retransmitted for core in self.cores)


def play(seed: int, seen: Seen) -> None:
    """Every message is delivered once and whole, in order; every question is answered, every pull is one version."""
    schedule = Play(seed)
    schedule.network.run(schedule.is_over)
    schedule.check()
    seen.note(schedule.network)


def play_restarts(seed: int, seen: Seen) -> None:
    """Restart a host now and then, and check every life's received messages.

    They are a contiguous run of one sender's messages, in order; messages reported as delivered are there; and calls
    that cannot end raise PeerLost.
    """
    rng = random.Random(seed)
    network = Network(seed, 2, faults=drawn_faults(rng), options=drawn_options(rng))
    calls: list[tuple[int, int, int, Pending[None]]] = []  # sender, its life, number in it, call
    got: dict[tuple[int, int], list[bytes]] = {(0, 0): [], (1, 0): []}  # by receiver and its life
    lives, numbers = [0, 0], [0, 0]

    def send(sender: int) -> None:
        number = numbers[sender] = numbers[sender] + 1
        value = f"{sender} {lives[sender]} {number} ".encode() + b"." * rng.choice([0, 10, 900])
        calls.append((sender, lives[sender], number, network.cores[sender].send(1 - sender, value)))

    def restart(host: int) -> None:
        lives[host] += 1
        got[host, lives[host]] = []
        network.restart(host)
        seen.counts["restarts"] += 1

    def drain() -> None:
        for host, core in enumerate(network.cores):
            while True:
                call = core.receive_message(1 - host)
                if not call.done:
                    core.cancel(call)
                    break
                try:
                    value = call.result()
                except PeerRestarted:
                    seen.counts["told of a restart"] += 1
                    continue
                assert isinstance(value, bytes)
                got[host, lives[host]].append(value)

    for _ in range(rng.randint(2, 10)):
        action = send if rng.random() < 0.8 else restart
        host = rng.randrange(2)
        network.at(rng.randint(0, 3 * MS), partial(action, host))
    network.at(4 * MS, lambda: None)

    def is_over() -> bool:
        drain()
        alive = [call for sender, life, _, call in calls if life == lives[sender]]
        return network.now_ns >= 4 * MS and all(call.done for call in alive)

    network.run(is_over)
    drain()
    everything = [value.split()[:3] for values in got.values() for value in values]
    assert len({tuple(each) for each in everything}) == len(everything), "a message was delivered twice"
    for (host, _), values in got.items():
        order = [tuple(int(word) for word in value.split()[:3])[1:] for value in values]
        assert order == sorted(order), f"host {host}: {order}"
    delivered = {tuple(int(word) for word in each) for each in everything}
    for sender, life, number, call in calls:
        if not call.done:
            continue
        try:
            call.result()
        except PeerLost:
            continue
        if lives[1 - sender] == 0:
            assert (sender, life, number) in delivered
    seen.note(network)
