"""The example's script with `weir torchrun`: in the emulated fabric, in Mininet, and compared with local sums."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from weir.tests.paths import ROOT
from weir.tests.support.commands import WEIR, weir
from weir.tests.support.live_page import free_port
from weir.topologies.mininet.fabric import obstacle

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None, reason="PyTorch is not installed (pip install 'weir-fabric[torch]')"
)

SCRIPT = ROOT / "examples" / "ddp.py"
REJOINS = ROOT / "examples" / "rejoin.py"
LOCAL = ROOT / "tests" / "hosts" / "torch" / "local_sums.py"
RANKS = 4
_SAID = re.compile(r"rank (\d) of 4: accuracy (0\.\d+), weights ([0-9a-f]{16})")


def run(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [str(word) for word in words]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, **options)


def trained(*words: object) -> tuple[float, str]:
    """Accuracy and weights, which are all ranks'."""
    done = run(*words, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    said = _SAID.findall(done.stdout)
    assert sorted(rank for rank, _, _ in said) == [str(rank) for rank in range(RANKS)], done.stdout
    (accuracy, weights), *others = {(accuracy, weights) for _, accuracy, weights in said}
    assert others == []
    return float(accuracy), weights


@pytest.fixture(scope="module")
def local() -> tuple[float, str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", RANKS, "--standalone"]
    return trained(*command, LOCAL, "fixed", SCRIPT)


@pytest.mark.long
def test_the_example_has_the_bits_of_its_sums_done_locally(local: tuple[float, str]) -> None:
    assert trained(WEIR, "torchrun", "-n", RANKS, SCRIPT) == local
    assert local[0] > 0.9


@pytest.mark.long
@pytest.mark.skipif(obstacle() is not None, reason=f"Mininet: {obstacle()}")
def test_the_example_has_the_same_bits_in_mininet(local: tuple[float, str]) -> None:
    assert trained(WEIR, "torchrun", "-n", RANKS, "--fabric", "mininet", SCRIPT) == local


CRASHES = """
import os, sys, torch, torch.distributed as dist
from weir.tests.support.live_page import read_page
dist.init_process_group("weir")
total = torch.ones(5000)
dist.all_reduce(total)
if sys.argv[1] == "crash" and dist.get_rank() == 1:
    raise ValueError("out of luck")
if sys.argv[1] == "crash":
    dist.all_reduce(total)
elif dist.get_rank() == 1:
    print(read_page(sys.argv[1]))
print("done", flush=True)
"""


def test_a_script_that_destroys_nothing_ends_cleanly_and_had_a_page(tmp_path: Path) -> None:
    """A rank reads the page of `--web` while both run."""
    for name in ("aiohttp", "plotly"):
        pytest.importorskip(name)
    script = tmp_path / "script.py"
    script.write_text(CRASHES)
    done = run(WEIR, "torchrun", "-n", 2, "--web", (port := free_port()), script, port)
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["done", "done", "leaf-spine"]), done.stderr
    assert "terminate" not in done.stderr


@pytest.mark.long
def test_a_rank_that_crashes_ends_the_job_with_its_reason(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(CRASHES)
    done = run(WEIR, "torchrun", "-n", 2, script, "crash")
    assert done.returncode == 1
    assert "ValueError: out of luck" in done.stderr
    assert "done" not in done.stdout


ENDLESS = """
import torch, torch.distributed as dist
dist.init_process_group("weir")
if dist.get_rank() == 0:
    print("begun", flush=True)
while True:
    dist.all_reduce(torch.ones(1000))
"""


def test_a_signal_in_mid_run_ends_it_without_a_traceback_or_a_folder(tmp_path: Path) -> None:
    """PyTorch's torchrun prints one, and leaves its folder for errors of ranks."""
    script, said = tmp_path / "script.py", tmp_path / "said"
    script.write_text(ENDLESS)
    words = ["env", "--default-signal=TERM", str(WEIR), "torchrun", "-n", "2", str(script)]
    with said.open("w") as err, TemporaryDirectory() as scratch:  # short, as sockets' paths must be
        environment = {**os.environ, "TMPDIR": scratch}
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=err, text=True, env=environment)
        try:
            assert process.stdout is not None
            assert any("begun" in line for line in process.stdout)
            process.terminate()
            assert process.wait(280) == 128 + signal.SIGTERM
        finally:
            process.kill()
            process.communicate()
        kept = {f"weir-cache-{os.geteuid()}"}
        assert {path.name for path in Path(scratch).iterdir()} <= kept
    assert "Traceback" not in said.read_text()


@pytest.mark.long
def test_a_process_restarted_by_torchrun_rejoins_the_others() -> None:
    done = run(WEIR, "torchrun", "-n", 3, "--max-restarts", 1, REJOINS)
    assert done.returncode == 0, done.stderr
    said = re.findall(r"rank (\d): loss (0\.\d+) after 40 steps, weights ([0-9a-f]{16})", done.stdout)
    assert sorted(rank for rank, _, _ in said) == ["0", "1", "2"], done.stdout
    assert len({(loss, weights) for _, loss, weights in said}) == 1
    assert re.findall(r"rank .* is back .*", done.stdout) == ["rank 2 of 3 is back at step 20"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("WEIR_POLICY", "hope"), ("WEIR_SLOTS", "3"), ("WEIR_MIN_BYTES", "-1"), ("WEIR_TIMEOUT", "nan")],
)
def test_the_environment_is_checked_before_a_fabric_starts(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    ended = weir("torchrun", SCRIPT)
    assert ended.status == 2
    (line,) = ended.err.splitlines()
    assert name in line


def test_the_command_says_what_cannot_be() -> None:
    for words, said in {
        ("--policy", "hope"): 'weir: --policy "hope" is unknown; supported: continue, wait, abort',
        ("--lease", "soon"): "weir: --lease: ",
        ("-n", "5", "--topology", str(ROOT / "examples" / "two_hosts.yaml")): "two_hosts.yaml",
    }.items():
        ended = weir("torchrun", *words, SCRIPT)
        assert ended.status == 2
        assert said in ended.err


def test_importing_torch_is_safe_and_loads_nothing_of_weir() -> None:
    look = "import sys, torch; print(sorted(name for name in sys.modules if name.startswith('weir')))"
    loaded = run(sys.executable, "-c", look).stdout
    assert loaded in (
        "['weir', 'weir.imports', 'weir.imports.extras', 'weir.torch_entry']\n",
        "[]\n",
    )  # where it is not installed
    broken = "import sys, torch; import weir.torch_entry as entry; torch.distributed.Backend = None; entry.register()"
    done = run(sys.executable, "-c", broken)
    assert done.returncode == 0, done.stderr
