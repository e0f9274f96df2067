"""Graphs, samplers and partitions: edges that exist, distinct choices, whole neighbourhoods, balanced parts."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from weir.tests.support.errors import raises
from weir.training.errors import TrainingError
from weir.training.graphs.graph import MOST_NODES, Graph, read_edges
from weir.training.graphs.made import barabasi_albert, communities, nearest_neighbours
from weir.training.graphs.partition import partition
from weir.training.graphs.samplers import SAMPLERS
from weir.training.graphs.sampling import sample


def drawn(nodes: int, edges: int, seed: int) -> Graph:
    rng = np.random.default_rng(seed)
    return Graph.of_edges(nodes, rng.integers(0, nodes, edges), rng.integers(0, nodes, edges))


def edges_of(graph: Graph) -> set[tuple[int, int]]:
    sources, places = graph.incoming(np.arange(graph.nodes))
    return set(zip(sources.tolist(), places.tolist(), strict=True))


@settings(max_examples=30)
@given(st.integers(1, 20), st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19)), max_size=60))
def test_a_graph_has_the_edges_that_it_is_made_of(nodes: int, pairs: list[tuple[int, int]]) -> None:
    wanted = {(a % nodes, b % nodes) for a, b in pairs}
    ends = np.array([*pairs], np.int64).reshape(-1, 2) % nodes
    graph = Graph.of_edges(nodes, ends[:, 0], ends[:, 1])
    assert edges_of(graph) == wanted
    assert graph.edges == len(wanted) == graph.in_degrees.sum() == graph.out_degrees.sum()


@pytest.mark.parametrize("name", SAMPLERS)
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6))
def test_samples_are_graph_edges_between_prefixes_of_the_nodes(name: str, seed: int, fanout: int) -> None:
    graph, rng = drawn(60, 400, seed), np.random.default_rng(seed)
    seeds = rng.permutation(60)[:8]
    sampled = sample(graph, seeds, [fanout, fanout + 1], SAMPLERS.describe(name).choose, rng)
    assert sampled.nodes[:8].tolist() == seeds.tolist()
    assert len(np.unique(sampled.nodes)) == len(sampled.nodes)
    assert [layer.receiving for layer in sampled.layers] == [sampled.layers[1].sending, 8]
    assert sampled.layers[0].sending == len(sampled.nodes)
    for layer in sampled.layers:
        pairs = [*zip(sampled.nodes[layer.sources], sampled.nodes[layer.targets], strict=True)]
        assert len(set(pairs)) == len(pairs)
        assert set(pairs) <= edges_of(graph)
        assert layer.targets.max(initial=-1) < layer.receiving
        assert layer.sources.max(initial=-1) < layer.sending


def test_neighbour_samples_are_capped_at_the_fan_out() -> None:
    graph = drawn(50, 600, 3)
    nodes = np.arange(50)
    choose = SAMPLERS.describe("neighbour").choose
    _, places = choose(graph, nodes, 7, np.random.default_rng(0))
    assert np.bincount(places, minlength=50).tolist() == np.minimum(graph.in_degrees, 7).tolist()


def test_neighbours_are_drawn_alike() -> None:
    graph = Graph.of_edges(11, np.arange(1, 11), np.zeros(10, np.int64))
    choose, rng = SAMPLERS.describe("neighbour").choose, np.random.default_rng(1)
    counts = np.zeros(11)
    for _ in range(3000):
        sources, _ = choose(graph, np.array([0]), 4, rng)
        counts[sources] += 1
    assert counts[1:] == pytest.approx(np.full(10, 1200), abs=150)


def test_layer_wise_samples_bound_the_nodes_of_a_layer() -> None:
    graph = barabasi_albert(500, 5, 1)
    sources, _ = SAMPLERS.describe("layer-wise").choose(graph, np.arange(40), 12, np.random.default_rng(0))
    assert len(np.unique(sources)) == 12


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_seed_fixes_a_sample(name: str) -> None:
    graph = drawn(100, 1500, 2)
    choose = SAMPLERS.describe(name).choose
    found = [sample(graph, np.arange(9), [5, 5], choose, np.random.default_rng(4)).nodes.tolist() for _ in range(2)]
    assert found[0] == found[1]


def test_nearest_neighbours_are_those_of_brute_force() -> None:
    points = np.random.default_rng(0).standard_normal((700, 3)).astype(np.float32)
    graph = nearest_neighbours(points, 4)
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    for node in (0, 511, 512, 699):
        found = graph.neighbours[graph.starts[node] : graph.starts[node + 1]]
        assert found.tolist() == sorted(np.argsort(distances[node])[:4].tolist())


def test_communities_keep_most_edges() -> None:
    graph, labels = communities(1000, 3)
    sources, places = graph.incoming(np.arange(1000))
    assert (labels[sources] == labels[places]).mean() > 0.7


def test_edge_lists_are_read_as_text_and_npz(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("# two edges\n0 1\n2 1\n")
    np.savez(tmp_path / "b.npz", sources=[0, 2], targets=[1, 1])
    for name in ("a.txt", "b.npz"):
        assert edges_of(read_edges(tmp_path / name)) == {(0, 1), (2, 1)}


@pytest.mark.parametrize("text", ["0 x\n", "0\n", "0 -1\n", f"0 {1 << 26}\n", f"0 {1 << 62}\n", f"0 {1 << 63}\n"])
def test_files_that_are_no_edge_list_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(TrainingError):
        read_edges(tmp_path / "a.txt")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short", b"\x93NUMPY", b"no archive"])
def test_archives_that_are_damaged_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npz").write_bytes(content)
    with raises(TrainingError, place=str(tmp_path / "a.npz")):
        read_edges(tmp_path / "a.npz")


def test_node_numbers_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"0 {MOST_NODES}\n")
    with raises(TrainingError, place=str(tmp_path / "a.txt"), value=MOST_NODES):
        read_edges(tmp_path / "a.txt")
    for nodes in (-1, MOST_NODES + 1, 2.0):
        with raises(TrainingError, place="graph", value=nodes):
            Graph.of_edges(nodes, np.empty(0, np.int64), np.empty(0, np.int64))  # type: ignore[arg-type]


def test_arrays_of_fractions_are_no_edges(tmp_path: Path) -> None:
    np.savez(tmp_path / "b.npz", sources=[0.0], targets=[np.nan])
    with raises(TrainingError, place=str(tmp_path / "b.npz")):
        read_edges(tmp_path / "b.npz")


@pytest.mark.parametrize(
    "nodes",
    [
        np.array([0.5, np.nan]),
        np.array(["a", "b"]),
        np.array([0, "a"], object),
        np.zeros(2, [("a", int)]),
        np.array([0, (1 << 64) - 1], np.uint64),
        np.array(3),
        np.zeros((2, 2), int),
    ],
)
def test_arrays_that_are_no_nodes_are_refused(tmp_path: Path, nodes: NDArray[Any]) -> None:
    np.savez(tmp_path / "b.npz", sources=nodes, targets=nodes, allow_pickle=True)
    with pytest.raises(TrainingError):
        read_edges(tmp_path / "b.npz")


@pytest.mark.parametrize("shape", [-1, 10**12, 1 << 70])
def test_an_array_that_is_said_to_be_larger_than_its_file_is_refused(tmp_path: Path, shape: int) -> None:
    header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({shape},)}}".encode().ljust(117) + b"\n"
    for name, content in (("b.npz", b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header), ("c.npz", b"")):
        with ZipFile(tmp_path / name, "w") as packed:
            for array in ("sources", "targets"):
                packed.writestr(f"{array}.npy", content)
        with pytest.raises(TrainingError):
            read_edges(tmp_path / name)


def test_parts_are_balanced_with_fewer_neighbours_than_random() -> None:
    graph, _ = communities(600, 1)
    training = np.random.default_rng(0).permutation(600)[:200]
    parts = partition(graph, training, 4, 2)
    assert np.sort(np.concatenate(parts)).tolist() == np.sort(training).tolist()
    assert max(map(len, parts)) <= 50

    def reach(nodes: np.ndarray) -> int:
        one = np.union1d(nodes, graph.incoming(nodes)[0])
        return len(np.union1d(one, graph.incoming(one)[0]))

    assert sum(map(reach, parts)) < 0.95 * sum(map(reach, np.split(training, 4)))


def test_more_parts_than_nodes_are_refused() -> None:
    with raises(TrainingError, place="partition", value=3):
        partition(drawn(9, 20, 0), np.arange(2), 3, 1)
