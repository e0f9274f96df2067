"""GraphLoader: the same batches with the pipeline and without, caches, failures, and models that learn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from weir.tests.support.errors import raises
from weir.training.errors import TrainingError
from weir.training.graphs.caches import CACHES
from weir.training.graphs.graph import Graph, Nodes
from weir.training.graphs.made import barabasi_albert, communities
from weir.training.graphs.pipeline import GATHERING, SAMPLING, staged

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None, reason="PyTorch is not installed (pip install 'weir-fabric[torch]')"
)

NODES = 2000


@pytest.fixture(scope="module")
def hubs() -> Graph:
    return barabasi_albert(NODES, 4, 5)


@pytest.fixture(scope="module")
def features() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((NODES, 6)).astype(np.float32)


def loader_of(graph: Graph, features: Any, **options: Any) -> Any:
    from weir.training.graphs.loader import GraphLoader

    seeds = options.pop("seeds", np.arange(0, NODES, 4))
    return GraphLoader(graph, features, seeds, options.pop("fanout", [5, 5]), options.pop("batch", 50), **options)


def bytes_of(loader: Any) -> list[bytes]:
    made = []
    for batch in loader:
        edges = [layer.index.numpy().tobytes() for layer in batch.layers]
        made.append(b"".join([batch.nodes.numpy().tobytes(), batch.features.numpy().tobytes(), *edges]))
    return made


@pytest.mark.parametrize("sampler", ["neighbour", "layer-wise"])
@pytest.mark.parametrize("cache", CACHES)
def test_batches_do_not_depend_on_pipeline_and_cache(
    hubs: Graph, features: np.ndarray, sampler: str, cache: str
) -> None:
    plain = loader_of(hubs, features, sampler=sampler, pipelined=False)
    cached = loader_of(hubs, features, sampler=sampler, cache=cache, capacity=200)
    first, second = bytes_of(plain), bytes_of(plain)
    assert bytes_of(cached) == first
    assert bytes_of(cached) == second
    assert first != second
    assert len(first) == len(plain) == 10


def test_an_epoch_has_each_seed_once_and_its_features(hubs: Graph, features: np.ndarray) -> None:
    seen = []
    for batch in loader_of(hubs, features, batch=33):
        seen.extend(batch.seeds.tolist())
        assert batch.features.numpy().tobytes() == features[batch.nodes.numpy()].tobytes()
    assert sorted(seen) == [*range(0, NODES, 4)]


def hit_ratios(graph: Graph, features: np.ndarray, seed: int) -> dict[str, float]:
    found = {}
    for name in CACHES:
        loader = loader_of(graph, features, cache=name, capacity=graph.nodes // 10, seed=seed)
        bytes_of(loader)
        found[name] = loader.cache.hits / loader.cache.asked
    return found


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_hit_ratios_are_ordered_where_there_are_hubs(hubs: Graph, features: np.ndarray, seed: int) -> None:
    found = hit_ratios(hubs, features, seed)
    assert found["oracle"] >= found["presampled"] >= found["degree"] - 0.02
    assert found["degree"] >= 1.8 * found["random"]
    assert found["oracle"] >= found["lru"]


def test_a_failing_source_is_an_error_behind_the_batches_before(hubs: Graph, features: np.ndarray) -> None:
    calls = iter(range(100))

    def fails_later(nodes: Nodes) -> np.ndarray:
        if next(calls) == 3:
            raise OSError("the disk is gone")
        return features[nodes]

    loader = loader_of(hubs, fails_later)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    with pytest.raises(OSError, match="the disk is gone"):
        next(batches)


def test_stages_run_ahead_of_the_reader_by_a_bounded_number() -> None:
    made: list[int] = []
    reached = threading.Event()

    def first(item: int) -> int:
        made.append(item)
        if len(made) == 9:  # one read, two and two that wait, and what stages hold; the reader is at the first
            reached.set()
        return item

    results = staged(range(100), first, lambda item: -item, ahead=3)
    assert next(results) == 0
    assert reached.wait(60)
    results.close()
    assert len(made) <= 1 + 2 * 3 + 2 + 1
    assert threading.active_count() < 50


def test_an_abandoned_epoch_ends_its_threads(hubs: Graph, features: np.ndarray) -> None:
    before = threading.active_count()
    batches = iter(loader_of(hubs, features))
    next(batches)
    del batches
    assert threading.active_count() == before


def test_an_error_of_the_first_stage_is_raised_to_the_reader() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    results = staged(items(), lambda item: item, lambda item: item)
    assert next(results) == 1
    with pytest.raises(ValueError, match="no more"):
        next(results)


@pytest.mark.parametrize("hanging", ["source", SAMPLING, GATHERING])
def test_a_stage_that_hangs_is_an_error_with_its_name(hanging: str) -> None:
    held = threading.Event()

    def hang(where: str) -> Callable[[int], int]:
        def work(item: int) -> int:
            if where == hanging and item == 2:
                held.wait()
            return item

        return work

    results = staged(map(hang("source"), range(9)), hang(SAMPLING), hang(GATHERING), timeout_s=1)
    assert [next(results), next(results)] == [0, 1]
    stage = SAMPLING if hanging == "source" else hanging
    try:
        with raises(TrainingError, place=f"loading pipeline: {stage}", value=1):
            next(results)
    finally:
        held.set()


def test_slow_training_is_no_hang_of_a_stage() -> None:
    results = staged(range(30), lambda item: item, lambda item: item, ahead=1, timeout_s=1)
    first = next(results)
    time.sleep(1.5)  # stages wait for the reader longer than they may work
    assert [first, *results] == [*range(30)]


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"timeout_s": 0}, "timeout_s"),
        ({"seeds": np.array([1, 1])}, "seeds"),
        ({"seeds": np.array([NODES])}, "seeds"),
        ({"seeds": np.array([0.5, 1.0])}, "seeds"),
        ({"seeds": np.ones(NODES, bool)}, "seeds"),
        ({"seeds": np.zeros((2, 2), np.int64)}, "seeds"),
        ({"seeds": []}, "seeds"),
        ({"fanout": [0]}, "fanout"),
        ({"fanout": 5}, "fanout"),
        ({"fanout": []}, "fanout"),
        ({"fanout": [2.5]}, "fanout"),
        ({"batch": 0}, "fanout"),
        ({"batch": 1.5}, "fanout"),
        ({"capacity": NODES + 1}, "cache"),
        ({"features": np.zeros((3, 2), np.float32)}, "features"),
        ({"features": np.zeros(NODES, np.float32)}, "features"),
        ({"features": 3}, "features"),
        ({"features": lambda nodes: np.zeros((3, 2)), "capacity": 5}, "features"),
    ],
)
def test_arguments_that_cannot_be_are_refused(
    hubs: Graph, features: np.ndarray, options: dict[str, Any], place: str
) -> None:
    with raises(TrainingError, place=place):
        loader_of(hubs, options.pop("features", features), **options)


def test_a_function_that_reads_too_few_rows_is_an_error(hubs: Graph, features: np.ndarray) -> None:
    with raises(TrainingError, place="features"):
        bytes_of(loader_of(hubs, lambda nodes: features[nodes[1:]]))


def test_features_may_be_a_tensor(hubs: Graph, features: np.ndarray) -> None:
    import torch

    assert bytes_of(loader_of(hubs, torch.from_numpy(features))) == bytes_of(loader_of(hubs, features))


@pytest.mark.parametrize("sampler", ["neighbour", "layer-wise"])
@pytest.mark.parametrize("name", ["Gcn", "GraphSage"])
@pytest.mark.parametrize("cache", CACHES)
def test_isolated_nodes_and_features_of_nan_pass_through(sampler: str, name: str, cache: str) -> None:
    """Seven nodes, of which two have an edge; batches of a prime number of seeds, one of which is not a number."""
    from weir.training.graphs import models

    graph = Graph.of_edges(7, np.array([1]), np.array([2]))
    rows = np.arange(14, dtype=np.float32).reshape(7, 2)
    rows[6] = np.nan
    loader = loader_of(
        graph, rows, seeds=np.arange(7), fanout=[3, 3], batch=3, sampler=sampler, cache=cache, capacity=2
    )
    model = getattr(models, name)([2, 4, 3])
    found: dict[int, bool] = {}
    for batch in loader:
        assert batch.features.numpy().tobytes() == rows[batch.nodes.numpy()].tobytes()
        found.update(zip(batch.seeds.tolist(), model(batch).isfinite().all(axis=1).tolist(), strict=True))
    assert found == {**dict.fromkeys(range(6), True), 6: False}


@pytest.mark.parametrize("sampler", ["neighbour", "layer-wise"])
def test_a_graph_without_edges_has_batches_of_its_seeds(sampler: str) -> None:
    graph = Graph.of_edges(1, np.empty(0, np.int64), np.empty(0, np.int64))
    (batch,) = loader_of(graph, np.ones((1, 2), np.float32), seeds=[0], sampler=sampler)
    assert (batch.nodes.tolist(), [layer.index.shape[1] for layer in batch.layers]) == ([0], [0, 0])


@pytest.mark.parametrize("name", ["Gcn", "GraphSage"])
def test_models_learn_communities_from_noisy_features(name: str) -> None:
    import torch

    from weir.training.graphs import models
    from weir.training.graphs.loader import GraphLoader

    torch.manual_seed(0)
    graph, labels = communities(400, 2)
    classes = int(labels.max()) + 1
    rng = np.random.default_rng(0)
    rows = (np.eye(classes)[labels] + rng.standard_normal((400, classes))).astype(np.float32)
    training = rng.permutation(400)[:280]
    held_out = np.setdiff1d(np.arange(400), training)
    model = getattr(models, name)([classes, 32, classes])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    wanted = torch.from_numpy(labels)
    loader = GraphLoader(graph, rows, training, [8, 8], 70)
    for _ in range(10):
        for batch in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch), wanted[batch.seeds]).backward()
            optimizer.step()
    with torch.no_grad():
        (batch,) = GraphLoader(graph, rows, held_out, [20, 20], 400)
        right = (model(batch).argmax(1) == wanted[batch.seeds]).float().mean().item()
    alone = (rows[held_out].argmax(1) == labels[held_out]).mean()
    assert right > alone + 0.2


def test_means_of_neighbours_are_those_of_a_dense_matrix(hubs: Graph, features: np.ndarray) -> None:
    from weir.training.graphs.models import neighbour_mean

    (batch, *_) = loader_of(hubs, features)
    edges = batch.layers[1]
    matrix = np.zeros((edges.receiving, edges.sending), np.float32)
    matrix[edges.index[1], edges.index[0]] = 1
    values = batch.features[: edges.sending].numpy()
    plain = matrix @ values / np.maximum(matrix.sum(1), 1)[:, None]
    found = neighbour_mean(batch.features[: edges.sending], edges, with_self=False)
    assert found.numpy() == pytest.approx(plain, abs=1e-5)
    with_self = (matrix @ values + values[: edges.receiving]) / (matrix.sum(1) + 1)[:, None]
    assert neighbour_mean(batch.features, edges, with_self=True).numpy() == pytest.approx(with_self, abs=1e-5)
