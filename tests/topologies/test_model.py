"""Valid fabrics, and the errors of invalid ones."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import networkx
import pytest

from weir.tests.paths import ROOT
from weir.tests.support.errors import raises
from weir.topologies import (
    Endpoint,
    Host,
    Link,
    Switch,
    Topology,
    TopologyError,
    dump_topology,
    fat_tree,
    jellyfish,
    leaf_spine,
    load_topology,
)
from weir.topologies.units import format_delay, format_memory, format_rate, parse_delay, parse_memory, parse_rate

SHIPPED = ROOT / "topologies"

TWO_RACKS = """
name: two-racks
defaults: {rate: 1Gbit}
hosts:
  h1:
  h2: {address: 10.0.7.9}
  h3: {mac: "02:00:00:00:00:33"}
switches:
  s1: {slots: 512, tier: leaf}
  s2: {device_id: 300}
links:
  - {ends: [h1, s1-p1]}
  - {ends: [h2, s1-p2], rate: 2.5Gbit, delay: 1.5ms, loss: 0.25, queue: 9, mtu: 9000}
  - {ends: [s2-p1, h3]}
  - {ends: [s1-p3, s2-p2], rate: 200Mbit, delay: 10us}
"""


def load(tmp_path: Path, text: str) -> Topology:
    path = tmp_path / "fabric.yaml"
    path.write_text(text)
    return load_topology(path)


def test_a_file_becomes_the_fabric_it_spells_out(tmp_path: Path) -> None:
    fabric = load(tmp_path, TWO_RACKS)
    assert fabric == Topology(
        "two-racks",
        (
            Host("h1", IPv4Address("10.0.0.1"), "02:00:0a:00:00:01"),
            Host("h2", IPv4Address("10.0.7.9"), "02:00:0a:00:07:09"),
            Host("h3", IPv4Address("10.0.0.2"), "02:00:00:00:00:33"),
        ),
        (Switch("s1", 1, 512, "leaf"), Switch("s2", 300, 1024)),
        (
            Link(Endpoint("h1", 0), Endpoint("s1", 1), 10**9, 2_000, 0.0, 128),
            Link(Endpoint("h2", 0), Endpoint("s1", 2), 2_500_000_000, 1_500_000, 0.25, 9, 9000),
            Link(Endpoint("s2", 1), Endpoint("h3", 0), 10**9, 2_000, 0.0, 128),
            Link(Endpoint("s1", 3), Endpoint("s2", 2), 200_000_000, 10_000, 0.0, 128),
        ),
    )
    assert (str(fabric.switch("s2").address), fabric.switch("s2").mac) == ("10.255.1.44", "02:00:0a:ff:01:2c")


def test_dump_and_load_give_an_equal_fabric(tmp_path: Path) -> None:
    for fabric in (
        load(tmp_path, TWO_RACKS),
        leaf_spine(3, 2, 2, uplink_rate_bps=400_000_000),
        fat_tree(4, loss=0.01, mtu=9000),
    ):
        dump_topology(fabric, tmp_path / "dumped.yaml")
        assert load_topology(tmp_path / "dumped.yaml") == fabric


def test_shipped_fabrics() -> None:
    assert load_topology(SHIPPED / "leaf_spine.yaml") == leaf_spine(4, 2, 3, rate_bps=10**9, delay_ns=2_000)
    assert load_topology(SHIPPED / "fat_tree.yaml") == fat_tree(4, rate_bps=10**9, delay_ns=2_000)


def test_ports_peers_and_neighbours() -> None:
    fabric = leaf_spine(2, 2, 2)
    assert fabric.neighbours("s2") == {
        1: Endpoint("h3", 0),
        2: Endpoint("h4", 0),
        3: Endpoint("s3", 2),
        4: Endpoint("s4", 2),
    }
    assert fabric.peer(Endpoint("s4", 2)) == Endpoint("s2", 4)
    assert fabric.attached_switch("h3") == fabric.switch("s2")
    assert [str(host.address) for host in fabric.hosts] == ["10.0.1.1", "10.0.1.2", "10.0.2.1", "10.0.2.2"]
    assert len(fabric.directed_links) == 2 * len(fabric.links) == 16
    with raises(TopologyError, place="leaf-spine", value="h1"):
        fabric.switch("h1")
    with raises(TopologyError, place="leaf-spine", value="s1-p9"):
        fabric.peer(Endpoint("s1", 9))


def test_graph_is_the_fabric_with_parallel_links_on_one_edge() -> None:
    parallel = Link(Endpoint("s1", 9), Endpoint("s3", 9))
    fabric = leaf_spine(2, 1, 1)
    fabric = replace(fabric, links=(*fabric.links, parallel))
    assert networkx.is_connected(fabric.graph)
    assert set(fabric.graph.nodes) == {"h1", "h2", "s1", "s2", "s3"}
    assert len(fabric.graph.edges["s1", "s3"]["links"]) == 2
    assert fabric.graph.nodes["s1"]["node"] is fabric.switch("s1")


@pytest.mark.parametrize("k", [2, 4, 6])
def test_fat_tree_has_the_right_measures(k: int) -> None:
    fabric = fat_tree(k)
    tiers = [switch.tier for switch in fabric.switches]
    assert (len(fabric.hosts), len(fabric.links)) == (k**3 // 4, 3 * k**3 // 4)
    assert {tier: tiers.count(tier) for tier in tiers} == {
        "edge": k * k // 2,
        "aggregation": k * k // 2,
        "core": k * k // 4,
    }
    assert all(len(fabric.neighbours(switch.name)) == k for switch in fabric.switches)
    hops = networkx.shortest_path_length(fabric.graph, "h1", fabric.hosts[-1].name)
    assert hops == 6


@pytest.mark.parametrize(("switches", "degree"), [(10, 3), (9, 4), (10, 6), (60, 54), (12, 11)])
def test_a_jellyfish_is_random_and_regular(switches: int, degree: int) -> None:
    """Dense graphs, in which nearly all pairs have a link, are included."""
    fabrics = [jellyfish(switches, degree, 1, seed=seed) for seed in (1, 1, 2)]
    for fabric in fabrics:
        assert networkx.is_connected(fabric.graph)
        assert {len(fabric.neighbours(switch.name)) for switch in fabric.switches} == {degree + 1}
    assert fabrics[0] == fabrics[1]
    assert (fabrics[0] == fabrics[2]) == (degree == switches - 1)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rate: 200Mbit", "rate: fast", 'link s1-p3: rate "fast" is not a rate; write it like 200Mbit'),
        ("rate: 200Mbit", "rate: 200", "link s1-p3: rate 200 is not a rate; write it like 200Mbit"),
        ("rate: 200Mbit", "rate: 0bit", 'link s1-p3: rate "0bit" is not a rate; write it like 200Mbit'),
        ("delay: 10us", "delay: 3601s", "link s1-p3: delay_ns 3601000000000 is more than an hour, 3600000000000"),
        ("delay: 10us", "delay: -1us", 'link s1-p3: delay "-1us" is not a delay; write it like 10us'),
        ("rate: 1Gbit", "rate: 1GB", 'defaults: rate "1GB" is not a rate; write it like 200Mbit'),
        ("loss: 0.25", "loss: 1.5", "link s1-p2: loss: 1.5 is not right; write less than 1"),
        ("queue: 9", "queue: 0", "link s1-p2: queue: 0 is not right; write 1 or more"),
        ("mtu: 9000", "mtu: 900", "link s1-p2: mtu: 900 is not right; write 1500 or more"),
        ("queue: 9", "queue: 9999999", "link s1-p2: queue 9999999 is not in 1…524287 packets"),
        (
            "queue: 9",
            "quee: 9",
            'unknown key "quee", did you mean "queue"? There are ends, rate, delay, loss, queue, mtu',
        ),
        ("queue: 9", "speed: 9", 'link s1-p2: unknown key "speed"; there are ends, rate, delay, loss, queue'),
        ("{address: 10.0.7.9}", "{ip: 10.0.7.9}", 'host h2: unknown key "ip"; there are address, mac'),
        ("10.0.7.9", "10.0.0.300", 'host h2: address "10.0.0.300" is not an IPv4 address; write it like 10.0.1.1'),
        (
            "10.0.7.9",
            "192.168.0.1",
            "host h2: address 192.168.0.1 is not a host's in 10.0.0.0/12; write it like 10.0.1.1",
        ),
        ("02:00:00:00:00:33", "03:00:00:00:00:33", 'host h3: mac "03:00:00:00:00:33" is not a unicast MAC'),
        ("02:00:00:00:00:33", "02:00:0a:00:00:01", "mac 02:00:0a:00:00:01 is both h1's and h3's"),
        ("device_id: 300", "device_id: 1", "address 10.255.0.1 is both s1's and s2's"),
        ("device_id: 300", "device_id: 0", "switch s2: device_id 0 is not in 1…65534"),
        ("slots: 512", "slots: -1", "switch s1: slots: -1 is not right; write 0 or more"),
        ("slots: 512", "slots: 1025", "switch s1: slots 1025 is more than bmv2 has; its program has 1024"),
        ("slots: 512", "target: tofino9", 'switch s1: target "tofino9" is no kind of switch; supported: bmv2, bmv2-32'),
        ("  h2: {address", "  h1: {address", '"h1" is given twice; give every key and node its own name'),
        ("  s1:", "  h1:", 'two nodes are called "h1"; give every node its own name'),
        ("  h1:", "  host-number-1:", 'host "host-number-1": a name is a letter, then at most 9 letters, digits or _'),
        ("s1-p2", "s1-p1", "link s1-p1: port s1-p1 is taken already; give every link its own port"),
        ("s1-p2", "s1-p0", "port s1-p0: a switch's ports are 1…509"),
        ("s1-p2", "s1-p510", "port s1-p510: a switch's ports are 1…509"),
        ("[h1, s1-p1]", "[h1-p1, s1-p1]", "port h1-p1: a host has one port, 0; write h1"),
        ("s1-p2", "s9-p2", 'link s9-p2: no node "s9"; there are h1, h2, h3, s1, s2'),
        (
            "s1-p2",
            "s1:2",
            'link [h2, s1:2]: ends: endpoint "s1:2" is not a port; write it like s1-p3, or h1 for a host',
        ),
        ("[s1-p3, s2-p2]", "[s1-p3, s1-p4]", "link s1-p3: links s1 to itself; a link joins two nodes"),
        ("[s1-p3, s2-p2]", "[s1-p3]", "link s1-p3: ends ['s1-p3'] is not two ports; write them like [h1, s1-p1]"),
        ("  - {ends: [h1, s1-p1]}\n", "", "host h1: has no link; every node needs one"),
        (
            "  - {ends: [s1-p3, s2-p2], rate: 200Mbit, delay: 10us}\n",
            "",
            "the fabric is in 2 pieces; h3, s2 cannot reach",
        ),
        ("name: two-racks\n", "", 'key "name" is missing'),
        ("name: two-racks\n", "[", "is not YAML"),
    ],
)
def test_impossible_fabrics_are_refused_with_place_and_remedy(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in TWO_RACKS
    with pytest.raises(TopologyError) as error:
        load(tmp_path, TWO_RACKS.replace(old, new, 1))
    assert str(error.value).startswith(f"{tmp_path / 'fabric.yaml'}: ")
    assert message in str(error.value)


def test_inconsistencies_are_reported_together_with_lines(tmp_path: Path) -> None:
    text = TWO_RACKS.replace("s1-p2", "s9-p2").replace("[h1, s1-p1]", "[h1-p1, s1-p1]").replace("device_id: 300", "")
    text = text.replace("02:00:00:00:00:33", "02:00:0a:00:00:01")
    with pytest.raises(TopologyError) as error:
        load(tmp_path, text)
    lines = text.splitlines()
    at = {key: next(n for n, line in enumerate(lines, 1) if key in line) for key in ("h3: ", "h1-p1", "s9-p2")}
    assert str(error.value).splitlines() == [
        f"{tmp_path / 'fabric.yaml'}: 3 things are wrong:",
        f"  line {at['h3: ']}: mac 02:00:0a:00:00:01 is both h1's and h3's; give every node its own",
        f"  line {at['h1-p1']}: link h1-p1: port h1-p1: a host has one port, 0; write h1",
        f'  line {at["s9-p2"]}: link s9-p2: no node "s9"; there are h1, h2, h3, s1, s2',
    ]


def test_a_switch_named_alone_takes_its_next_free_port(tmp_path: Path) -> None:
    bare = TWO_RACKS.replace("h1, s1-p1", "h1, s1").replace("s2-p1, h3", "s2, h3").replace("s1-p3, s2-p2", "s1, s2")
    assert load(tmp_path, bare) == load(tmp_path, TWO_RACKS)


def test_links_of_fast_ports_on_a_chip_are_numbered_by_channels(tmp_path: Path) -> None:
    bare = CHIP.replace("s1-p4", "s1").replace("s1-p8", "s1-p1") + "  - {ends: [s1, h3], rate: 10Gbit}\n"
    bare = bare.replace("h2: {}", "h2: {}, h3: {}").replace("50Gbit", "25Gbit")
    fabric = load(tmp_path, bare)
    assert [str(fabric.peer(Endpoint(host, 0))) for host in ("h1", "h2", "h3")] == ["s1-p4", "s1-p1", "s1-p2"]


def test_a_switch_without_a_free_port_is_named_at_its_link(tmp_path: Path) -> None:
    names = [f"h{i}" for i in range(1, 511)]
    links = "".join(f"  - {{ends: [{name}, s1]}}\n" for name in names)
    text = f"name: x\nhosts: {{{', '.join(f'{name}: ' for name in names)}}}\nswitches: {{s1: }}\nlinks:\n{links}"
    with pytest.raises(TopologyError, match="s1 has no free port") as error:
        load(tmp_path, text)
    assert f"line {len(text.splitlines())}:" in str(error.value)


def test_problems_of_unnumbered_links_name_both_ends_as_written(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"link \[h1, s1\]: "):
        load(tmp_path, TWO_RACKS.replace("{ends: [h1, s1-p1]}", "{ends: [h1, s1], speed: 9}"))
    with pytest.raises(TopologyError, match='link s9: no node "s9"'):
        load(tmp_path, TWO_RACKS.replace("h1, s1-p1", "h1, s9"))


def test_every_node_without_a_link_is_named(tmp_path: Path) -> None:
    text = "name: x\nhosts: {h1: , h2: , h3: }\nswitches: {s1: }\nlinks:\n  - {ends: [h2, s1-p1]}\n"
    with pytest.raises(TopologyError) as error:
        load(tmp_path, text)
    assert str(error.value).splitlines()[1:] == [
        f"  line 2: host {name}: has no link; every node needs one" for name in ("h1", "h3")
    ]


CHIP = """
name: chip
hosts: {h1: {}, h2: {}}
switches: {s1: {target: like-tofino}}
links:
  - {ends: [h1, s1-p4], rate: 100Gbit}
  - {ends: [h2, s1-p8], rate: 50Gbit}
"""


@pytest.mark.parametrize(
    ("port", "rate", "message"),
    [
        ("s1-p8", "50Gbit", None),
        ("s1-p191", "25Gbit", None),
        ("s1-p447", "10Gbit", None),
        ("s1-p448", "10Gbit", "port s1-p448: a switch's ports are 1…447"),
        (
            "s1-p64",
            "10Gbit",
            "port s1-p64: is no port of a link: like-tofino has 64 for each of its 4 pipes, from 0, 128",
        ),
        ("s1-p9", "50Gbit", "port s1-p9: 50 Gbit/s takes 2 channels, so its number is a multiple of 2"),
        ("s1-p10", "100Gbit", "port s1-p10: 100 Gbit/s takes 4 channels, so its number is a multiple of 4"),
        ("s1-p8", "400Gbit", "port s1-p8: 400 Gbit/s is more than a port of like-tofino carries, 100"),
        ("s1-p7", "25Gbit", "port s1-p7 would share channel 7 of s1 with link s1-p4"),
        ("s1-p4", "100Gbit", "port s1-p4 is taken already"),
    ],
)
def test_a_chip_has_ports_in_pipes_and_fast_ones_use_channels(
    tmp_path: Path, port: str, rate: str, message: str | None
) -> None:
    _judge(tmp_path, CHIP.replace("s1-p8], rate: 50Gbit", f"{port}], rate: {rate}"), message)


@pytest.mark.parametrize(
    ("port", "rate", "message"),
    [
        ("s1-p8", "50Gbit", None),
        ("s1-p455", "50Gbit", None),
        ("s1-p456", "10Gbit", "port s1-p456: a switch's ports are 1…455"),
        ("s1-p6", "10Gbit", "port s1-p6: is no port of a link: tofino2 has 64 for each of its 4 pipes, from 8, 136"),
        ("s1-p135", "10Gbit", "port s1-p135: is no port of a link"),
        ("s1-p9", "100Gbit", "port s1-p9: 100 Gbit/s takes 2 channels, so its number is a multiple of 2"),
        ("s1-p20", "400Gbit", "port s1-p20: 400 Gbit/s takes 8 channels, so its number is a multiple of 8"),
        ("s1-p136", "400Gbit", None),
        ("s1-p8", "800Gbit", "port s1-p8: 800 Gbit/s is more than a port of tofino2 carries, 400"),
    ],
)
def test_tofino_2_has_its_links_behind_eight_ports_of_its_own(
    tmp_path: Path, port: str, rate: str, message: str | None
) -> None:
    text = CHIP.replace("like-tofino", "tofino2").replace("s1-p4]", "s1-p64]")
    _judge(tmp_path, text.replace("s1-p8], rate: 50Gbit", f"{port}], rate: {rate}"), message)


def _judge(tmp_path: Path, text: str, message: str | None) -> None:
    """None: the fabric is taken."""
    if message is None:
        assert len(load(tmp_path, text).links) == 2
        return
    with pytest.raises(TopologyError) as error:
        load(tmp_path, text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("generate", "message"),
    [
        ("{kind: leaf-spine, leaves: 4, spines: 2}", 'generate: key "hosts_per_leaf" is missing'),
        ("{kind: leaf-spine, leaves: 0, spines: 2, hosts_per_leaf: 1}", "generate: leaves 0 is not in 1…255"),
        (
            "{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 255}",
            "generate: hosts_per_leaf 255 is not in 0…254",
        ),
        ("{kind: fat-tree, k: 3}", "generate: k 3 is not an even number in 2…64; write it like 4"),
        ("{kind: fat-tree, k: 4, rate: 1}", "generate: rate 1 is not a rate; write it like 200Mbit"),
        ("{kind: torus}", 'generate: kind "torus" is unknown; write leaf-spine, fat-tree, jellyfish or random'),
        ("{kind: fat-tree, k: 4, pods: 2}", 'generate: unknown key "pods"; there are rate'),
        ("4", "generate: 4 is not right; write a mapping"),
    ],
)
def test_generators_refuse_bad_measures(tmp_path: Path, generate: str, message: str) -> None:
    with pytest.raises(TopologyError) as error:
        load(tmp_path, f"name: x\ngenerate: {generate}\n")
    assert message in str(error.value)


@pytest.mark.parametrize(
    "text", ["", "3", "[]", "name: x", "name: x\nhosts: 3\nswitches: {}\nlinks: []", "hosts: {1: 2}"]
)
def test_no_text_gets_past_with_another_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(TopologyError, match=r"fabric\.yaml: "):
        load(tmp_path, text)


def test_a_missing_file_is_named() -> None:
    with raises(TopologyError, place="nowhere.yaml"):
        load_topology("nowhere.yaml")


@pytest.mark.parametrize(
    ("text", "bps"), [("200Mbit", 2 * 10**8), ("2.5Gbit", 25 * 10**8), ("1 kbit", 1000), ("7bit", 7)]
)
def test_rates(text: str, bps: int) -> None:
    assert parse_rate(text) == bps == parse_rate(format_rate(bps))


@pytest.mark.parametrize(("text", "ns"), [("10us", 10_000), ("1.5ms", 1_500_000), ("0ns", 0), ("2s", 2 * 10**9)])
def test_delays(text: str, ns: int) -> None:
    assert parse_delay(text) == ns == parse_delay(format_delay(ns))


HOSTS_WITH_ROOM = """
name: pair
hosts: {h1: {accelerators: 8, memory: 512GiB}, h2: {accelerators: 0, memory: 1.5kB}, h3: null}
switches: {s1: null}
links: [{ends: [h1, s1-p1]}, {ends: [h2, s1-p2]}, {ends: [h3, s1-p3]}]
"""


def test_hosts_have_accelerators_and_memory(tmp_path: Path) -> None:
    (tmp_path / "pair.yaml").write_text(HOSTS_WITH_ROOM)
    fabric = load_topology(tmp_path / "pair.yaml")
    assert [(host.accelerators, host.memory_bytes) for host in fabric.hosts] == [(8, 512 << 30), (0, 1500), (1, 0)]
    dump_topology(fabric, tmp_path / "dumped.yaml")
    assert load_topology(tmp_path / "dumped.yaml") == fabric


@pytest.mark.parametrize(("good", "bad"), [("512GiB", "512"), ("512GiB", "lots"), ("512GiB", "0.3B"), ("8", "-1")])
def test_wrong_accelerators_and_memory_are_errors_with_lines(tmp_path: Path, good: str, bad: str) -> None:
    (tmp_path / "pair.yaml").write_text(HOSTS_WITH_ROOM.replace(good, bad, 1))
    with pytest.raises(TopologyError, match=r"pair\.yaml: line 3: host h1: "):
        load_topology(tmp_path / "pair.yaml")


@pytest.mark.parametrize("size", [0, 1, 1000, 1024, 3 << 20, 512 << 30, (1 << 40) + 1])
def test_memory_is_written_as_it_is_read(size: int) -> None:
    assert parse_memory(format_memory(size)) == size
