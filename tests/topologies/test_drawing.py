"""Content of drawings, and fabrics that are refused."""

from __future__ import annotations

import re
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from weir.tests.browser import chromium, look, words_at_fault
from weir.tests.paths import ROOT
from weir.tests.support.errors import raises
from weir.topologies import Endpoint, Host, Link, Switch, Topology, TopologyError, fat_tree, leaf_spine, load_topology
from weir.topologies.drawing import TREES, Drawing, DrawnFlow
from weir.topologies.generators import jellyfish
from weir.topologies.schema import dump_topology

FABRIC = leaf_spine(3, 2, 2)
RING = Topology(
    "ring",
    tuple(Host(f"h{i}", IPv4Address("10.0.0.0") + i) for i in range(1, 7)),
    tuple(Switch(f"s{i}", i) for i in range(1, 7)),
    tuple(
        link
        for i in range(1, 7)
        for link in (
            Link(Endpoint(f"h{i}", 0), Endpoint(f"s{i}", 1)),
            Link(Endpoint(f"s{i}", 2), Endpoint(f"s{i % 6 + 1}", 3), rate_bps=400_000_000),
        )
    ),
)


def test_svg_names_everything() -> None:
    svg = Drawing(
        FABRIC,
        {Endpoint("s1", 3): 0.5},
        {"s4": "sums 2"},
        {"h1": "worker", "h6": "server"},
        (DrawnFlow("h2", "h5", "600 Mbit/s"),),
        "A round",
    ).svg()
    texts = set(re.findall(r">([^<>\n]+)</text>", svg))
    assert {node.name for node in FABRIC.nodes} <= texts
    assert {"sums 2", "worker", "server", "sums gradients", "background flow", "600 Mbit/s", "A round"} <= texts


def test_each_direction_has_the_colour_and_width_of_its_load() -> None:
    def strands(svg: str) -> list[tuple[str, float]]:
        found = re.findall(r"none; stroke: (#[0-9a-f]{6});(?: stroke-width: ([\d.]+);)? stroke-linecap: round", svg)
        return [(colour, float(width or 1)) for colour, width in found]

    idle = strands(Drawing(FABRIC).svg())
    assert len(idle) == 2 * len(FABRIC.links)
    assert len(set(idle)) == 1
    busy = strands(Drawing(FABRIC, {Endpoint("s1", 3): 1.0, Endpoint("s4", 1): 0.5}).svg())
    assert busy[:-2] == idle[:-2]
    (half, half_width), (full, full_width) = busy[-2:]
    assert (half, full) == ("#f2c04e", "#c0232c")
    assert idle[0][1] < half_width < full_width


@pytest.mark.parametrize("topology", [leaf_spine(2, 1, 2), leaf_spine(4, 2, 3), fat_tree(4), fat_tree(8)], ids=str)
@pytest.mark.parametrize("upright", [False, True])
def test_no_text_is_smaller_than_nine_points(topology: Topology, upright: bool) -> None:
    drawing = Drawing(
        topology,
        loads={topology.directed_links[0]: 0.5},
        summing={topology.switches[0].name: "sums 3"},
        roles={"h1": "worker", "h2": "server"},
        flows=[DrawnFlow("h1", "h2", "700Mbit")],
        title="all kinds of text",
        upright=upright,
    )
    sizes = [float(size) for size in re.findall(r"font(?:-size)?: *(?:bold )?([\d.]+)px", drawing.svg())]
    assert len(sizes) > len(topology.nodes)
    assert min(sizes) >= 9  # matplotlib's pixels are points: 72 to an inch


def test_no_words_are_over_others_on_wide_pages_and_narrow_ones(tmp_path: Path) -> None:
    """Fabrics of all shapes, with names that people give, and the picture that README begins with."""
    alike = leaf_spine(3, 2, 2)
    dump_topology(alike, tmp_path / "named.yaml")
    text = (tmp_path / "named.yaml").read_text()
    (tmp_path / "named.yaml").write_text(text.replace("h1", "storage1").replace("s4", "corespine"))
    named = load_topology(tmp_path / "named.yaml")
    fabrics = [RING, alike, named, leaf_spine(1, 8, 1), load_topology("leaf_spine.yaml"), fat_tree(4)]
    drawings = [
        Drawing(
            fabric,
            loads={link: 0.1 * (index % 11) for index, link in enumerate(fabric.directed_links)},
            summing={switch.name: "sums 12" for switch in fabric.switches},
            roles={host.name: "worker" if index else "server" for index, host in enumerate(fabric.hosts)},
            flows=[DrawnFlow(fabric.hosts[0].name, fabric.hosts[-1].name, "700Mbit")],
            title=f"a run of mine: {fabric.name}",
            upright=upright,
        ).svg()
        for fabric in fabrics
        for upright in (False, True)
    ]
    shown = [svg[svg.index("<svg") :] for svg in [*drawings, (ROOT / "docs" / "architecture.svg").read_text()]]
    figures = "".join(
        f"<figure style='width: 838px'>{svg}<figcaption>{index}</figcaption></figure>"
        for index, svg in enumerate(shown)
    )
    (tmp_path / "page.html").write_text(f"<!doctype html><meta charset=utf-8>{figures}")
    with chromium() as browser:
        browser.get((tmp_path / "page.html").as_uri())
        look(browser, 20_000)
        assert words_at_fault(browser) == []


def test_an_upright_drawing_fits_a_phone_with_the_same_words() -> None:
    def texts(drawing: Drawing) -> set[str]:
        return set(re.findall(r">([^<>\n]+)</text>", drawing.svg()))

    for fabric in (FABRIC, fat_tree(4)):
        flows, loads = (DrawnFlow("h1", "h2", "1Gbit"),), {Endpoint("h1", 0): 0.5}
        wide, upright = (Drawing(fabric, loads, flows=flows, title="both", upright=way) for way in (False, True))
        assert texts(upright) == texts(wide)
        assert re.search(r'<svg[^>]* width="266\.4pt"', upright.svg())
        assert {host.name for host in fabric.hosts} == {name for name, (x, _) in upright.places.items() if x == 0}


def shortest(a: tuple[float, float], b: tuple[float, float], point: tuple[float, float]) -> float:
    """Distance of a point from the line between two others."""
    (x0, y0), (x1, y1), (x, y) = a, b, point
    along = ((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / ((x1 - x0) ** 2 + (y1 - y0) ** 2)
    at = min(max(along, 0.0), 1.0)
    return float(((x0 + at * (x1 - x0) - x) ** 2 + (y0 + at * (y1 - y0) - y) ** 2) ** 0.5)


@pytest.mark.parametrize("fabric", [RING, jellyfish(8, 3, 2, seed=4), jellyfish(20, 4, 2, seed=1)], ids=str)
@pytest.mark.parametrize("upright", [False, True])
def test_links_of_a_fabric_without_tiers_run_through_no_switch(fabric: Topology, upright: bool) -> None:
    places = Drawing(fabric, upright=upright).places
    assert set(places) == {node.name for node in fabric.nodes}
    for link in fabric.links:
        ends = [end.node for end in link.ends]
        for switch in fabric.switches:
            if switch.name not in ends:
                assert shortest(places[ends[0]], places[ends[1]], places[switch.name]) > 0.1


def test_tree_links_are_arrows_and_options_add_rates_and_ports() -> None:
    plain = Drawing(RING).svg()
    up = {Endpoint("s2", 3), Endpoint("s3", 3)}
    drawn = Drawing(RING, trees=[up], rates=True, ports=True).svg()
    texts = re.findall(r">([^<>\n]+)</text>", drawn)
    assert [texts.count(text) for text in ("1Gbit", "400Mbit", "tree", "1", "2", "3")] == [6, 6, 1, 6, 6, 6]
    assert drawn.count(TREES[0]) - plain.count(TREES[0]) >= 2 * len(up)
    with raises(TopologyError, place="ring", value="s1-p9"):
        Drawing(RING, trees=[{Endpoint("s1", 9)}])


def test_the_same_drawing_gives_the_same_text() -> None:
    drawing = Drawing(FABRIC, {Endpoint("s1", 3): 0.5}, flows=(DrawnFlow("h1", "h3"),))
    assert drawing.svg() == Drawing(FABRIC, {Endpoint("s1", 3): 0.5}, flows=(DrawnFlow("h1", "h3"),)).svg()


def test_tiers_rise_from_the_hosts_without_overlaps() -> None:
    for fabric in (FABRIC, fat_tree(4), leaf_spine(2, 2, 0)):
        places = Drawing(fabric).places
        assert set(places) == {node.name for node in fabric.nodes}
        assert len(set(places.values())) == len(places)
    places = Drawing(fat_tree(4)).places
    heights = {switch.tier: places[switch.name][1] for switch in fat_tree(4).switches}
    assert 0 < heights["edge"] < heights["aggregation"] < heights["core"]


def test_save_writes_what_the_ending_says(tmp_path: Path) -> None:
    drawing = Drawing(leaf_spine(1, 0, 1))
    drawing.save(tmp_path / "fabric.svg")
    drawing.save(tmp_path / "fabric.png")
    assert (tmp_path / "fabric.svg").read_text() == drawing.svg()
    assert (tmp_path / "fabric.png").read_bytes().startswith(b"\x89PNG")
    with raises(TopologyError, place=str(tmp_path / "fabric.pdf")):
        drawing.save(tmp_path / "fabric.pdf")
    with raises(TopologyError, place=str(tmp_path / "nowhere" / "fabric.svg")):
        drawing.save(tmp_path / "nowhere" / "fabric.svg")


def test_elements_outside_the_fabric_are_refused() -> None:
    with raises(TopologyError, place="leaf-spine", value="s1-p9"):
        Drawing(FABRIC, {Endpoint("s1", 9): 0.5})
    with raises(TopologyError, place="drawing", value=1.5):
        Drawing(FABRIC, {Endpoint("s1", 3): 1.5})
    with raises(TopologyError, place="leaf-spine", value="h1"):
        Drawing(FABRIC, summing={"h1": ""})
    with raises(TopologyError, place="drawing", value="boss", allowed=("worker", "server")):
        Drawing(FABRIC, roles={"h1": "boss"})
    with raises(TopologyError, place="leaf-spine", value="s1"):
        Drawing(FABRIC, flows=(DrawnFlow("h1", "s1"),))
