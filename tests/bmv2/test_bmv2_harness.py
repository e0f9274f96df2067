"""bmv2 itself under the harness: properties that a test may rely on before it compares anything."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from weir.emulator.entries import Replica
from weir.tests.bmv2.fabric_node import PORTS, WORKERS, entities, frame
from weir.tests.bmv2.harness import Bmv2, Compiled, Output, needs_bmv2, needs_root
from weir.tests.bmv2.p4runtime_client import Refused, multicast_group
from weir.tests.paths import ROOT

pytestmark = [pytest.mark.bmv2, needs_bmv2]

BUILD = ROOT / "p4src" / "build"


@pytest.fixture(scope="module")
def fabric() -> Compiled:
    return Compiled.read(BUILD / "fabric.json", BUILD / "fabric.p4info.txtpb")


@needs_root
def test_interfaces_and_dataplane_service_give_the_same_frames(fabric: Compiled) -> None:
    packets = [
        (
            1 + i % 3,
            frame(b"payload %d" % i, WORKERS[i % 3], WORKERS[(i + i // 3) % 3], source_port=i, destination_port=9),
        )
        for i in range(24)
    ]
    found: list[list[Output]] = []
    for veth in (False, True):
        with Bmv2(fabric, PORTS, veth=veth) as switch:
            assert switch.client.encoder is not None
            switch.client.insert(*entities(switch.client.encoder))
            if veth:
                found.append(sorted(output for packet in packets for output in switch.exchange([packet], expected=1)))
            else:
                found.append(sorted(output for outputs in switch.inject(packets) for output in outputs))
    assert len(found[0]) == len(packets)
    assert found[0] == found[1]


@needs_root
def test_nothing_is_left_behind(fabric: Compiled) -> None:
    home = os.readlink("/proc/self/ns/net")
    with Bmv2(fabric, PORTS, veth=True) as switch:
        pid = switch.pid
        assert os.readlink(f"/proc/{pid}/ns/net") != home
        assert os.readlink("/proc/thread-self/ns/net") == home
        namespace = os.readlink(f"/proc/{pid}/ns/net")
    assert not Path(f"/proc/{pid}").exists()
    assert namespace not in _namespaces()


def test_a_refused_entry_says_why(fabric: Compiled) -> None:
    with Bmv2(fabric, PORTS) as switch, pytest.raises(Refused, match=r"(?s)group.*multicast_group_id: 1"):
        switch.client.insert(multicast_group(1, [Replica(1)]), multicast_group(1, [Replica(2)]))


def _namespaces() -> set[str]:
    """Network namespaces of all processes that still run."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        with contextlib.suppress(OSError):  # the process has ended meanwhile
            found.add(os.readlink(path))
    return found


def test_a_build_that_dies_is_said_and_the_test_is_skipped(fabric: Compiled) -> None:
    with Bmv2(fabric, PORTS) as switch:
        os.kill(switch.pid, signal.SIGSEGV)
        with pytest.raises(pytest.skip.Exception, match=r"bmv2 dies .*SIGSEGV"):
            switch.inject([(1, bytes(60))])
