"""A stream of tensors, asked for rounds of several at once."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from weir.hosts.numerics.tensors import Tensor
from weir.hosts.protocol.rounds import RoundStore
from weir.hosts.protocol.stream import TensorStream
from weir.wire.aggregation import LANES, MessageType

LEAD = 4


SCALE, CONTRIBUTION, PRESENT = MessageType.SCALE, MessageType.CONTRIBUTION, MessageType.PRESENT


def appended(stream: TensorStream, chunks: int, weight: int = 1, adds: NDArray[np.bool_] | None = None) -> Tensor:
    """A tensor at the stream's end: as many scale rounds as it has chunks, but LEAD at most, and the chunks' rounds."""
    tensor = Tensor(np.arange(chunks * LANES, dtype=np.int32) + stream.end, workers=2, weight=weight, adds=adds)
    tensor.place(len(stream.tensors), stream.end, LEAD)
    stream.append(tensor)
    return tensor


def test_rounds_of_unlike_tensors_are_told_apart() -> None:
    """Sums of whole numbers may wrap, those of floating ones do not."""
    stream = TensorStream(0)
    starts: list[int] = []
    for values in (np.ones(600, np.float32), np.ones(600, np.int32), np.ones(600, np.float32)):
        tensor = Tensor(values, workers=2)
        tensor.place(len(starts), stream.end, 16)
        stream.append(tensor)
        starts.append(tensor.start)
    every = np.arange(stream.end)
    whole = (starts[1] <= every) & (every < starts[2])
    assert np.array_equal(stream.may_wrap(every), whole)
    assert stream.may_wrap(every[whole]) is True
    assert stream.may_wrap(every[: starts[1]]) is False


@pytest.mark.parametrize("seed", range(12))
def test_the_oldest_agreed_rounds_are_sent_once_per_generation(seed: int) -> None:
    """A round that has lanes waits for its tensor's scale rounds, LEAD before it, while later tensors' go on."""
    choice = random.Random(seed)
    first, span = choice.choice([0, 3, 1000]), choice.choice([5, 16, 32])
    stream, store = TensorStream(first), RoundStore(64)
    tensors: list[Tensor] = []
    sent: set[int] = set()
    complete: set[int] = set()

    def ready(number: int) -> bool:
        (tensor,) = (laid_tensor for laid_tensor in tensors if laid_tensor.start <= number < laid_tensor.end)
        agreed = number - tensor.scale_rounds
        return number not in sent and number not in complete and (agreed < tensor.start or agreed in complete)

    for _ in range(300):
        if len(stream.tensors) < 6 and choice.random() < 0.5:
            tensors.append(appended(stream, choice.randint(1, 9)))
        for number in choice.sample(sorted(sent), len(sent) * choice.randint(0, 2) // 2):
            store.round[number % 64] = number
            complete.add(number)
            sent.remove(number)
        stream.advance(store)
        base = next(number for number in range(first, stream.end + 1) if number not in complete)
        assert stream.base == base
        assert stream.tensors == [laid_tensor for laid_tensor in tensors if laid_tensor.end > base]
        if choice.random() < 0.05:
            stream.restart()
            sent.clear()
        room, limit = choice.randint(0, 9), min(base + span, stream.end)
        expected = [number for number in range(base, limit) if ready(number)][:room]
        assert stream.sendable(room, span, store).tolist() == expected
        assert stream.sendable(0, span, store).tolist() == []
        sent.update(expected)
        if len(expected) < room:
            assert stream.sendable(1, 1, store).tolist() == []
            if waiting := [number for number in range(base, limit) if number not in sent | complete]:
                agreed = next(laid_tensor for laid_tensor in tensors if laid_tensor.end > waiting[0]).scale_rounds
                assert not stream.holds_older(stream.end, store)
                store.round[(waiting[0] - agreed) % 64] = waiting[0] - agreed
                assert not stream.holds_older(waiting[0], store)
                assert stream.holds_older(waiting[0] + 1, store)
                complete.add(waiting[0] - agreed)
                sent.discard(waiting[0] - agreed)


def test_a_stream_that_is_cut_before_a_tensor_goes_on_from_there() -> None:
    stream, store = TensorStream(7), RoundStore(64)
    before, cut, after = (appended(stream, chunks) for chunks in (2, 3, 4))
    assert stream.sendable(64, 64, store).tolist() == [7, 8, 11, 12, 13, 17, 18, 19, 20]
    store.round[[7, 8]] = [7, 8]
    stream.cut_before(cut, store)
    assert (stream.end, stream.tensors) == (11, [before])
    assert stream.holds_older(10, store)
    assert stream.sendable(64, 64, store).tolist() == [9, 10]
    again = appended(stream, 1)
    assert (again.start, stream.tensors) == (11, [before, again])
    assert after not in stream.tensors
    assert stream.sendable(64, 64, store).tolist() == [11]
    store.round[[9, 10]] = [9, 10]
    stream.cut_before(again, store)
    store.round[11] = 11
    stream.advance(store)
    assert (stream.base, stream.tensors) == (11, [])


def test_rounds_carry_their_tensors_contents_in_any_order() -> None:
    stream = TensorStream(3)
    masks = (None, np.array([False]), np.arange(6) % 3 == 0, np.zeros(3, np.bool_))
    sizes = ((2, 1), (1, 5), (6, 3), (3, 2))
    tensors = [
        appended(stream, chunks, weight=weight, adds=mask) for (chunks, weight), mask in zip(sizes, masks, strict=True)
    ]
    rounds_of = {number: laid_tensor for laid_tensor in tensors for number in range(laid_tensor.start, laid_tensor.end)}
    added = [
        np.ones(laid_tensor.end - laid_tensor.start - laid_tensor.scale_rounds, np.bool_) for laid_tensor in tensors
    ]
    for flags, mask in zip(added, masks, strict=True):
        flags[:] = True if mask is None else mask
    adds = {
        each.start + each.scale_rounds + chunk: int(flag)
        for each, flags in zip(tensors, added, strict=True)
        for chunk, flag in enumerate(flags)
    }
    has_lanes = {number: number >= each.start + each.scale_rounds for number, each in rounds_of.items()}
    for asked in (list(rounds_of), list(reversed(rounds_of)), [3, 7], [6, 8], [3, 20], [9, 18, 10], [24], [20, 9]):
        rounds = np.array(asked)
        for presents, nothing in ((True, PRESENT), (False, CONTRIBUTION)):
            sent = [(nothing, CONTRIBUTION)[adds[number]] if has_lanes[number] else SCALE for number in asked]
            assert stream.kinds(rounds, presents=presents).tolist() == sent
        for with_lanes in (False, True):
            chosen = [number for number in asked if has_lanes[number] is with_lanes]
            if not chosen:
                continue
            exponents, weights, lanes = stream.contents(np.array(chosen), with_lanes)
            for row, number in enumerate(chosen):
                tensor, local = rounds_of[number], np.array([number - rounds_of[number].start])
                assert (exponents[row], weights[row]) == (tensor.exponents(local)[0], tensor.weight)
                assert lanes is None or np.array_equal(lanes[row], tensor.lanes(local)[0])
            assert (lanes is not None) is with_lanes


@pytest.mark.parametrize("seed", range(100))
def test_workers_with_different_rounds_agree_after_a_loss(seed: int) -> None:
    """They fetch the final rounds that they lack: those with lanes, and scale rounds of chunks with a final sum."""
    choice = random.Random(seed)
    sizes = [choice.randint(1, 6) for _ in range(choice.randint(1, 5))]
    plain = TensorStream(0)
    tensor_of = {}
    scale_of = {}
    for tensor in [appended(plain, chunks) for chunks in sizes]:
        tensor_of.update(dict.fromkeys(range(tensor.start, tensor.end), tensor.handle))
        scale_of.update(
            {index: index - tensor.scale_rounds for index in range(tensor.start + tensor.scale_rounds, tensor.end)}
        )
    base = choice.randint(0, plain.end - 1)
    final = set(range(base))
    for number in range(base, min(base + 2 * LEAD, plain.end)):
        if scale_of.get(number, 0) in final | {0} and choice.random() < 0.5:
            final.add(number)
    beyond = max(final, default=-1) + 1
    with_sum = {scale_of[number] for number in final if number in scale_of}
    laid = []
    for _ in range(3):
        stream, store = TensorStream(0), RoundStore(64)
        tensors = [appended(stream, chunks) for chunks in sizes]
        held = {number for number in final if number < base - LEAD or choice.random() < 0.6}
        store.round[sorted(held)] = sorted(held)
        for tensor in tensors:
            tensor.count_rounds(-sum(tensor_of[number] == tensor.handle for number in held))
        stream.advance(store)
        lacking = sorted(final - held)
        needed = [number for number in lacking if number in scale_of or number in with_sum]
        assert stream.agree_again(store, np.array(lacking, np.int64), LEAD).tolist() == needed
        ahead = np.arange(stream.base, beyond)
        assert np.array_equal(store.holds(ahead), ~np.isin(ahead, needed))
        later = [laid_tensor for laid_tensor in stream.tensors if laid_tensor.start >= beyond]
        laid.append([(each.handle, each.start, each.scale_rounds, each.end) for each in later])
        for each in later:
            fetches = sum(tensor_of[number] == each.handle for number in needed)
            assert each.remaining == each.end - each.start + fetches
            again = {number for number in scale_of if tensor_of[number] == each.handle and number not in final}
            assert each.end - each.start - each.scale_rounds == len(again)
    assert laid[0] == laid[1] == laid[2]
    assert {handle for handle, *_ in laid[0]} == {tensor_of[number] for number in scale_of if number not in final}
