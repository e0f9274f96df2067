"""Compressing hooks of DistributedDataParallel, over switches and over Gloo: the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from weir.tests.hosts.torch.rig import Ranks, running_fabric

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None, reason="PyTorch is not installed (pip install 'weir-fabric[torch]')"
)

RANKS = 3


@pytest.fixture(scope="module")
def played() -> Iterator[list[dict[str, Any]]]:
    with running_fabric() as told:
        forker = Ranks(told)
        try:
            yield forker.play("compressed", RANKS)
        finally:
            forker.close()


def test_ranks_and_back_ends_have_the_same_bits(played: list[dict[str, Any]]) -> None:
    for name, (digest, _, _) in played[0]["gloo"]["trained"].items():
        digests = {rank["gloo"]["trained"][name][0] for rank in played}
        assert digests == {digest}, name
        if name in ("blocks", "randomk"):  # float32 sums, which Gloo rounds and switches do not
            continue
        assert {rank["weir"]["trained"][name][0] for rank in played} == digests, name


def test_a_codec_in_compll_trains_as_the_built_in_one(played: list[dict[str, Any]]) -> None:
    trained = played[0]["gloo"]["trained"]
    assert trained["compll"] == trained["tbq"]


def test_every_codec_trains(played: list[dict[str, Any]]) -> None:
    for backend in ("weir", "gloo"):
        for name, (_, before, after) in played[0][backend]["trained"].items():
            assert after < 0.9 * before, (backend, name)


def test_lanes_go_through_the_switches(played: list[dict[str, Any]]) -> None:
    assert played[0]["weir"]["carried"]["fabric all_reduce"] >= 15 * 4


def test_state_is_kept_by_parameter(played: list[dict[str, Any]]) -> None:
    for rank in played:
        for backend in ("weir", "gloo"):
            assert all(rank[backend]["residuals"].values()), rank[backend]["residuals"]


def test_other_options_at_a_rank_are_refused_at_all_ranks(played: list[dict[str, Any]]) -> None:
    """The error has the ranks by what they have; the group stays in step."""
    for backend in ("weir", "gloo"):
        errors = [rank[backend]["mismatches"] for rank in played]
        assert errors[0] == errors[1] == errors[2]
        assert errors[0].pop("after them") == "[3.0, 3.0, 3.0]"
        assert errors[0].pop("in a backward pass").count("packed8+feedback, seed ") == RANKS
        assert len(errors[0]) == 12 + 4
        for words, text in errors[0].items():
            assert words in text
            assert text.startswith("process group: the ranks' hooks differ: rank 1: "), text
            assert "; ranks 0, 2: " in text


def test_hooks_have_the_sums_of_the_fabric_for_arrays_of_any_size(played: list[dict[str, Any]]) -> None:
    for rank in played:
        for backend in ("weir", "gloo"):
            assert all(rank[backend]["tails"].values()), rank[backend]["tails"]


def test_finite_numbers_that_become_nan_are_logged_once(played: list[dict[str, Any]]) -> None:
    for backend in ("weir", "gloo"):
        told = [rank[backend]["out of range"] for rank in played]
        assert not any(any(lines) for lines in told[0].values())
        assert {case: len(lines) for case, lines in told[1].items()} == {case: case != "no number" for case in told[1]}
        assert "1.18633e+07" in told[1]["scale"][0]
        assert "3.40282e+38" in told[1]["float32"][0]


def test_models_of_one_group_share_a_backward_pass(played: list[dict[str, Any]]) -> None:
    """Also two with plans, whose calls are made by another thread: in the same order at all ranks."""
    for backend in ("weir", "gloo"):
        found = [rank[backend]["together"] for rank in played]
        assert found[0]["at once"] == found[0]["apart"]
        assert found[0] == found[1] == found[2]


def test_hooks_fit_accumulation_and_static_graphs(played: list[dict[str, Any]]) -> None:
    found = [rank["gloo"]["accumulated"] for rank in played]
    assert found == [rank["weir"]["accumulated"] for rank in played]
    assert found[0] == found[1] == found[2]


def test_a_plan_trains_with_the_same_bits_at_all_ranks(played: list[dict[str, Any]]) -> None:
    for backend in ("weir", "gloo"):
        found = [rank[backend]["planned"] for rank in played]
        assert len({each["digest"] for each in found}) == 1
        assert len({each["unused"] for each in found}) == 1
        for each in found:
            before, after = each["losses"]
            assert after < 0.9 * before
            assert (each["raw mean"], each["an infinity is a NaN"], each["ordered"]) == (True, True, True)
            assert each["kinds"] == ["decode", "encode", "merge", "send"]
            assert each["refused"] == 3
