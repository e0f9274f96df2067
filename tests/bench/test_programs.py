"""The benchmarks' own programs do what their figures claim to be of."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether

from weir.bench import lookups
from weir.bench.driver import OUT_PORT
from weir.bench.traffic import small_packets
from weir.emulator.entries import ActionCall, Lpm, TableEntry
from weir.emulator.port import PortConfig
from weir.emulator.switch import Switch
from weir.tests.paths import ROOT

PROGRAMS = ROOT / "bench" / "programs"


def running(name: str) -> Switch:
    switch = Switch(1, ports=range(1, 4), port=PortConfig(queue_packets=None))
    switch.load((PROGRAMS / f"{name}.json").read_bytes())
    return switch


def table(switch: Switch, name: str) -> Any:
    assert switch.state is not None
    return switch.state.tables[name]


def test_the_router_routes_the_drivers_packets_and_drops_others() -> None:
    switch = running("l3")
    call = ActionCall("RouterIngress.forward", (OUT_PORT, 1, 2))
    table(switch, "RouterIngress.routes").insert(TableEntry((Lpm(0x0A000200, 24),), call))
    (frames,) = small_packets().values()
    assert frames.shape[1] == 64
    frame = frames[0].tobytes()
    ((port, sent),) = switch.forward(frame, 1)
    expected = Ether(frame)
    expected.src, expected.dst = "00:00:00:00:00:01", "00:00:00:00:00:02"
    expected[IP].ttl -= 1
    del expected[IP].chksum
    assert (port, sent) == (OUT_PORT, bytes(expected))
    assert len(switch.process(frames, None, 1).lengths) == len(frames)

    def changed(**fields: Any) -> bytes:
        packet = Ether(frame)
        del packet[IP].chksum
        for name, value in fields.items():
            setattr(packet[IP], name, value)
        return bytes(packet)

    assert len(switch.forward(changed(ttl=2), 1)) == 1
    for other in (changed(ttl=1), changed(dst="10.9.9.9"), changed(chksum=1), frame[:12] + b"\x86\xdd" + frame[14:]):
        assert switch.forward(other, 1) == []


@pytest.mark.parametrize(
    ("name", "masks"),
    [("hosts", [2**32 - 1]), ("routes", [2**32 - 2**16, 2**32 - 2**8]), ("rules", [0xFFFF00FF, 0x00FFFFFF])],
)
def test_every_lookup_is_answered_by_an_entry_of_its_own_table(name: str, masks: list[int]) -> None:
    switch = running("lookups")
    each = np.resize(np.array(masks), 1000)
    values = lookups._distinct_values(each, np.random.default_rng(1))
    assert len(set(zip(values.tolist(), each.tolist(), strict=True))) == 1000
    for index, (value, mask) in enumerate(zip(values.tolist(), each.tolist(), strict=True)):
        table(switch, f"LookupsIngress.{name}").insert(lookups._entry(name, value, mask, 1 + index))
    for other, udp_port in {**lookups._UDP_PORT, "none": lookups._WITHOUT_LOOKUP}.items():
        frames = lookups._frames(values, udp_port)
        answered = len(switch.process(frames, None, 1).lengths)
        assert answered == (1000 if other in (name, "none") else 0), other


@pytest.mark.p4c
@pytest.mark.skipif(shutil.which("p4c-bm2-ss") is None, reason="p4c-bm2-ss is not on PATH")
@pytest.mark.parametrize("name", ["l3", "lookups"])
def test_compiled_programs_match_their_sources(name: str, tmp_path: Path) -> None:
    made, info = tmp_path / f"{name}.json", tmp_path / f"{name}.p4info.txtpb"
    command: list[str | Path] = ["p4c-bm2-ss", "--std", "p4-16", "--arch", "v1model", "-o", made]
    command += ["--p4runtime-files", info, f"{name}.p4"]
    subprocess.run(command, cwd=PROGRAMS, check=True)
    kept = PROGRAMS / f"{name}.json"
    assert json.loads(made.read_text()) == json.loads(kept.read_text())
    assert info.read_text() == kept.with_name(f"{name}.p4info.txtpb").read_text()
