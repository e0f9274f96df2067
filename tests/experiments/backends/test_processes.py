"""Real processes that die, hang and return: survivors have equal sums, and excluded ones receive the reason."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from weir.tests.experiments.backends.process_rig import LEASE_S, SCENARIOS, WORKERS
from weir.tests.experiments.backends.summing_worker import value
from weir.tests.own_network import play

OBSTACLE = (
    "a network namespace needs root"
    if os.geteuid() != 0
    else "the command ip is not on PATH"
    if shutil.which("ip") is None
    else None
)
pytestmark = pytest.mark.skipif(OBSTACLE is not None, reason=f"processes in a network of their own: {OBSTACLE}")

ALL = range(len(WORKERS))


@pytest.fixture(scope="module")
def scenarios(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[dict[str, Any]]]]:
    """Scenarios of the selected tests. They wait for leases most of the time, so two run at once."""
    calls = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    selected = {call.params.get("seen") for call in calls if call is not None}
    scenario = partial(play, "weir.tests.experiments.backends.process_rig", timeout_s=280)
    with ThreadPoolExecutor(max_workers=2) as pool:
        yield {name: pool.submit(scenario, name) for name in SCENARIOS if name in selected}


@pytest.fixture
def seen(request: pytest.FixtureRequest, scenarios: dict[str, Future[dict[str, Any]]]) -> dict[str, Any]:
    """Result of the scenario that the test names."""
    return scenarios[request.param].result()


def check_steps(workers: list[list[dict[str, Any]]], *, lost: int | None = None) -> list[int]:
    """The survivors have the same bits in every step, and each chunk is the sum of all or of the survivors; generations
    by step.
    """
    survivors = [lines for rank, lines in enumerate(workers) if rank != lost]
    for step, lines in enumerate(zip(*survivors, strict=True)):
        assert {line["step"] for line in lines} == {step}
        assert len({line["digest"] for line in lines}) == 1
        whole = sum(value(rank, step) for rank in ALL)
        left = sum(value(rank, step) for rank in ALL if rank != lost)
        assert set(lines[0]["sums"]) <= {whole, left}
        assert set(lines[0]["weights"]) <= {len(ALL), len(survivors)} or step == len(survivors[0]) - 1
    if lost is not None:
        before = workers[lost]
        assert [line["digest"] for line in before] == [line["digest"] for line in survivors[0][: len(before)]]
        assert survivors[0][-1]["sums"] == [sum(value(rank, len(survivors[0]) - 1) for rank in ALL if rank != lost)]
    return [line["generation"] for line in survivors[0]]


@pytest.mark.long
@pytest.mark.parametrize("seen", ["killed_worker_continue"], indirect=True)
def test_the_others_go_on_without_a_worker_that_was_killed(seen: dict[str, Any]) -> None:
    assert seen["statuses"] == [0, 0]
    generations = check_steps(seen["workers"], lost=2)
    assert (generations[0], generations[-1]) == (1, 2)


@pytest.mark.parametrize("seen", ["stopped_worker_abort"], indirect=True)
def test_everyone_is_told_when_a_worker_that_hangs_ends_the_job(seen: dict[str, Any]) -> None:
    assert seen["statuses"] == [3, 3, 3]
    for last in seen["last"]:
        assert last["error"] == "AllreduceAborted"
        assert f"rank 2 (h3) was silent for {LEASE_S:g} s, and the job's policy is to abort" in last["text"]
    assert seen["servers"] == [1]
    assert seen["jobs"] == 0


@pytest.mark.long
@pytest.mark.parametrize("seen", ["stopped_worker_wait"], indirect=True)
def test_a_job_waits_for_a_worker_that_hangs_and_says_so(seen: dict[str, Any]) -> None:
    assert "waits for rank 2 (h3), silent for" in seen["said"]
    assert seen["statuses"] == [0, 0, 0]
    generations = check_steps(seen["workers"])
    assert generations[-1] > 1


@pytest.mark.long
@pytest.mark.parametrize("seen", ["killed_server"], indirect=True)
def test_a_spare_takes_over_from_a_server_that_was_killed(seen: dict[str, Any]) -> None:
    assert seen["statuses"] == [0, 0, 0]
    generations = check_steps(seen["workers"])
    assert (generations[0], generations[-1]) == (1, 2)


@pytest.mark.long
@pytest.mark.parametrize("seen", ["restarted_controller"], indirect=True)
def test_a_controller_that_was_killed_goes_on_from_its_journal(seen: dict[str, Any]) -> None:
    assert seen["generation"] == 1  # nobody was disturbed
    assert seen["statuses"] == [0, 0]
    generations = check_steps(seen["workers"], lost=2)
    assert set(generations[: seen["after_restart"]]) == {1}
    assert generations[-1] == 2


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 110))
def test_any_fate_of_controllers_leaves_sums_undisturbed(seed: int) -> None:
    """Up to three controllers at once start, stop, die and end in any order; one of them serves at the end."""
    seen = play("weir.tests.experiments.backends.process_rig", f"several_controllers-{seed}", timeout_s=280)
    assert (seen["serving"], seen["generation"], seen["statuses"]) == (1, 1, [0, 0]), seen["done"]
    generations = check_steps(seen["workers"], lost=2)
    assert set(generations[: seen["by_then"]]) == {1}
    assert generations[-1] == 2


@pytest.mark.long
@pytest.mark.parametrize("seen", ["jobs_beside_each_other"], indirect=True)
def test_hosts_take_part_in_several_jobs_by_a_process_each(seen: dict[str, Any]) -> None:
    """Hosts have the same addresses and port in all jobs. One job loses a process, which had the port first."""
    assert seen["statuses"] == [[0, 0], [0, 0, 0], [0, 0, 0]]
    first, second, third = seen["jobs"]
    assert check_steps(first, lost=1)[-1] == 2
    for workers in (second, third):
        check_steps(workers)  # nobody was lost
