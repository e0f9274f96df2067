"""Targets of the mutants, and the tests that are to detect them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_PROTOCOL: Final = "tests/hosts/protocol"
_CORES: Final = tuple(
    f"{_PROTOCOL}/{name}.py"
    for name in (
        "test_host_cores",
        "test_in_flight",
        "test_authentication",
        "test_on_path",
        "test_stream",
        "test_host_network",
        "test_tensor_network",
        "test_int_in_messages",
    )
)
_JOBS: Final = "tests/controller"


@dataclass(frozen=True, slots=True)
class Target:
    """Modules with the same tests."""

    modules: tuple[str, ...]
    """Paths from the repository's root."""
    tests: tuple[str, ...]
    """Files and folders of tests. Of these a mutant is shown to those that run its line."""


TARGETS: Final = (
    Target(
        tuple(
            f"hosts/protocol/{name}.py"
            for name in (
                *("authentication", "fetching", "in_flight", "messages", "plans", "rounds", "server", "stream"),
                *("timers", "worker"),
            )
        ),
        (
            *_CORES,
            *(f"{_PROTOCOL}/test_host_search.py", "tests/schedules/test_schedules.py", "tests/schedules/test_liars.py"),
        ),
    ),
    Target(
        tuple(f"hosts/numerics/{name}.py" for name in ("encodings", "quantization", "scalars", "tensors")),
        ("tests/hosts/numerics", f"{_PROTOCOL}/test_tensor_network.py", "tests/hosts/collectives"),
    ),
    Target(
        tuple(
            f"controller/jobs/{name}.py"
            for name in (
                *("background_estimator", "carried", "job", "journal", "journal_file", "journal_records", "membership"),
                *("migration", "migration_cost", "migrator", "re_placement", "registry", "restore", "slow_paths"),
            )
        ),
        (f"{_JOBS}/jobs", f"{_JOBS}/test_controller.py", f"{_JOBS}/service/test_service.py"),
    ),
    Target(
        (
            "controller/leases.py",
            *(f"controller/planning/{name}.py" for name in ("admission", "generations", "memory", "plan", "slots")),
        ),
        (
            *(f"{_JOBS}/planning", f"{_JOBS}/congestion", f"{_JOBS}/jobs", f"{_JOBS}/test_controller.py"),
            f"{_JOBS}/service/test_service.py",
        ),
    ),
    Target(
        (
            "controller/controller.py",
            *(f"controller/service/{name}.py" for name in ("seating", "seats", "service", "streams")),
        ),
        (
            *(f"{_JOBS}/service", f"{_JOBS}/jobs", f"{_JOBS}/test_controller.py", f"{_JOBS}/test_emulated.py"),
            f"{_JOBS}/test_takeover.py",
            *(f"{_JOBS}/congestion/test_bound_log.py", f"{_JOBS}/int_config/test_end_to_end.py"),
        ),
    ),
    Target(
        (
            *(f"controller/placement/model/{name}.py" for name in ("cost", "links", "loads", "problem")),
            "controller/placement/exact/min_max_lp.py",
            "controller/placement/baseline_trees.py",
        ),
        (
            *(f"{_JOBS}/placement/test_{name}.py" for name in ("cost", "readings", "strategies", "joint")),
            f"{_JOBS}/planning/test_plan.py",
        ),
    ),
    Target(("hosts/drivers/membership_stream.py",), ("tests/hosts/drivers/test_client.py",)),
    Target(
        ("wire/int_messages.py",), ("tests/wire/test_int_messages.py", "tests/hosts/drivers/test_int_at_sockets.py")
    ),
    Target(
        tuple(
            f"hosts/congestion/{name}.py"
            for name in (
                *(f"laws/{law}" for law in ("dctcp", "delay", "explicit", "fixed", "hpcc", "loss")),
                *("law", "pacer", "yielding"),
            )
        ),
        ("tests/hosts/congestion", f"{_PROTOCOL}/test_host_cores.py"),
    ),
)
PROGRAM_TESTS: Final = (
    (
        "tests/p4src/test_admission_program.py",
        "tests/p4src/test_aggregation_program.py",
        "tests/p4src/test_telemetry_program.py",
        "tests/p4src/test_random_packets.py",
    ),
    ("tests/p4src/test_int_roles.py", "tests/p4src/test_int_truth.py", "tests/p4src/test_queues_program.py"),
)
