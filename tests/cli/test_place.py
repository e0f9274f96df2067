"""`weir place`: plans as people and programs read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from weir.cli import place_without
from weir.cli.app import app
from weir.controller.placement import PlacementError
from weir.experiments.errors import ExperimentError
from weir.tests.support.errors import raises
from weir.topologies import TopologyError, dump_topology, leaf_spine


@pytest.fixture
def fabric(tmp_path: Path) -> Path:
    path = tmp_path / "fabric.yaml"
    dump_topology(leaf_spine(4, 2, 3), path)
    return path


def place(fabric: Path, *words: object) -> str:
    done = CliRunner().invoke(app, ["place", str(fabric), *map(str, words)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def test_a_plan_shows_tree_step_time_and_slowest_link(fabric: Path, tmp_path: Path) -> None:
    loads = tmp_path / "loads.yaml"
    loads.write_text("s1-p4: 700Mbit\n")
    job = ("--workers", "h1,h2,h4", "--server", "h12", "--size", 1_000_000, "--loads", loads)
    printed = json.loads(place(fabric, *job, "--strategy", "widest", "--strategy", "rack", "--json"))
    widest, rack = printed["plans"]
    assert printed["unimodular"] is None
    assert (widest["strategy"], widest["root"]) == ("widest", "h12")
    assert widest["workers"] == {"h1": "s1", "h2": "s1", "h4": "s6"}
    assert {node["node"]: node["parent"] for node in widest["nodes"]} == {"s1": "s6", "s6": "h12", "h12": None}
    assert widest["slowest_link_seconds"] == pytest.approx(0.008)
    assert (rack["slowest_link"], rack["slowest_link_seconds"]) == ("s1-p4", pytest.approx(8e6 / 3e8))
    # the slowest link is busy all the time but for a round's first way up and its last one down, and the scale rounds
    assert 0.008 < widest["completion_seconds"] < 0.0088
    assert not widest["bound_by_window"]
    (narrow,) = json.loads(place(fabric, *job, "--window", 1, "--json"))["plans"]
    assert narrow["bound_by_window"]
    rounds = round(1_000_000 / 1094)
    assert narrow["completion_seconds"] == pytest.approx(rounds * narrow["round_trip_seconds"], rel=0.02)
    text = place(fabric, *job)
    assert "2 workers are on it; makes one stream of 2" in text
    assert "the slowest link is" in text


def test_limits_of_streams_are_for_one_job_under_agg(fabric: Path) -> None:
    job = (fabric, "--workers", "h1,h2,h4", "--server", "h12", "--strategy", "agg", "--json")
    (free,) = json.loads(place(*job))["plans"]
    switch = next(sink for sink in free["workers"].values() if sink != "h12")
    (limited,) = json.loads(place(*job, "--streams", f"{switch}=0"))["plans"]
    assert switch not in limited["workers"].values()
    for wrong in (("--streams", "s1"), ("--streams", "s1=-1"), ("--streams", "s1=1", "--stripes", 2)):
        with raises(ExperimentError, place="--streams"):
            place(*job, *wrong)


def test_a_plan_says_of_each_switch_what_would_be_without_it(fabric: Path, tmp_path: Path) -> None:
    """Through s5 a stream of s1 takes 8e6 / 3e8 s, through s6 8e6 / 1e9 s; without s1's sum two streams need that in
    turn.
    """
    loads = tmp_path / "loads.yaml"
    loads.write_text("s1-p4: 700Mbit\n")
    job = ("--workers", "h1,h2,h4", "--server", "h12", "--size", 1_000_000, "--loads", loads)
    (plan,) = json.loads(place(fabric, *job, "--json"))["plans"]
    without = {node["node"]: node["without"] for node in plan["nodes"]}
    assert without.keys() == {"s1", "s6", "h12"}
    assert without["h12"] is None
    assert without["s6"]["instead"] == ["s5"]
    assert without["s6"]["slowest_link"] == "s1-p4"
    assert without["s6"]["completion_seconds"] == pytest.approx(8e6 / 3e8, rel=0.06)
    assert without["s1"]["completion_seconds"] == pytest.approx(0.016, rel=0.06)
    milliseconds = [f"{1e3 * each['completion_seconds']:.3f}" for each in (plan, without["s6"])]
    assert (
        f"without s6 a step takes {milliseconds[1]} ms, with s1-p4 for its slowest link, instead of {milliseconds[0]} "
        "ms" in " ".join(place(fabric, *job).split())
    )
    idle = " ".join(place(fabric, "--workers", "h1,h4,h7", "--server", "h12").split())
    assert "without s5 a step is as fast, by s6" in idle


def test_a_switch_without_which_there_is_no_tree_is_named(fabric: Path) -> None:
    full = [word for number in range(2, 7) for word in ("--full", f"s{number}")]
    job = ("--workers", "h1,h2", *full)
    assert "without s1 there is no tree" in place(fabric, *job)
    ((node,),) = (plan["nodes"] for plan in json.loads(place(fabric, *job, "--json"))["plans"])
    told = "without s1 there is no tree"
    assert node["without"] == {"completion_seconds": None, "slowest_link": None, "instead": [], "told": told}


def test_plans_without_switches_beyond_the_limit_are_named(fabric: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision counts as 500 visits, and about as often as the fabric has directed links."""
    monkeypatch.setattr(place_without, "VISITS", 700)
    job = ("--workers", "h1,h2,h4", "--server", "h12")
    (plan,) = json.loads(place(fabric, *job, "--json"))["plans"]
    assert {node["node"] for node in plan["nodes"] if node["without"] is None} == {"s5", "h12"}
    assert "plans without s5 were not computed: it takes too long" in " ".join(place(fabric, *job).split())


def test_a_plan_is_drawn_avoids_full_switches_and_is_proven(fabric: Path, tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    job = ("--workers", "h1,h2,h4", "--server", "h12")
    printed = place(fabric, *job, "--full", "s5", "--draw", picture, "--check")
    assert "totally unimodular" in " ".join(printed.split())
    assert "s5" not in printed
    assert "sums 2" in picture.read_text()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("s1-p99: 1Mbit", "s1-p99: leaf-spine: nothing is linked to port s1-p99"),
        ("s1-p4: fast", 's1-p4: rate "fast" is not a rate'),
        ("s1-p4: .nan", "s1-p4: rate nan is not a rate"),
        ("s1-p4: -5", "s1-p4: rate -5 is not a rate"),
        ("[1, 2]", "loads are a YAML mapping, such as s1-p3: 300Mbit; this is a list"),
    ],
)
def test_loads_that_are_none_are_named(fabric: Path, tmp_path: Path, text: str, says: str) -> None:
    loads = tmp_path / "loads.yaml"
    loads.write_text(text)
    with pytest.raises(ExperimentError, match=r"loads\.yaml: ") as caught:
        place(fabric, "--server", "h12", "--loads", loads)
    assert says in str(caught.value)


def test_loads_have_loss_and_latency(fabric: Path, tmp_path: Path) -> None:
    loads = tmp_path / "loads.yaml"
    loads.write_text("s1-p1: {rate: 200Mbit, loss: 0.25}\ns4-p3: {latency: 2ms}\n")
    job = ("--workers", "h1,h2", "--server", "h12", "--size", 1_000_000, "--loads", loads, "--json")
    (plan,) = json.loads(place(fabric, *job))["plans"]
    assert plan["slowest_link"] == "s1-p1"  # traffic back to h1: lost packets are sent again
    assert plan["slowest_link_seconds"] == pytest.approx(8e6 / (0.8e9 * 0.75))
    assert 2e-3 < plan["round_trip_seconds"] < 2.2e-3


def test_all_that_is_wrong_with_a_reading_is_said_with_its_line(fabric: Path, tmp_path: Path) -> None:
    loads = tmp_path / "loads.yaml"
    loads.write_text("s1-p4: {rate: 1Mbit, los: 0.1}\ns1-p99: 1Mbit\ns2-p4:\n  latency: soon\n  loss: 2\n")
    with pytest.raises(ExperimentError) as caught:
        place(fabric, "--server", "h12", "--loads", loads)
    first, *others = str(caught.value).splitlines()
    assert first.endswith("loads.yaml: 4 things are wrong:")
    said = [
        'line 1: s1-p4: unknown key "los", did you mean "loss"? There are rate, queue, loss, latency',
        "line 2: s1-p99: leaf-spine: nothing is linked to port s1-p99",
        's2-p4.latency: delay "soon" is not a delay',
        "line 5: s2-p4.loss: 2 is not right; write 1 or less",
    ]
    assert len(others) == len(said)
    for line, part in zip(others, said, strict=True):
        assert part in line


def jobs_file(path: Path, *jobs: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump({"jobs": list(jobs)}))
    return path


def one_of_each_rack(number: int, **more: Any) -> dict[str, Any]:
    """The fabric has four racks of three hosts."""
    workers = [f"h{3 * rack + number}" for rack in range(3)]
    return {"name": f"job {number}", "workers": workers, "server": f"h{9 + number}", "bytes": 1_000_000, **more}


def test_jobs_that_come_one_after_another_keep_apart(fabric: Path, tmp_path: Path) -> None:
    """A spine each; a fixed hierarchy puts both on one, whose links take their two streams of 8 ms."""
    jobs = jobs_file(tmp_path / "jobs.yaml", one_of_each_rack(1), one_of_each_rack(2))
    picture = tmp_path / "plan.svg"
    both = ("--strategy", "widest", "--strategy", "hierarchy", "--draw", picture)
    widest, hierarchy = json.loads(place(fabric, "--jobs", jobs, *both, "--json"))["plans"]
    assert [(job["job"], job["share"], job["why"]) for job in widest["jobs"]] == [
        ("job 1", 1.0, "placed first"),
        ("job 2", 1.0, "placed beside job 1"),
    ]
    assert [set(job["workers"].values()) for job in widest["jobs"]] == [{"s5"}, {"s6"}]
    assert widest["slowest_link_seconds"] == pytest.approx(0.008)
    assert [job["slowest_link_seconds"] for job in widest["jobs"]] == pytest.approx([0.008, 0.008])
    assert all(0.008 < seconds < 0.0088 for seconds in widest["completion_seconds"].values())
    assert hierarchy["streams"] == {"job 1": 1.0, "job 2": 1.0}
    assert hierarchy["slowest_link"] in {"s1-p4", "s2-p4", "s3-p4", "s5-p4"}
    assert hierarchy["slowest_link_seconds"] == pytest.approx(0.016)
    assert all(0.016 < seconds < 0.0168 for seconds in hierarchy["completion_seconds"].values())
    assert "sums 3" in picture.read_text()
    text = " ".join(place(fabric, "--jobs", jobs).split())
    assert "job 2 (widest)" in text
    assert "all at once (widest): the slowest link is" in text


GAVE_WAY = "gave way to others when all were placed jointly: "
TOGETHER = "moved when all were placed jointly: "


@pytest.mark.parametrize(
    ("weight", "whys"),
    [
        (
            2,
            [
                f"{GAVE_WAY}16 ms on its slowest link became 16 ms",
                "placed beside job 1",
                "placed beside job 1, job 2",
            ],
        ),
        (
            5,
            [
                "placed first",
                f"{GAVE_WAY}8 ms on its slowest link became 16 ms",
                f"{TOGETHER}16 ms on its slowest link became 8 ms",
            ],
        ),
    ],
)
def test_a_job_that_counts_more_has_a_spine_of_its_own(
    weight: int, whys: list[str], fabric: Path, tmp_path: Path
) -> None:
    """The first two have one each when it comes; looked at together, they share one, or all three had one when each was
    placed as if it were alone.
    """
    three = (one_of_each_rack(1), one_of_each_rack(2), one_of_each_rack(3, weight=weight))
    (plan,) = json.loads(place(fabric, "--jobs", jobs_file(tmp_path / "jobs.yaml", *three), "--json"))["plans"]
    first, second, heavy = (job["workers"] for job in plan["jobs"])
    assert set(first.values()) == set(second.values())
    assert not set(first.values()) & set(heavy.values())
    assert [job["slowest_link_seconds"] for job in plan["jobs"]] == pytest.approx([0.016, 0.016, 0.008])
    assert [job["why"] for job in plan["jobs"]] == whys
    assert plan["streams"] == {"job 1": 1.0, "job 2": 1.0}


def test_a_higher_job_gets_its_own_spine_though_it_comes_last(fabric: Path, tmp_path: Path) -> None:
    """Others fill four fifths of one spine, where a lower one goes for that."""
    loads = tmp_path / "loads.yaml"
    full = [*((f"s{leaf}", 5) for leaf in range(1, 5)), *(("s6", port) for port in range(1, 5))]
    loads.write_text("".join(f"{node}-p{port}: 800Mbit\n" for node, port in full))
    two = (one_of_each_rack(1), one_of_each_rack(2, priority=1))
    (plan,) = json.loads(place(fabric, "--jobs", jobs_file(tmp_path / "jobs.yaml", *two), "--loads", loads, "--json"))[
        "plans"
    ]
    assert [job["priority"] for job in plan["jobs"]] == [0, 1]
    assert [job["slowest_link_seconds"] for job in plan["jobs"]] == pytest.approx([0.04, 0.008])
    assert plan["jobs"][0]["why"].startswith("gave way to a higher job when all were placed jointly: 16 ms")


def test_a_job_is_divided_among_trees(fabric: Path, tmp_path: Path) -> None:
    """Others fill half of each spine's links, so a half by each takes as long as the hosts' own links."""
    spines = {"s5": range(1, 5), "s6": range(1, 5), **{f"s{leaf}": (4, 5) for leaf in range(1, 5)}}
    loads = tmp_path / "loads.yaml"
    loads.write_text("".join(f"{node}-p{port}: 500Mbit\n" for node, ports in spines.items() for port in ports))
    job = ("--workers", "h1,h4,h7", "--server", "h10", "--size", 1_000_000, "--loads", loads, "--json")
    (whole,) = json.loads(place(fabric, *job))["plans"]
    assert whole["slowest_link_seconds"] == pytest.approx(0.016)
    (plan,) = json.loads(place(fabric, *job, "--stripes", 2))["plans"]
    assert [(part["share"], part["bytes"]) for part in plan["jobs"]] == [(0.5, 500_000), (0.5, 500_000)]
    assert {hub for part in plan["jobs"] for hub in part["workers"].values()} == {"s5", "s6"}
    assert plan["slowest_link_seconds"] == pytest.approx(0.008)
    assert 0.008 < plan["completion_seconds"]["job"] < 0.0088


def test_a_switch_sums_as_many_jobs_as_its_slots_hold(fabric: Path, tmp_path: Path) -> None:
    """A job with a window of 512 takes all of a switch's 1,024 slots."""
    jobs = jobs_file(tmp_path / "jobs.yaml", *(one_of_each_rack(number) for number in (1, 2, 3)))
    for name in ("widest", "hierarchy"):
        told = place(fabric, "--jobs", jobs, "--window", 512, "--strategy", name, "--json")
        (plan,) = json.loads(told)["plans"]
        summing = [node["node"] for job in plan["jobs"] for node in job["nodes"] if node["node"].startswith("s")]
        assert len(summing) == len(set(summing)) > 0


JOBS = """\
jobs:
  - name: one
    workers: [h1, h99]
    sever: h2
  - {name: one, workers: [], weight: 0}
  - {name: three, workers: [h1], bytes: many}
"""


def test_all_errors_of_a_jobs_file_have_their_line(fabric: Path, tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text(JOBS)
    with pytest.raises(ExperimentError) as caught:
        place(fabric, "--jobs", path)
    assert str(caught.value).splitlines() == [
        f"{path}: 4 things are wrong:",
        '  line 4: jobs.0: unknown key "sever", did you mean "server"? There are name, workers, server, bytes, weight, '
        "priority",
        "  line 5: jobs.1.workers: [] is not right; write a list of 1 or more",
        "  line 5: jobs.1.weight: 0 is not right; write more than 0",
        '  line 6: jobs.2.bytes: "many" is not right; write a whole number',
    ]
    path.write_text("jobs:\n  - {name: one, workers: [h1, h99]}\n  - {name: two, workers: [h1],\n     server: h1}\n")
    with pytest.raises(ExperimentError) as caught:
        place(fabric, "--jobs", path)
    assert str(caught.value).splitlines() == [
        f"{path}: 2 things are wrong:",
        '  line 2: jobs.0.workers.1: no host "h99" in leaf-spine, did you mean "h9"?',
        "  line 4: jobs.1.server: h1 is named twice in one job; workers and server are different hosts",
    ]
    jobs_file(path, one_of_each_rack(1), one_of_each_rack(1))
    with pytest.raises(ExperimentError, match='two jobs are called "job 1"; give each its own name'):
        place(fabric, "--jobs", path)


def test_options_of_one_job_are_refused_beside_a_file_of_jobs(fabric: Path, tmp_path: Path) -> None:
    jobs = ("--jobs", jobs_file(tmp_path / "jobs.yaml", one_of_each_rack(1)))
    for option in (("--workers", "h1"), ("--server", "h12"), ("--check",)):
        with raises(ExperimentError, place=option[0], value="--jobs"):
            place(fabric, *jobs, *option)
    with raises(ExperimentError, place="--check", value="--stripes"):
        place(fabric, "--server", "h12", "--stripes", 2, "--check")


def test_the_schema_of_a_jobs_file_accepts_what_the_command_does() -> None:
    done = CliRunner().invoke(app, ["schema", "jobs"])
    schema = jsonschema.Draft202012Validator(json.loads(done.stdout))
    schema.validate({"jobs": [one_of_each_rack(1), {"name": "two", "workers": ["h1"]}]})
    slips: list[dict[str, Any]] = [{"weight": 0}, {"bytes": "many"}, {"workers": []}, {"sever": "h2"}, {"name": "/"}]
    for wrong in slips:
        assert not schema.is_valid({"jobs": [one_of_each_rack(1, **wrong)]}), wrong
    assert not schema.is_valid({"jobs": []})


def test_a_host_that_is_not_there_is_named(fabric: Path) -> None:
    with raises(TopologyError, value="h99"):
        place(fabric, "--workers", "h1,h99", "--server", "h12")


TWO = """
name: two
hosts: {h1: , h2: , h3: }
switches: {s1: , s2: }
links: [{ends: [h1, s1-p1]}, {ends: [h2, s1-p2]}, {ends: [h3, s2-p1]}%s]
"""


def test_a_split_fabric_or_one_with_a_dead_link_is_refused(tmp_path: Path) -> None:
    apart, still = tmp_path / "apart.yaml", tmp_path / "still.yaml"
    apart.write_text(TWO % "")
    still.write_text(TWO % ", {ends: [s1-p3, s2-p2], rate: 0}")
    with pytest.raises(TopologyError, match=r"apart\.yaml: two: .*2 pieces; h3, s2 cannot reach h1"):
        place(apart, "--server", "h3")
    with pytest.raises(TopologyError, match=r"still\.yaml: line 5: link s1-p3: rate 0 is not a rate"):
        place(still, "--server", "h3")


def test_without_slots_the_server_sums_alone_or_placement_fails(fabric: Path) -> None:
    full = [word for number in range(1, 7) for word in ("--full", f"s{number}")]
    (plan,) = json.loads(place(fabric, "--workers", "h1,h4", "--server", "h12", "--json", *full))["plans"]
    assert plan["workers"] == {"h1": "h12", "h4": "h12"}
    with pytest.raises(PlacementError, match="no switch"):
        place(fabric, "--workers", "h1,h4", *full)


def test_a_user_strategys_plan_without_a_worker_is_refused(fabric: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from weir.controller.placement import Placement\n"
        "from weir.controller.placement.strategies import StrategyDescription\n"
        "class Careless:\n"
        "    def place(self, problem, rng):\n"
        "        return Placement(dict.fromkeys(problem.workers[:2], 's1'), {}, 's1')\n"
        "DESCRIPTION = StrategyDescription('mine', 'mine', 'forgets a worker', Careless)\n"
    )
    with raises(PlacementError, place=f"{path}: placement.aggregators", value=("h1", "h2")):
        place(fabric, "--workers", "h1,h2,h4", "--strategy", path)
