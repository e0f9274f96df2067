"""`weir search`: the example, its record, and files that are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from weir.tests.paths import ROOT
from weir.tests.support.commands import weir

EXAMPLE = ROOT / "examples" / "search.yaml"


def test_example_keeps_a_record_and_orders_change_only_times(tmp_path: Path) -> None:
    ended = weir("search", EXAMPLE, "--out", tmp_path, "--json")
    assert ended.status == 0, ended.err
    shown = json.loads(ended.out)
    (folder,) = tmp_path.iterdir()
    assert Path(shown.pop("record")) == folder
    record = json.loads((folder / "search.json").read_text())
    assert record.pop("versions")
    assert record == shown
    assert (folder / "search.yaml").read_text() == EXAMPLE.read_text()
    ann, bob = record["searches"]
    assert [len(stage) for stage in ann["stages"]] == [8, 4, 2]
    assert [len(stage) for stage in bob["stages"]] == [4, 3]
    assert ann["best"]["accuracies"][-1] > 0.9
    assert ann["best"]["steps"] == 40 + 80 + 160
    means = {order["order"]: order["mean_stage_seconds"] for order in record["orders"]}
    assert means["grouper"] < means["fair"]
    assert min(means.values()) >= record["bound_seconds"]
    again = weir("search", EXAMPLE, "--out", tmp_path, "--order", "fair")
    assert again.status == 0
    assert f"{means['fair']:.3f}" in again.out


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("space", {"rate": [1]}, "rate"),
        ("space", {"batch": {"low": 9, "high": 3}}, "9"),
        ("keep", 0, "keep"),
        ("workload", "mnits", "mnist"),
        ("workers", 12, "12 hosts"),
        ("name", "bob", "same name"),
        ("colour", "red", "colour"),
    ],
)
def test_wrong_files_are_refused_in_a_line_that_names_the_value(
    tmp_path: Path, key: str, value: object, named: str
) -> None:
    data = yaml.safe_load(EXAMPLE.read_text())
    data["searches"][0][key] = value
    file = tmp_path / "wrong.yaml"
    file.write_text(yaml.safe_dump(data))
    ended = weir("search", file, "--check")
    assert ended.status == 2
    assert named in ended.err
    assert "Traceback" not in ended.err


def test_orders_that_a_search_cannot_use_are_refused() -> None:
    for order in ("jpas", "fifo"):
        ended = weir("search", EXAMPLE, "--check", "--order", order)
        assert ended.status == 2
        assert order in ended.err
    ended = weir("search", EXAMPLE, "--check")
    assert "2 searches, 21 trainings" in ended.err
    ended = weir("search", EXAMPLE, "--check", "--order", "fair", "--seed", "-1")
    assert ended.status == 2
    assert "--seed: -1 is not right" in ended.err


@pytest.mark.parametrize("where", ["orders", "workload", "--order"])
def test_checking_a_file_of_searches_executes_nothing(tmp_path: Path, where: str) -> None:
    """Nor does a search whose file has an error elsewhere; one that is right otherwise executes what it names."""
    marker, evil, file = tmp_path / "executed", tmp_path / "evil.py", tmp_path / "search.yaml"
    evil.write_text(f"open({str(marker)!r}, 'w')")
    data = yaml.safe_load(EXAMPLE.read_text())
    if where == "orders":
        data["orders"] = ["fair", "evil.py"]
    elif where == "workload":
        data["searches"][0]["workload"] = "evil.py"
    call = ("search", file, "--out", tmp_path / "out", *(["--order", evil] if where == "--order" else []))
    file.write_text(yaml.safe_dump(data))
    assert weir(*call, "--check", "--seed", "7").status == 0
    file.write_text(yaml.safe_dump({**data, "seed": -1}))
    assert weir(*call).status == 2
    assert not marker.exists()
    file.write_text(yaml.safe_dump(data))
    assert weir(*call).status == 2, "the file describes nothing"
    assert marker.exists()


@pytest.mark.long
def test_processes_reach_the_accuracies_of_virtual_time(tmp_path: Path) -> None:
    data = yaml.safe_load(EXAMPLE.read_text())
    space = {"learning_rate": {"low": 0.01, "high": 0.5, "log": True}, "batch": [16, 32]}
    common = {"workers": 2, "configurations": 2, "stages": 2, "steps": 10, "space": space}
    data["searches"] = [{"name": "ann", **common}, {"name": "bob", **common, "configurations": 1}]
    file = tmp_path / "search.yaml"
    file.write_text(yaml.safe_dump(data))
    shown = []
    for option in ((), ("--processes",)):
        ended = weir("search", file, "--out", tmp_path / "runs", "--json", *option)
        assert ended.status == 0, ended.err
        shown.append(json.loads(ended.out)["searches"])
    for virtual, by_clock in zip(*shown, strict=True):
        assert [len(stage) for stage in by_clock["stages"]] == [len(stage) for stage in virtual["stages"]]
        assert len(by_clock["stage_seconds"]) == 2
        for configuration, other in zip(virtual["configurations"], by_clock["configurations"], strict=True):
            assert configuration["parameters"] == other["parameters"]
            assert configuration["accuracies"] == pytest.approx(
                other["accuracies"], abs=0.02
            )  # sums are in fixed point
