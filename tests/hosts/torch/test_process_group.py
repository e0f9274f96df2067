"""The back end of torch.distributed over an emulated fabric: three ranks, each a process with a relay of its own."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import groupby

import pytest

from weir.tests.hosts.torch.rig import DIES_AT, EVERYONE, LEASE_NS, TOGETHER, Ranks, running_fabric

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None, reason="PyTorch is not installed (pip install 'weir-fabric[torch]')"
)

RANKS = 3
BOUND_S = 50.0
"""Seconds within which the others receive the loss of a rank, on any machine: ten leases."""


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with running_fabric() as told:
        forker = Ranks(told)
        try:
            yield forker
        finally:
            forker.close()


def test_sums_have_the_bits_of_the_reference_in_every_form(ranks: Ranks) -> None:
    for wrong, carried, backend in ranks.play("sums"):
        assert wrong == []
        assert backend == "weir"
        assert carried == {
            "fabric all_reduce": 8 + 1 + 1 + 2 + 1 + 1,
            "fabric reduce": 1,
            "fabric reduce_scatter": 2,
            "gloo allreduce": 1,
            "gloo allgather": 2,
        }


def test_composed_tensors_are_refused_and_the_group_goes_on(ranks: Ranks) -> None:
    assert ranks.play("composed") == [[{"DTensor": ["InvalidTensor"], "MaskedTensor": ["InvalidTensor"]}, []]] * RANKS


def test_large_broadcasts_go_through_switches_bit_by_bit(ranks: Ranks) -> None:
    assert ranks.play("broadcasts") == [[[], {"fabric broadcast": 7, "gloo broadcast": 1}, 1]] * RANKS


def test_a_broadcast_needs_only_its_source_under_continue(ranks: Ranks) -> None:
    *others, dead = ranks.play("broadcasts_after_a_loss", WEIR_POLICY="continue")
    assert dead == {"exit": -9}
    assert others == [[True, "WorkerMissing"]] * 2


def test_accelerator_tensors_are_copied_on_separate_streams(ranks: Ranks) -> None:
    """A runtime of the tests' own, as there is no GPU: in the order that CUDA needs, through memory pinned once."""
    assert ranks.play("staged") == [[[True] * 3, [1 << 16]]] * RANKS


def test_no_thread_outlives_the_interpreter(ranks: Ranks) -> None:
    """One that frees a tensor then ends the process by SIGABRT: in half of the runs of four ranks, one did."""
    assert ranks.play("threads_at_the_end") == [[["weir relay", "weir sum", "weir sums"], []]] * RANKS


def test_groups_are_jobs_of_their_own(ranks: Ranks) -> None:
    assert ranks.play("groups") == [[True] * 3] * RANKS


@pytest.mark.parametrize("mesh", ["2x2", ""])
def test_the_groups_of_a_mesh_are_registered_at_once_as_one_family(ranks: Ranks, mesh: str) -> None:
    assert ranks.play("mesh", 4, WEIR_MESH=mesh, WEIR_PRIORITY="3") == [[[True] * 4, True, [True] * 5]] * 4


def test_a_lost_row_of_a_mesh_ends_the_whole_family(ranks: Ranks) -> None:
    for text in ranks.play("mesh_with_a_failure", 4, WEIR_MESH="2x2"):
        assert "a group of it, is over: rank 1 (h4) failed: HostError: its process group was aborted" in text


@pytest.mark.parametrize(
    ("settings", "kind", "text"),
    [
        ({"WEIR_MESH": "2x2", "WEIR_SLOTS": "1024"}, "ControlRefused", "no switch has room for the job of h1, h3"),
        ({"WEIR_MESH": "3x3"}, "InvalidPlan", "mesh: 3x3 has 9 ranks, and the job 4"),
    ],
)
def test_a_mesh_without_room_is_refused_at_the_start(
    ranks: Ranks, settings: dict[str, str], kind: str, text: str
) -> None:
    answers = ranks.play("mesh", 4, **settings)
    assert [answer["error"] for answer in answers] == [kind] * 4
    assert all(text in answer["text"] and "\n" not in answer["text"] for answer in answers)


def test_a_compiled_model_trains_as_an_uncompiled_one(ranks: Ranks) -> None:
    """Torch.compile around DistributedDataParallel, the order that PyTorch recommends, and within it."""
    plain, *compiled = {tuple(found) for found in ranks.play("compiled")}.pop()
    assert compiled == [plain] * 2


def test_training_has_the_bits_of_local_sums(ranks: Ranks) -> None:
    """Buckets with layers of many scales, one or several to a step, unused parameters, no_sync, uneven or no inputs."""
    played = ranks.play("training")
    first, _ = played[0]
    assert first["weir"][0] == first["weir"][1]  # layers are summed as alone, whatever bucket they are in
    assert len(set(first["weir"])) == len(first["weir"]) - 1
    for digests, sums in played:
        assert digests == {"weir": first["gloo"], "gloo": first["gloo"]}
        assert sums >= 4 * 5


def test_a_bucket_is_as_exact_as_its_layers_alone(ranks: Ranks) -> None:
    """Layers have scales 1e-6 … 1, all in one bucket, from the first step on."""
    for buckets, found in ranks.play("scaled_bucket"):
        assert buckets == str(4 * 300 * 7)
        assert found == [True] * 3 * 7


def test_buckets_are_recognised_by_reducer_and_not_by_size(ranks: Ranks) -> None:
    """Models with equal buckets have their own layers' bits, below 4 KiB too; a sum of that size is one tensor."""
    assert ranks.play("equal_buckets") == [[True] * (3 * 8 + 2)] * RANKS


def test_parts_of_reduce_scatter_and_sharded_layers_keep_digits(ranks: Ranks) -> None:
    for found in ranks.play("parts_of_many_scales"):
        assert len(found) == 3 + 2 * (6 + 5 + 5)
        assert {name: error for name, error in found.items() if error > 1e-6} == {}


def test_only_buckets_are_scaled_when_a_rank_is_lost(ranks: Ranks) -> None:
    *others, dead = ranks.play("bucket_sized", WEIR_POLICY="continue", WEIR_MIN_BYTES="0")
    assert dead == {"exit": -9}
    assert others == [[[1.0], [2.0]]] * 2


def test_hooks_and_sharded_training(ranks: Ranks) -> None:
    assert ranks.play("hooks") == [{"fp16": True, "bf16": True, "power": True, "zero": True, "fsdp2": True}] * RANKS


def test_the_controller_decides_the_ranks_batch_sizes(ranks: Ranks) -> None:
    (sizes, *others) = ranks.play("balanced")
    assert others == [sizes, sizes]
    assert sizes[0] == [30, 30, 30]
    assert {sum(step) for step in sizes} == {90}
    assert sizes[-1][2] < 20 < min(sizes[-1][:2])


def test_switches_sum_int32_modulo_2_32_and_gloo_other_integers(ranks: Ranks) -> None:
    assert ranks.play("integers") == [[[], 2, 2]] * RANKS


def test_a_script_reports_its_progress(ranks: Ranks) -> None:
    first, *others = ranks.play("reported")
    assert first[:5] == [3, "decay", 1.5, 0.5, 4_000]
    assert first[5] >= 20_000
    assert others == [None, None]


def test_a_rank_reports_for_what_it_has_computed_and_waited(ranks: Ranks) -> None:
    """Rank 0 computes for 0.2 s and then waits 0.3 s for a late rank; the times are in what the controller lists."""
    (compute_ns, exposed_ns, whole_ns), *_ = ranks.play("phases")
    assert compute_ns >= 200_000_000
    assert exposed_ns >= 300_000_000
    assert compute_ns + exposed_ns <= whole_ns


def test_calls_that_differ_fail_at_every_rank(ranks: Ranks) -> None:
    """A slow rank may learn of the abort, or that nobody compares calls any more, before it gets the comparison."""
    for outcomes in zip(*ranks.play("mismatch"), strict=True):
        kinds, texts = zip(*(outcome["result"] for outcome in outcomes), strict=True)
        assert {*kinds} <= {"CallMismatch", "AllreduceAborted"}
        assert any("the workers' calls differ" in text for text in texts)
        assert all("the workers' calls differ" in text or "do not make the same call" in text for text in texts)


def test_no_sum_has_numbers_of_different_calls_after_one_was_refused_at_a_rank_alone(ranks: Ranks) -> None:
    """The ranks' sums would be right in size and type, of step k at some and of step k + 1 at the other."""
    raised = {"float8": "RuntimeError", "parts": "ValueError"}
    everybody = ranks.play("refused")
    for found in everybody:
        assert len(found) == 7
        for name, (kind, total, after) in found.items():
            assert (kind, total) == (raised.get(name, "InvalidTensor"), [RANKS])
            assert after is not None, name
            assert after[0] in ("CallMismatch", "AllreduceAborted"), name
            assert "refused calls before: 2" in after[1] or "do not make the same call" in after[1], name
    for name in everybody[0]:  # a slow rank may learn that calls differ before it gets the comparison
        assert any("rank 1 (h2): refused calls before: 2" in found[name][2][1] for found in everybody), name


def test_strided_tensors_are_right_and_gaps_unchanged(ranks: Ranks) -> None:
    assert ranks.play("strided") == [[]] * RANKS


def test_steps_without_a_departed_rank_fail_everywhere(ranks: Ranks) -> None:
    first, *others = ranks.play("uneven", WEIR_POLICY="abort")
    assert [step["result"] for step in first] == [None] * 3
    for steps in others:
        assert [step["result"] for step in steps[:3]] == [None] * 3
        for step in steps[3:]:
            kind, text = step["result"]
            assert kind in ("WorkerLeft", "RuntimeError"), "a future keeps the text alone"
            assert "rank 0 (h1) left the job after" in text
            assert step["seconds"] < BOUND_S


def test_a_call_over_both_switches_and_gloo_fails_everywhere(ranks: Ranks) -> None:
    """The error names both calls, before a time-out; the first rank to detect it may have sent its reason to the
    others.
    """
    for outcomes in ranks.play("ways_differ"):
        for number, outcome in enumerate(outcomes, 1):
            kind, text = outcome["result"]
            assert kind in ("CallMismatch", "AllreduceAborted")
            assert f"the ranks' calls differ in call {number} of the group: rank 1 (h2): " in text
            assert "all_reduce SUM of 5000 torch.float32 through the switches" in text
            assert "broadcast of 7 torch.int64 over Gloo" in text


def test_waiting_over_gloo_ends_by_ctrl_c_and_by_an_abort(ranks: Ranks) -> None:
    assert ranks.play("waits_over_gloo") == [
        ["interrupted", "AllreduceAborted", "the process group was aborted"],
        [],
        [],
    ]


def test_a_killed_rank_is_told_to_the_others_under_abort(ranks: Ranks) -> None:
    *others, dead = ranks.play("killed", WEIR_POLICY="abort")
    assert dead == {"exit": -9}
    for ended, _, after, _ in others:
        for each in (ended, after):
            kind, text = each["result"]
            assert kind == "AllreduceAborted"
            assert "rank 2 (h3) failed" in text
            assert "its training process" in text
        assert ended["seconds"] < BOUND_S


def test_the_others_go_on_without_a_killed_rank_under_continue(ranks: Ranks) -> None:
    *others, dead = ranks.play("killed", WEIR_POLICY="continue")
    assert dead == {"exit": -9}
    for ended, values, after, means in others:
        assert ended["result"] is None
        assert values == [3.0]  # the sum of those who are left
        assert after["result"] is None
        assert means == [1.5]
        assert ended["seconds"] < BOUND_S


def test_the_wait_for_a_rank_that_cannot_come_back_ends(ranks: Ranks) -> None:
    *others, _ = ranks.play("killed", WEIR_POLICY="wait")
    for ended, *_ in others:
        kind, text = ended["result"]
        assert kind == "AllreduceAborted"
        assert "it cannot come back" in text


def test_a_call_that_another_rank_omits_times_out(ranks: Ranks) -> None:
    """A slow rank may learn of the other's time-out, which aborts the job, before its own."""
    *others, _ = ranks.play("silent")
    kinds, texts = zip(*(other["result"] for other in others), strict=True)
    assert "AllreduceTimeout" in kinds
    assert {*kinds} <= {"AllreduceTimeout", "AllreduceAborted"}
    assert all("no sum after 2 s" in text for text in texts)


def test_an_abort_ends_what_waits_and_is_told_to_the_others(ranks: Ranks) -> None:
    (own, errored), *others = ranks.play("aborted")
    assert own["result"] == ["AllreduceAborted", "the process group was aborted"]
    assert errored == "the process group was aborted"
    for ended, reason in others:
        kind, text = ended["result"]
        assert kind == "AllreduceAborted"
        assert text == reason
        assert "its process group was aborted" in text


def test_a_group_is_destroyed_while_its_first_sum_waits(ranks: Ranks) -> None:
    own, *others = ranks.play("destroyed_early")
    assert own["result"] is None
    assert own["seconds"] < BOUND_S
    assert others == [None, None]


def test_a_rank_that_waits_can_be_interrupted(ranks: Ranks) -> None:
    assert ranks.play("interrupted") == ["interrupted", "summed", "summed"]


def test_a_group_reconfigures_without_a_lost_rank_and_with_it(ranks: Ranks) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    *others, lost = ranks.play("configured_anew", STORE_PORT=str(port))
    assert lost == [[111.0, 3], [111.0, 3]]
    for other in others:
        assert other == [[111.0, 3], "AllreduceAborted", True, True, [11.0, 2], [111.0, 3]]


@pytest.fixture(scope="module")
def undisturbed(ranks: Ranks) -> str:
    """Weights of the uninterrupted training."""
    played = ranks.play("comes_back")
    steps = DIES_AT + TOGETHER
    assert [outcome["made"] for outcome in played] == [[[step, EVERYONE] for step in range(steps)]] * RANKS
    (weights,) = {str(outcome["weights"]) for outcome in played}
    return weights


@pytest.mark.parametrize("policy", ["abort", "wait"])
def test_a_restarted_process_continues_at_the_step_of_its_death(ranks: Ranks, undisturbed: str, policy: str) -> None:
    """Weights and momentum come from a survivor: the result has the bits of uninterrupted training."""
    *survivors, again = ranks.play("comes_back", WEIR_POLICY=policy, DIES="1")
    assert again["statuses"] == [-9, 0]
    made = [[step, EVERYONE] for step in range(DIES_AT + TOGETHER)]
    assert made in [survivor["made"] for survivor in survivors]
    for survivor in survivors:  # one may have had a step's sum when the group ended, and the other have taken its state
        assert survivor["made"] in (made, [step for step in made if step[0] != DIES_AT - 1])
    assert again["made"] == [[step, EVERYONE] for step in range(DIES_AT, DIES_AT + TOGETHER)]
    assert {each["weights"] for each in (*survivors, again)} == {undisturbed}


def test_a_restarted_process_rejoins_after_the_others_went_on(ranks: Ranks) -> None:
    *survivors, again = ranks.play("comes_back", WEIR_POLICY="continue", DIES="1")
    assert again["statuses"] == [-9, 0]
    first = again["made"][0][0]
    assert first > DIES_AT
    assert again["made"] == [[step, EVERYONE] for step in range(first, again["steps"])]
    without = [[step, EVERYONE - 100] for step in range(DIES_AT, first)]
    made = [[step, EVERYONE] for step in range(DIES_AT)] + without + again["made"]
    assert made in [survivor["made"] for survivor in survivors]
    for survivor in survivors:  # one may have had a step's sum when the group ended, and the other have taken its state
        assert survivor["made"] in (made, [step for step in made if step[0] != first - 1])
    assert len({each["weights"] for each in (*survivors, again)}) == 1


@pytest.mark.skipif(find_spec("torchft") is None, reason="torchft is not installed (pip install torchft)")
def test_torchft_readmits_a_replica_killed_in_mid_step(ranks: Ranks) -> None:
    """The weights and optimizer come from a survivor, at a step's boundary; the others continue meanwhile."""
    *survivors, again = ranks.play("recovered", WEIR_POLICY="abort")
    assert again["statuses"] == [-9, 0]
    for survivor in survivors:
        steps = [step for step, _ in survivor["committed"]]
        assert steps == list(range(len(steps)))  # none was lost, and none made twice
        took = [took for took, _ in groupby(took for _, took in survivor["committed"])]
        assert took[:2] == [3, 2]
        assert took[-1] == 3  # a busy machine's heartbeats may lapse, which leaves one out for some steps more
    first = again["committed"][0][0]
    assert first > DIES_AT
    assert [took for _, took in again["committed"][-TOGETHER:]] == [3] * TOGETHER
    assert survivors[0]["committed"] == survivors[1]["committed"]
    assert survivors[0]["committed"][first:] == again["committed"]
    assert len({each["weights"] for each in (*survivors, again)}) == 1
    assert again["sums"] >= TOGETHER


def test_leases_are_short_here() -> None:
    assert LEASE_NS < BOUND_S * 1e9
