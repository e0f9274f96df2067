"""Gathers and parts of sums by the back end of torch.distributed, over emulated fabrics with PRESENT and without."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from weir.experiments.backends.real_time import RealTimeFabric
from weir.tests.hosts.torch.rig import HOSTS, Ranks, running_fabric_of
from weir.topologies.targets import BMV2, SIMPLE_SWITCH, Target

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None, reason="PyTorch is not installed (pip install 'weir-fabric[torch]')"
)

RANKS = 3
SCENARIOS = "weir.tests.hosts.torch.copy_scenarios"


class Setting:
    """Ranks over a fabric, and the path of their gathers."""

    def __init__(self, target: Target, ranks: Ranks, fabric: RealTimeFabric) -> None:
        self.path = "fabric" if target.present_lanes >= target.lanes else "gloo"
        self.play = ranks.play
        self.fabric = fabric


@pytest.fixture(scope="module", params=[BMV2, SIMPLE_SWITCH], ids=lambda target: target.name)
def setting(request: pytest.FixtureRequest) -> Iterator[Setting]:
    with running_fabric_of(request.param) as (told, fabric):
        forker = Ranks(told, SCENARIOS)
        try:
            yield Setting(request.param, forker, fabric)
        finally:
            forker.close()


def test_gathers_have_the_bits_of_all_ranks_in_every_form(setting: Setting) -> None:
    calls = {f"{setting.path} all_gather": 2 * 7 + 3 + 1 + 2 + 1, "gloo all_gather_single": 1}
    assert setting.play("gathers") == [[[], calls]] * RANKS


def test_sharded_training_gives_the_weights_that_it_gives_over_gloo(setting: Setting) -> None:
    played = setting.play("sharded")
    for differences, (wrong, carried, digest), wrong_over_gloo in played:
        assert max(differences) < 1e-5
        assert wrong == wrong_over_gloo == []
        assert (carried > 20) == (setting.path == "fabric")
        assert digest == played[0][1][2]


def test_a_killed_rank_ends_a_gather_at_the_others(setting: Setting) -> None:
    *others, dead = setting.play("gathers_after_a_loss", WEIR_POLICY="abort")
    assert dead == {"exit": -9}
    for kind, text in others:
        assert kind in ("AllreduceAborted", "RuntimeError")
        assert "rank 2 (h3) failed" in text or (setting.path == "gloo" and "onnection" in text)


def test_a_lost_ranks_part_is_missed_under_continue(setting: Setting) -> None:
    if setting.path == "gloo":
        pytest.skip("Gloo needs all ranks")
    *others, _ = setting.play("gathers_after_a_loss", WEIR_POLICY="continue")
    assert [kind for kind, _ in others] == ["WorkerMissing"] * (RANKS - 1)


def test_gathers_of_different_sizes_fail_at_every_rank(setting: Setting) -> None:
    if setting.path == "gloo":
        pytest.skip("Gloo compares no sizes")
    kinds = [kind for kind, _ in setting.play("gathers_differ")]
    assert {*kinds} <= {"CallMismatch", "AllreduceAborted"}


@pytest.mark.parametrize(
    ("call", "up", "down"),
    [
        ("all_reduce", (1, 1, 1), (1, 1, 1)),
        ("reduce", (1, 1, 1), (0, 1, 0)),
        ("reduce_scatter", (1, 1, 1), (1 / 3, 1 / 3, 1 / 3)),
        ("all_gather", (1 / 3, 1 / 3, 1 / 3), (2 / 3, 2 / 3, 2 / 3)),
        ("broadcast", (0, 1, 0), (1, 0, 1)),
    ],
)
def test_links_of_hosts_carry_lanes_only_where_they_are_needed(
    setting: Setting, call: str, up: tuple[float, ...], down: tuple[float, ...]
) -> None:
    """Bytes as parts of the whole tensor's: a packet has 1,094 bytes for 1,024 of numbers, and 70 without lanes."""
    if setting.path == "gloo":
        pytest.skip("switches of this kind take no packets without lanes on the way up")
    before = dict(setting.fabric.link_bytes())
    size = setting.play("one_call", CALL=call)[0]
    for host, sent, received in zip(HOSTS, up, down, strict=False):
        (link,) = [link for link in setting.fabric.topology.links if host in (link.a.node, link.b.node)]
        ends = (link.a, link.b) if link.a.node == host else (link.b, link.a)
        for end, part in zip(ends, (sent, received), strict=True):
            carried = (setting.fabric.link_bytes()[end] - before[end]) / size
            expected = (part * 1094 + (1 - part) * 70) / 1024
            assert expected - 0.01 <= carried <= 1.15 * expected + 0.1, (host, end, part)
