"""Parts, text, nesting and pickling of the form that every package's errors share."""

from __future__ import annotations

import pickle
from importlib import import_module

import pytest

from weir.errors import PlacedError
from weir.topologies.errors import UnsoundFabric

ROOTS = {
    "controller": "ControllerError",
    "emulator.entries": "EmulatorError",
    "experiments": "ExperimentError",
    "hosts": "HostError",
    "topologies": "TopologyError",
    "training": "TrainingError",
    "wire": "WireError",
}


@pytest.mark.parametrize(("package", "name"), ROOTS.items())
def test_each_package_has_one_root_error_of_this_form(package: str, name: str) -> None:
    root = getattr(import_module(f"weir.{package}.errors" if "." not in package else f"weir.{package}"), name)
    assert issubclass(root, PlacedError)


def test_text_is_made_of_place_problem_and_what_is_allowed() -> None:
    assert str(PlacedError("no room")) == "no room"
    error = PlacedError("unknown operation 'prod'", place="tensor 'w'", value="prod", allowed=["sum", "mean"])
    assert str(error) == "tensor 'w': unknown operation 'prod'; supported: sum, mean"
    assert (error.place, error.value, error.allowed) == ("tensor 'w'", "prod", ("sum", "mean"))
    assert str(PlacedError("unknown host", allowed=())) == "unknown host; supported: none"


def test_an_outer_place_stands_before_the_inner_one() -> None:
    inner = PlacedError('rate "fast" is not a rate', place="link s1-p3", value="fast")
    outer = inner.within("fabric.yaml")
    assert (outer.place, outer.value, inner.place) == ("fabric.yaml: link s1-p3", "fast", "link s1-p3")
    assert str(outer.within("run")) == 'run: fabric.yaml: link s1-p3: rate "fast" is not a rate'
    assert PlacedError("empty").within("a file").place == "a file"


def test_an_error_with_another_constructor_is_placed_as_well() -> None:
    problem = (("hosts", "h1"), "no link")
    outer = UnsoundFabric([problem]).within("fabric.yaml")
    assert (outer.place, outer.problems, str(outer)) == ("fabric.yaml", (problem,), "fabric.yaml: no link")


def test_parts_survive_pickling_and_a_change_of_kind() -> None:
    class Other(PlacedError):
        pass

    error = PlacedError("unknown", place="p", value=(1, 2), allowed=("a",))
    for copied in (pickle.loads(pickle.dumps(error)), Other.of(error)):
        assert (copied.args, vars(copied)) == (error.args, vars(error))
