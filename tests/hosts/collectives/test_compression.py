"""Compressed collectives: what the fabric returns is what a codec's `merge` says, whatever is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weir.hosts import Communicator, Compression
from weir.hosts.collectives.handle import Handle
from weir.hosts.compression.codec import Codec, Context
from weir.hosts.compression.codecs import CODECS, make_codec
from weir.hosts.errors import CallMismatch, InvalidTensor, WorkerMissing
from weir.hosts.numerics.draws import Draws
from weir.hosts.numerics.packed import FIELD_BITS
from weir.hosts.numerics.tensors import reference_sum
from weir.tests.hosts.collectives.memory_driver import MemoryJob
from weir.tests.paths import ROOT
from weir.tests.support.errors import raises

OPTIONS: dict[str, dict[str, Any]] = {"tbq": {"threshold": 0.5}, "topk": {"ratio": 0.1}, "dgc": {"ratio": 0.1}}


def arrays(workers: int, size: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal(size) + 0.3).astype(np.float32) for _ in range(workers)]


class Job:
    """Workers in one thread, each with compression of its own."""

    def __init__(self, workers: int, codec: str, *, seed: int = 0, **options: Any) -> None:
        self.job = MemoryJob(workers, seed=seed)
        self.members = [Communicator(driver, timeout_s=1) for driver in self.job.drivers]
        self.compressions = [Compression.named(codec, **options) for _ in self.members]

    def reduce(self, values: list[np.ndarray], **how: Any) -> list[np.ndarray]:
        """Return the result at every worker."""
        handles: list[Handle] = [
            member.allreduce_async(value, compression=compression, **how)
            for member, value, compression in zip(self.members, values, self.compressions, strict=True)
        ]
        there = [handle for rank, handle in enumerate(handles) if self.job.lost.get(rank, 1)]
        for handle in there:
            handle.done()  # starts the second sum of those that have two
        return [handle.wait() for handle in there]


def merged(codec: Codec, values: list[np.ndarray], seed: int) -> np.ndarray:
    """The sum by the codec alone, without a fabric."""
    contexts = [Context(values[0].size, len(values), Draws(seed, rank)) for rank in range(len(values))]
    asked = [codec.presum(value, context) for value, context in zip(values, contexts, strict=True)]
    if wanted := [each for each in asked if each is not None]:
        agreed = reference_sum(wanted)
        contexts = [Context(c.size, c.workers, c.draws, agreed) for c in contexts]
    codes = [codec.encode(value, context) for value, context in zip(values, contexts, strict=True)]
    return codec.merge(codes, contexts[0])


@pytest.mark.parametrize("workers", [2, 5, 64])
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_sums_as_its_merge_says(codec: str, workers: int) -> None:
    options = OPTIONS.get(codec, {})
    values = arrays(workers, 1500)
    job = Job(workers, codec, feedback=False, seed=3, **options)
    seed = Compression.named(codec, **options).next_seed("tensor")
    codec_alone = make_codec(codec, **options)
    right = merged(codec_alone, [codec_alone.compensate(f"{i}", v) for i, v in enumerate(values)], seed)
    for result in job.reduce(values):
        assert result.tobytes() == right.tobytes()


@pytest.mark.parametrize("bits", FIELD_BITS)
def test_packed_sums_are_the_reference_over_orders_and_calls(bits: int) -> None:
    job = Job(6, "packed", bits=bits, feedback=False, seed=bits)
    seeds = Compression.packed(bits)
    for step in range(3):
        values = arrays(6, 3000, step)
        for op, shape in (("sum", (3000,)), ("mean", (30, 100))):
            right = reference_sum(values, dtype=f"packed{bits}", mean=op == "mean", seed=seeds.next_seed("tensor"))
            for result in job.reduce([value.reshape(shape) for value in values], op=op):
                assert result.shape == shape
                assert result.tobytes() == right.tobytes()


@pytest.mark.parametrize("codec", ["packed", "terngrad", "tbq", "uniform", "randomk"])
def test_a_lost_worker_is_left_out_of_means(codec: str) -> None:
    """Half-way through a tensor: means stay means of those who are there, chunk by chunk."""
    size = 60_000
    options: dict[str, Any] = {
        "packed": {"bits": 10},
        "uniform": {"bits": 8},
        "tbq": {"threshold": 0.5},
        "randomk": {"ratio": 0.5},
    }
    job = Job(4, codec, seed=1, feedback=False, **options.get(codec, {}))
    job.job.lost[2] = 12
    values = [np.full(size, 0.5, np.float32)] * 4
    result = job.reduce(values, op="mean")[0]
    sent = result[result != 0]
    assert np.all(np.abs(sent.mean() - 0.5) < 0.02)
    assert job.job.lost[2] == 0


def test_gathered_codes_of_a_lost_worker_are_left_out() -> None:
    job = Job(4, "topk", ratio=1.0)
    job.job.lost[2] = 0
    values = arrays(4, 300)
    for result in job.reduce(values, op="mean"):
        assert np.allclose(result, np.mean([values[0], values[1], values[3]], axis=0), atol=1e-6)


@pytest.mark.parametrize("codec", ["packed", "onebit", "topk", "graddrop", "randomk", "blocks", "tbq", "uniform"])
def test_error_feedback_makes_the_sum_of_steps_right(codec: str) -> None:
    """The error of a sum of means stays that of one step, relative to a growing sum."""
    sparse = {"topk": 0.1, "graddrop": 0.1, "randomk": 0.3, "blocks": 0.3}
    options: dict[str, Any] = {name: {"ratio": ratio} for name, ratio in sparse.items()} | {"tbq": {"threshold": 4.0}}
    job = Job(3, codec, **options.get(codec, {}))
    values = arrays(3, 600)
    errors = []
    total = np.zeros(600)
    for step in range(1, 61):
        total += job.reduce(values, op="mean", name="layer")[0]
        errors.append(float(np.linalg.norm(total / step - np.mean(values, axis=0))))
    assert errors[59] < errors[4] / 3


def test_dgc_accumulates_velocity_and_forgets_what_it_sent() -> None:
    """Against the algorithm of the paper, number by number in float32."""
    ratio, momentum = 0.2, 0.5
    job = Job(2, "dgc", ratio=ratio, momentum=momentum)
    velocity, held = np.zeros((2, 100), np.float32), np.zeros((2, 100), np.float32)
    for step in range(5):
        values = arrays(2, 100, step)
        result = job.reduce(values)[0]
        velocity = velocity * np.float32(momentum) + np.stack(values)
        held = held + velocity
        total = np.zeros(100, np.float32)
        for rank in range(2):
            # in one array of 100 the sample is drawn with replacement; what was chosen shows in the result
            order = np.argsort(-np.abs(held[rank]))
            state = job.compressions[rank].state_dict()["accumulated/tensor"]
            sent = state == 0
            assert 0 < sent.sum() <= 20
            assert set(np.flatnonzero(sent)) == set(order[: sent.sum()])
            total += np.where(sent, held[rank], np.float32(0))
            held[rank][sent] = velocity[rank][sent] = 0
        assert np.allclose(result, total, atol=1e-6)


def test_state_is_saved_and_loaded() -> None:
    values = arrays(2, 400)
    for codec in ("packed", "dgc", "onebit"):
        job, other = Job(2, codec), Job(2, codec)
        job.reduce(values)
        for mine, theirs in zip(job.compressions, other.compressions, strict=True):
            theirs.load_state_dict(mine.state_dict())
        assert job.reduce(values)[0].tobytes() == other.reduce(values)[0].tobytes()


@pytest.mark.parametrize("codec", ["packed", "dgc", "onebit", "terngrad"])
def test_states_of_others_are_refused(codec: str) -> None:
    """Another codec, options or seed, and entries that no state has; nothing has changed then."""
    values = arrays(2, 40)
    job = Job(2, codec)
    job.reduce(values)
    mine, theirs = job.compressions[0], Compression.named(codec, seed=1)
    kept = mine.state_dict()
    wrong: list[Any] = [theirs.state_dict(), Compression.named("topk", ratio=0.5).state_dict(), {}, None, {1: 2}]
    wrong += [{**kept, "more/tensor": np.zeros(2)}, {**kept, "calls/tensor": np.array([1, 2])}, {**kept, "calls/x": -1}]
    for key in kept.keys() - {"codec", "calls/tensor"}:
        numbers = kept[key]
        wrong += [{**kept, key: other} for other in (numbers.astype(np.float64), numbers.reshape(2, -1), None)]
        wrong.append({**kept, key: np.where(np.arange(40) == 3, np.float32(np.inf), numbers)})
    for state in wrong:
        with pytest.raises(InvalidTensor) as raised:
            mine.load_state_dict(state)
        assert mine.name.startswith(raised.value.place.removeprefix("state of "))
        assert mine.state_dict().keys() == kept.keys()
        assert all(np.array_equal(mine.state_dict()[key], kept[key]) for key in kept)


def test_a_state_of_tensors_of_another_size_is_refused() -> None:
    for codec in ("packed", "dgc"):
        job, other = Job(2, codec), Job(2, codec)
        job.reduce(arrays(2, 40))
        for mine, theirs in zip(job.compressions, other.compressions, strict=True):
            theirs.load_state_dict(mine.state_dict())
        with raises(InvalidTensor, place="tensor 'tensor'", value=41):
            other.reduce(arrays(2, 41))


def test_results_keep_type_and_shape() -> None:
    for dtype in ("float16", "float64", "float32"):
        values: list[Any] = [value.astype(dtype).reshape(7, 20) for value in arrays(2, 140)]
        for result in Job(2, "packed", bits=15).reduce(values, op="mean"):
            assert (result.dtype.name, result.shape) == (dtype, (7, 20))
            assert np.allclose(result, np.mean(values, axis=0), atol=0.01)
    for size in (0, 1, 33):
        for codec in ("packed", "onebit", "tbq"):
            assert Job(2, codec).reduce(arrays(2, size))[0].shape == (size,)


def test_nan_is_refused_or_poisons() -> None:
    values = arrays(2, 3000)
    values[1][5] = np.nan
    with raises(InvalidTensor, value=5):
        Job(2, "packed").reduce([values[1], values[0]])
    result = Job(2, "packed").reduce(values, nonfinite="poison")[0]
    assert np.isnan(result[:1024]).all()
    assert np.isfinite(result[1024:]).all()


def test_a_nan_does_not_stay_in_the_residual() -> None:
    values = arrays(2, 100)
    job = Job(2, "packed")
    job.reduce([values[0], np.full(100, np.nan, np.float32)], nonfinite="poison")
    assert np.isfinite(job.reduce(values)[0]).all()


def test_codecs_of_other_files_are_mismatches(tmp_path: Path) -> None:
    """Files of one name and other texts, and options that a codec in Python does not name."""
    guide = (ROOT / "docs" / "compression.md").read_text()
    (text,) = [block.split("```")[0] for block in guide.split("```python\n") if "DESCRIPTION = " in block]
    tern = (ROOT / "examples" / "codecs" / "terngrad.compll").read_text()
    pairs = []
    for folder, change in (("a", ""), ("b", "\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "halves.py").write_text(text + change)
        (tmp_path / folder / "tern.compll").write_text(tern + change)
        pairs.append([Compression.named(str(tmp_path / folder / name)) for name in ("halves.py", "tern.compll")])
    for mine, theirs in zip(*pairs, strict=True):
        job = MemoryJob(2)
        first, second = (Communicator(driver, timeout_s=1) for driver in job.drivers)
        handle = first.allreduce_async(np.ones(9, np.float32), compression=mine)
        second.allreduce_async(np.ones(9, np.float32), compression=theirs)
        with pytest.raises(CallMismatch):
            handle.wait()


def test_options_are_compared_to_their_last_digit() -> None:
    assert Compression.named("topk", ratio=0.1).name != Compression.named("topk", ratio=0.1000001).name
    assert Compression.named("topk", ratio=1).name == Compression.named("topk", ratio=1.0).name


def test_differences_between_workers_are_mismatches() -> None:
    for other in (Compression.packed(8, seed=1), Compression.packed(7), Compression.named("topk"), None):
        job = MemoryJob(2)
        first, second = (Communicator(driver, timeout_s=1) for driver in job.drivers)
        handle = first.allreduce_async(np.ones(9, np.float32), compression=Compression.packed(8))
        second.allreduce_async(np.ones(9, np.float32), compression=other)
        with pytest.raises(CallMismatch):
            handle.wait()


@pytest.mark.parametrize(
    ("how", "parts"),
    [
        ({"op": "max"}, {"value": "max", "allowed": ("sum", "mean")}),
        ({"op": "mean", "weight": 3}, {"value": 3}),
        ({"dtype": "int32"}, {"value": "int32"}),
    ],
)
def test_arrays_that_cannot_be_compressed_are_refused(how: dict[str, Any], parts: dict[str, Any]) -> None:
    value = np.ones(4, np.int32 if "dtype" in how else np.float32)
    with raises(InvalidTensor, **parts):
        Communicator(MemoryJob(2).drivers[0]).allreduce_async(value, compression=Compression.packed(8), **how)


def test_unknown_codecs_and_options_are_refused() -> None:
    with raises(InvalidTensor, place="codec topk", value="rate", allowed=("ratio",)):
        Compression.named("topk", rate=3)
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("top", {}),
        ("topk", {"ratio": 0}),
        ("dgc", {"momentum": 1}),
        ("tbq", {"threshold": -1}),
        ("uniform", {"bits": 9}),
        ("blocks", {"block": 0}),
        ("terngrad", {"clip": 0}),
        ("terngrad", {"clip": float("inf")}),
        ("packed", {"bits": 5}),
    ]
    for codec, options in wrong:
        with pytest.raises(InvalidTensor):
            Compression.named(codec, **options)
    with pytest.raises(InvalidTensor):
        Job(64, "packed", bits=6).reduce(arrays(64, 5))


def test_a_residual_of_another_size_is_refused() -> None:
    job = Job(2, "packed")
    job.reduce(arrays(2, 10))
    with raises(InvalidTensor, place="tensor 'tensor'", value=11):
        job.reduce(arrays(2, 11))


def test_the_codec_of_the_guide_is_used_by_its_path(tmp_path: Path) -> None:
    """docs/compression.md has a whole file."""
    guide = (ROOT / "docs" / "compression.md").read_text()
    (text,) = [block.split("```")[0] for block in guide.split("```python\n") if "DESCRIPTION = " in block]
    (tmp_path / "halves.py").write_text(text)
    values = arrays(3, 50)
    for result in Job(3, str(tmp_path / "halves.py")).reduce(values):
        assert result.tolist() == np.sum(np.stack(values).astype(np.float16).astype(np.float32), axis=0).tolist()


def test_a_gathered_array_needs_no_lost_worker() -> None:
    """A codec's all-gather goes on without a worker; a plain one does not."""
    job = Job(2, "onebit")
    job.job.lost[1] = 0
    handles = [member.all_gather_async(np.ones(3)) for member in job.members]
    with pytest.raises(WorkerMissing):
        handles[0].wait()
    assert job.reduce(arrays(2, 50))[0].shape == (50,)
