"""Layout of gatherings: the chunks that a worker needs, and its own words, which it does not get back."""

from __future__ import annotations

import numpy as np
import pytest

from weir.hosts.collectives.gathering import Gathering


@pytest.mark.parametrize("seed", range(20))
def test_a_worker_needs_the_chunks_with_words_of_others_and_no_more(seed: int) -> None:
    """Other chunks come back with any numbers in them."""
    rng = np.random.default_rng(seed)
    ranks, lanes = int(rng.integers(1, 9)), int(rng.choice([32, 256]))
    sizes = [0, 1, 7, 30, 31, 254, 255, 600, int(rng.integers(2000))]
    gathering = Gathering(ranks, int(rng.choice(sizes)), lanes)
    words = rng.integers(-(2**31), 2**31, (ranks, gathering.words), np.int32)
    total = sum(gathering.contribution(rank, words[rank]) for rank in range(ranks))
    for rank in range(ranks):
        others = np.zeros(gathering.chunks, np.bool_)
        for other in set(range(ranks)) - {rank}:
            others |= gathering.chunks_of(other)
        wanted = np.zeros(gathering.chunks * lanes, np.bool_)
        for first, end in gathering.part_of(rank)["wanted"]:
            assert 0 <= first <= end <= wanted.size
            wanted[first:end] = True
        needed = np.asarray(wanted.reshape(-1, lanes).all(axis=1))
        assert needed.tolist() == others.tolist()
        assert wanted.sum() == needed.sum() * lanes
        received = np.where(needed[:, None], total, rng.integers(-9, 9, np.shape(total), np.int32))
        parts, present = gathering.parts(received, rank, words[rank])
        assert parts[:, : gathering.words].tolist() == words.tolist()
        assert present.all()


def test_ranks_take_short_turns() -> None:
    """A worker gets no lanes in its own turn, so a long one would leave its link idle."""
    ranks, words = 5, 20_000
    gathering = Gathering(ranks, words)
    own = np.array([gathering.chunks_of(rank) for rank in range(ranks)])
    assert own.sum(axis=0).tolist() == [1] * gathering.chunks
    for first in range(gathering.chunks - 50):
        assert own[:, first : first + 50].sum(axis=1).min() >= 5
