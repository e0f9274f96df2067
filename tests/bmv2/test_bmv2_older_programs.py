"""Older programs, shortened programs and packets to absent ports: the emulated switch against bmv2."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from finsy.proto import p4i

from weir.emulator.entries import CloneSession, Replica
from weir.tests.bmv2.differential import Pair
from weir.tests.bmv2.harness import Compiled, needs_bmv2
from weir.tests.bmv2.p4runtime_client import clone_session, multicast_group
from weir.tests.emulator.bmv2.test_older_programs import read
from weir.tests.paths import PROGRAMS

pytestmark = [pytest.mark.bmv2, needs_bmv2]

PORTS = range(1, 6)
ABSENT = 400
Program = dict[str, Any]


@contextmanager
def both(program: Compiled) -> Iterator[Pair]:
    """Both switches with groups and sessions, some of whose copies go to an absent port."""
    with Pair(program, PORTS) as pair:
        pair.insert(
            multicast_group(3, [Replica(1, 1), Replica(2, 2)]),
            multicast_group(9, [Replica(ABSENT, 1)]),
            multicast_group(10, [Replica(3, 1), Replica(ABSENT, 2)]),
            clone_session(5, CloneSession((Replica(3),))),
            clone_session(6, CloneSession((Replica(ABSENT),))),
            clone_session(0x7FFF, CloneSession((Replica(1),))),
        )
        yield pair


def older(name: str, change: Callable[[Program], object] = lambda _: None) -> Compiled:
    program = read(name)
    change(program)
    return Compiled(json.dumps(program).encode(), p4i.P4Info(pkg_info=p4i.PkgInfo(arch="v1model")))


def without(*names: str) -> Callable[[Program], object]:
    return lambda program: [program.pop(name, None) for name in names]


def without_action_ids(program: Program) -> None:
    for pipeline in program["pipelines"]:
        for table in pipeline["tables"]:
            table.pop("action_ids", None)


def without_multicast_group(program: Program) -> None:
    field = ["standard_metadata", "mcast_grp"]
    for header in program["header_types"]:
        header["fields"] = [each for each in header["fields"] if [header["name"], each[0]] != field]
    program["field_aliases"] = [alias for alias in program["field_aliases"] if alias[1] != field]


def with_an_empty_field(program: Program) -> None:
    (kind,) = (header for header in program["header_types"] if header["name"] == "h_t")
    kind["fields"].insert(1, ["nothing", 0, False])


def clone_request(session: int) -> tuple[int, bytes]:
    """A packet of the program `clones`."""
    return 1, bytes(14) + session.to_bytes(4, "big") + b"payload"


def test_packets_to_an_absent_port_run_egress() -> None:
    random_bytes = random.Random(1)
    program = Compiled.read(PROGRAMS / "absent_port.json", PROGRAMS / "absent_port.p4info.txtpb")
    with both(program) as pair:
        packets = [
            (1 + number % 4, bytes(12) + b"\x08\x00" + bytes([number % 8, 0]) + random_bytes.randbytes(number % 40))
            for number in range(200)
        ]
        assert sum(map(len, pair.compare(packets))) > 20
        counts = [client.counter("E.seen") for client in pair.clients]
        assert counts[0] == counts[1]


def test_groups_in_intrinsic_metadata_multicast() -> None:
    with both(older("multicast")) as pair:
        out = pair.compare([(5, bytes(12) + group.to_bytes(2, "big") + bytes(9)) for group in (0, 3, 9, 10, 7)] * 3)
        assert [len(each) for each in out[:5]] == [1, 2, 0, 1, 0]


def test_validity_bit_set_by_the_parser_adds_no_header() -> None:
    with both(older("validity")) as pair:
        assert all(len(each) == 1 for each in pair.compare([(1, bytes(length)) for length in range(16, 40)]))


@pytest.mark.parametrize(
    "change",
    [
        lambda _: None,
        without("errors"),
        without("__meta__"),
        without("errors", "__meta__", "register_arrays", "counter_arrays", "meter_arrays", "enums"),
        without_action_ids,
        with_an_empty_field,
    ],
    ids=["whole", "errors", "meta", "lists", "action_ids", "empty_field"],
)
def test_clone_sessions_use_their_lower_15_bits(
    change: Callable[[Program], object],
) -> None:
    sessions = (5, 6, 0x8005, 0x10005, 0x18006, 0xFFFF, 0x7FFF, 0x80000005, 0, 0x8000, 1)
    with both(older("clones", change)) as pair:
        pair.compare([clone_request(session) for session in sessions])


def test_a_program_without_a_multicast_group_forwards() -> None:
    with both(older("clones", without_multicast_group)) as pair:
        assert all(pair.compare([clone_request(session) for session in (1, 2, 5)]))
