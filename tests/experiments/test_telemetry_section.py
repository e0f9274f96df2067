"""The telemetry section: its meaning in a fabric, and errors with file, key, value and remedy."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from weir.controller.int_config.settings import TELLING_DROPS, EventThresholds, IntConfig, WatchedFlows, WatchMode
from weir.experiments.config.telemetry import TelemetryConfig
from weir.experiments.errors import ExperimentError
from weir.topologies.generators import leaf_spine
from weir.wire.int_md import DomainInstruction, Instruction
from weir.wire.int_shim import Presence

TOPOLOGY = leaf_spine(2, 1, 2)


def watching(folder: Path, data: Any) -> IntConfig:
    file = folder / "telemetry.yaml"
    file.write_text(data if isinstance(data, str) else yaml.safe_dump(data))
    config = TelemetryConfig.load(file)
    assert TelemetryConfig.model_validate(config.model_dump()) == config, "as a record keeps it"
    return config.watching(TOPOLOGY, str(file))


def test_a_whole_section(tmp_path: Path) -> None:
    text = """
        collector: h4
        mark: probe-marker
        port: 9000
        dscp: 48
        mtu: 9000
        watch:
          - {mode: md, source: h1, destination: 10.0.2.0/24, protocol: tcp, destination_port: 0x1000/0xf000, hops: 3}
          - {mode: mx, source: s1, source_port: 22341, every: 10, collect: [node, slots, slots]}
          - {}
        changes: {depth: 20, latency: 50us, period: 1s}
        queues: {depth_step: 4, latency_step: 1ms, classes: [0, 7]}
        drops: telling
        """
    assert watching(tmp_path, text) == IntConfig(
        (
            WatchedFlows(
                WatchMode.MD,
                IPv4Network("10.0.1.1"),
                IPv4Network("10.0.2.0/24"),
                6,
                destination_port=(0x1000, 0xF000),
                hops=3,
            ),
            WatchedFlows(
                WatchMode.MX,
                IPv4Network("10.255.0.1"),
                source_port=(22341, 0xFFFF),
                every=10,
                instructions=Instruction.NODE_ID,
                domain_instructions=DomainInstruction.FREE_SLOTS,
            ),
            WatchedFlows(),
        ),
        Presence.PROBE_MARKER,
        "h4",
        9000,
        48,
        9000,
        EventThresholds(depth_threshold=20, latency_threshold_us=50, period_us=1_000_000),
        EventThresholds(depth_step=4, latency_step_us=1000),
        (0, 7),
        TELLING_DROPS,
    )


def test_only_changes_are_reported_by_default(tmp_path: Path) -> None:
    assert watching(tmp_path, {"watch": [{}]}).flow_steps == EventThresholds(
        depth_step=8, latency_step_us=100, period_us=100_000
    )
    assert watching(tmp_path, "{watch: [{}], changes: off}").flow_steps is None


@pytest.mark.parametrize(
    "text",
    [
        "{watch: [{protocol: tcp, source_port: 9}, {protocol: 17, source_port: 0x1/0x1}], changes: off}",
        "{queues: {depth_step: 4, latency_step: 1ms}, drops: telling, changes: {period: 1s}}",
        "{drops: [no_route], queues: off, mark: dscp}",
    ],
)
def test_the_json_schema_takes_what_is_read(text: str, tmp_path: Path) -> None:
    watching(tmp_path, text)
    jsonschema.validate(yaml.safe_load(text), TelemetryConfig.model_json_schema())


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({}, "nothing is watched; name flows under watch, or queues, or drops"),
        ([], "telemetry is a YAML mapping with watch, queues or drops; this is a list"),
        ({"watch": [{"source": "h44"}]}, 'watch.0: source: "h44" is no node of leaf-spine, did you mean "h4"?'),
        ({"watch": [{"source": "10.9.0.1"}]}, "watch.0.source: 10.9.0.1/32 has no host or switch of leaf-spine in it"),
        ({"watch": [{}, {"collect": ["nod"]}]}, 'watch.1.collect: nodes do not collect "nod", did you mean "node"?'),
        ({"watch": [{"modus": "md"}]}, 'watch.0: unknown key "modus", did you mean "mode"? There are mode'),
        ({"watch": [{"protocol": "sctp"}]}, "watch.0.protocol: is no protocol; write icmp, tcp, udp or a number"),
        ({"watch": [{"source_port": "x"}]}, 'watch.0: source_port: "x" is no port; write it like 9, or 0x1000/0xf000'),
        ({"changes": {"period": "fast"}}, 'changes.period: delay "fast" is not a delay; write it like 10us'),
        ({"changes": {}, "drops": "all"}, "changes: no threshold, step or period"),
        ({"queues": {"classes": [0]}}, "queues: no threshold, step or period"),
        ({"drops": "gone"}, "drops: is no list of reasons; write telling, all, or some of truncated"),
        ({"drops": ["gone"]}, "drop reason gone is unknown; there are truncated"),
        ({"drops": "all", "collector": "s1"}, 'collector "s1" is no host of leaf-spine; supported: h1, h2, h3, h4'),
        ("watch: [", "is not YAML"),
    ],
    ids=str,
)
def test_errors_name_file_key_value_and_remedy(tmp_path: Path, data: Any, why: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        watching(tmp_path, data)
    assert str(caught.value).startswith(f"{tmp_path}/telemetry.yaml: ")
    assert why in str(caught.value)
