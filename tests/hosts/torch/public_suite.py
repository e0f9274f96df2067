"""PyTorch's own tests of back ends, those inside its wheel, unmodified, over an emulated fabric: `make test-torch`.

`python -m weir.tests.hosts.torch.public_suite [TEST…]` prints the numbers of tests run, passed and skipped, with
reasons. Its exit status is 1 if one failed, or if fewer passed than PyTorch enables on a machine without a GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from weir.tests.hosts.torch.rig import HOSTS, running_fabric

RANKS: Final = 3
MIN_PASSED: Final = 67
"""Minimum number of passed tests of PyTorch 2.13, on three ranks without a GPU."""
_INNER: Final = "--inner"


def _inner(tests: list[str]) -> None:
    """Run the suite in this process, which forks its ranks; the last line is JSON."""
    import torch
    from torch.testing._internal import common_distributed

    for backends in common_distributed.DistTestCases.backend_feature.values():
        backends.add("weir")
    distributed_test = import_module("torch.testing._internal.distributed.distributed_test")  # which asks for them
    import_module("weir.hosts.torch.process_group")  # once, and not in each forked rank
    context = torch.multiprocessing.get_context("fork")
    backend_tests: Any = distributed_test.TestDistBackend
    cases: Any = distributed_test.DistributedTest._DistTestBase

    class TestWeir(backend_tests, cases):
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(context.Process)

        @classmethod
        def _run(cls, rank: int, *words: Any, **named: Any) -> None:
            os.environ["LOCAL_RANK"] = str(rank)
            super()._run(rank, *words, **named)

    names = tests or unittest.defaultTestLoader.getTestCaseNames(TestWeir)
    suite = unittest.TestSuite(TestWeir(name) for name in names)
    result = unittest.TextTestRunner(sys.stderr, verbosity=2).run(suite)
    bad = [str(test).split()[0] for test, _ in [*result.failures, *result.errors]]
    skipped = Counter(reason for _, reason in result.skipped)
    sys.stdout.write(json.dumps({"ran": result.testsRun, "bad": bad, "skipped": skipped}) + "\n")


def main() -> int:
    """The exit status."""
    for package, what in (("torch", "'weir-fabric[torch]'"), ("expecttest", "expecttest")):
        if find_spec(package) is None:
            sys.stderr.write(f"weir: PyTorch's own tests need {package}, which is not installed: pip install {what}\n")
            return 2
    tests = sys.argv[1:]
    with running_fabric() as told, tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "barrier").touch()
        environment = {
            **os.environ,
            **told,
            "WEIR_HOST": ",".join(HOSTS),
            "WEIR_MIN_BYTES": "0",  # all that can goes through the switches
            "OMP_NUM_THREADS": "1",
            "BACKEND": "weir",
            "WORLD_SIZE": str(RANKS),
            "TEMP_DIR": folder,
            "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": "120",
        }
        done = subprocess.run(
            [sys.executable, "-m", "weir.tests.hosts.torch.public_suite", _INNER, *tests],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            check=False,
        )
    if done.returncode:
        return 1
    said = json.loads(done.stdout.splitlines()[-1])
    skipped = sum(said["skipped"].values())
    passed = said["ran"] - skipped - len(said["bad"])
    lines = [f"{said['ran']} ran: {passed} passed, {len(said['bad'])} failed, {skipped} skipped"]
    lines += [f"{count:5}  {reason}" for reason, count in sorted(said["skipped"].items(), key=lambda item: -item[1])]
    lines += [f"failed: {name}" for name in said["bad"]]
    sys.stdout.write("\n".join(lines) + "\n")
    return int(bool(said["bad"]) or (not tests and passed < MIN_PASSED))


if __name__ == "__main__":
    if sys.argv[1:2] == [_INNER]:
        _inner(sys.argv[2:])
    else:
        sys.exit(main())
