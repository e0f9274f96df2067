"""Settings of a rank from its environment: empty variables are defaults, wrong ones are refused by name."""

from __future__ import annotations

import pytest

from weir.hosts.errors import InvalidPlan
from weir.hosts.torch.settings import Settings

NAMES = ("MESH", "PRIORITY", "POLICY", "MIN_BYTES", "SLOTS", "TIMEOUT", "HOST", "NIC", "CONTROL")


def test_an_empty_variable_is_as_good_as_none() -> None:
    assert Settings.read({f"WEIR_{name}": "" for name in NAMES}) == Settings.read({})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("POLICY", "hope"),
        ("POLICY", " continue"),
        ("MIN_BYTES", "-1"),
        ("MIN_BYTES", "4k"),
        ("SLOTS", "3"),
        ("SLOTS", "1"),
        ("MESH", "2x0"),
        ("MESH", "a"),
        ("PRIORITY", "8"),
        ("PRIORITY", "high"),
        ("TIMEOUT", "nan"),
        ("TIMEOUT", "1e-9"),
        ("TIMEOUT", "-3"),
        ("CONTROL", "nowhere"),
        ("CONTROL", "10.0.9.9:99999"),
        ("HOST", "h1,h2"),
    ],
)
def test_a_wrong_variable_is_refused_by_its_name_in_one_line(name: str, value: str) -> None:
    with pytest.raises(InvalidPlan) as refused:
        Settings.read({f"WEIR_{name}": value, "LOCAL_RANK": "2"})
    assert f"WEIR_{name}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_ranks_of_one_machine_have_their_own_hosts() -> None:
    assert [Settings.read({"WEIR_HOST": "h1,h2", "LOCAL_RANK": str(rank)}).host for rank in (0, 1)] == ["h1", "h2"]
