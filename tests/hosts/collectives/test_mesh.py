"""Meshes of ranks: their texts, and their groups compared with coordinates counted one by one."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest

from weir.hosts.collectives.mesh import check_mesh, groups_along, groups_of, read_mesh
from weir.hosts.errors import InvalidPlan

SHAPES = [(1,), (5,), (2, 3), (3, 1, 2), (2, 2, 2), (2, 3, 4, 2)]


@pytest.mark.parametrize("shape", SHAPES)
def test_ranks_of_a_group_differ_in_one_coordinate(shape: tuple[int, ...]) -> None:
    coordinates = list(product(*map(range, shape)))  # by rank
    for at, groups in enumerate(groups_along(shape)):
        expected = {
            tuple(rank for rank, place in enumerate(coordinates) if place[:at] + place[at + 1 :] == rest)
            for rest in {place[:at] + place[at + 1 :] for place in coordinates}
        }
        assert {tuple(group) for group in groups} == expected
        assert len(groups) == prod(shape) // shape[at]


@pytest.mark.parametrize(("shape", "count"), [((1,), 0), ((5,), 0), ((5, 1), 1), ((2, 3), 5), ((2, 2, 2), 12)])
def test_groups_of_one_rank_and_the_job_itself_do_not_count(shape: tuple[int, ...], count: int) -> None:
    assert len(groups_of(shape)) == count


@pytest.mark.parametrize("shape", SHAPES)
def test_a_mesh_is_read_as_it_is_written(shape: tuple[int, ...]) -> None:
    text = "x".join(map(str, shape))
    assert read_mesh(text, 0) == read_mesh(text, prod(shape)) == shape


@pytest.mark.parametrize(
    "text", ["", "a", "2x0", "2x", "x2", "-2x2", "2.0x2", "2X2", "²x2", "1x1x1x1x1x1x1x1x1", "2 x2"]
)
def test_what_is_no_mesh_is_refused_by_its_text(text: str) -> None:
    with pytest.raises(InvalidPlan) as refused:
        read_mesh(text, 4, "--mesh")
    assert refused.value.value == text
    assert str(refused.value).startswith(f'--mesh: "{text}"')
    assert "\n" not in str(refused.value)


def test_a_mesh_of_another_number_of_ranks_is_refused() -> None:
    with pytest.raises(InvalidPlan) as refused:
        check_mesh((3, 3), 8, "--mesh")
    assert str(refused.value).startswith("--mesh: 3x3 has 9 ranks, and the job 8")
