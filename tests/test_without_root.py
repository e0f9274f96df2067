"""The guides' first lines, up to Mininet, as another user: none of them takes root.

The user has a home and a cache of its own, and of root's capabilities one alone, to read: the interpreter may lie in
root's home. Where the tests are not root's, those that play these lines (test_commands, test_examples) have shown it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from weir.machine_code.cache import directory
from weir.tests.paths import ROOT
from weir.tests.test_snippets import SNIPPETS, python_of

NOBODY: Final = 65534
READING: Final = "-all,+dac_read_search"
AS_NOBODY: Final = (
    *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
    *(f"--inh-caps={READING}", f"--ambient-caps={READING}", f"--bounding-set={READING}"),
)
PATIENCE_S: Final = 900
"""Time limit in seconds on a busy machine; the first line compiles code that root keeps next to the sources."""

pytestmark = [
    pytest.mark.timeout(PATIENCE_S),
    pytest.mark.skipif(os.geteuid() != 0, reason="the tests are not root's: the others play these lines without root"),
    pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv (util-linux) is not on PATH"),
]


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """Home of a newcomer: the examples and the first loop, and native code that the tests have already compiled."""
    folder = Path(tempfile.mkdtemp(prefix="weir-nobody-"))
    try:
        shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "my_loop.py").write_text(python_of("docs/launch.md", "communicator.size"))
        if directory().exists():
            shutil.copytree(directory(), folder / "cache")
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        yield folder
    finally:
        shutil.rmtree(folder)


def played(line: str, home: Path) -> subprocess.CompletedProcess[str]:
    told = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "WEIR_CACHE": str(home / "cache"),
    }
    done = subprocess.run(
        [*AS_NOBODY, "bash", "-ec", line],
        cwd=home,
        env=told,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_the_user_is_another_who_may_read_alone(home: Path) -> None:
    line = f"id -u; test ! -w {ROOT}; grep CapEff /proc/self/status; ! unshare --net true 2> refusal; cat refusal"
    user, capabilities, refusal = played(line, home).stdout.splitlines()
    assert user == str(NOBODY)
    assert int(capabilities.split()[1], 16) == 1 << 2  # CAP_DAC_READ_SEARCH
    assert "Operation not permitted" in refusal


@pytest.mark.long
def test_a_training_loop_of_ones_own(home: Path) -> None:
    (shown,) = [
        snippet.text
        for snippet in SNIPPETS
        if snippet.page == "docs/launch.md" and snippet.text.startswith("weir: job ")
    ]
    printed = played("weir launch -n 4 my_loop.py", home).stdout
    assert sorted(printed.splitlines()) == sorted(line for line in shown.splitlines() if line.startswith("["))


def test_a_p4_program_of_ones_own(home: Path) -> None:
    line = "weir stf examples/p4_program/firewall.json examples/p4_program/firewall.stf"
    done = played(line, home)
    assert "✓ firewall.stf: 4 packets sent, 5 checks hold" in done.stdout + done.stderr


def test_a_test_of_ones_own(home: Path) -> None:
    plugin = "-p weir.testing.plugin"  # which an installed Weir brings by itself
    printed = played(f"cd examples/p4_program; python -m pytest -q {plugin}", home).stdout
    assert re.search(r"\b9 passed\b", printed)


@pytest.mark.long
@pytest.mark.skipif(find_spec("ptf") is None, reason="ptf is not installed: pip install --no-deps ptf")
def test_a_test_under_ptf(home: Path) -> None:
    line = "weir ptf --grpc-addr 127.0.0.1:0 --program examples/p4_program/firewall.json --test-dir examples/ptf"
    assert re.findall(r"^firewall\.\w+ \.\.\. (\w+)$", played(line, home).stderr, re.MULTILINE) == ["ok", "ok"]
