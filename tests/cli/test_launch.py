"""`weir launch`: one's own training loop as processes on an emulated fabric, without root."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from weir.cli import ranks as launching
from weir.cli.ranks import LaunchedJob, LaunchOptions, RankProcess, _described, launched_job, run_ranks
from weir.experiments.errors import ExperimentError
from weir.hosts import JoinRefused, join
from weir.tests.emulator.p4runtime.p4runtime_rig import Client
from weir.tests.paths import ROOT
from weir.tests.processes import left_with
from weir.tests.support.commands import WEIR, weir
from weir.tests.support.errors import raises
from weir.tests.support.live_page import free_port
from weir.topologies import load_topology

LOOP = str(ROOT / "examples" / "train.py")

SMALL = """
name: two-switches
hosts: {h1: , h2: , h3: }
switches: {s1: , s2: }
links: [{ends: [h1, s1-p1]}, {ends: [h2, s1-p2]}, {ends: [h3, s2-p1]}, {ends: [s1-p3, s2-p2]}]
"""


@pytest.fixture
def fabric(tmp_path: Path) -> Path:
    file = tmp_path / "two_switches.yaml"
    file.write_text(SMALL)
    return file


def test_a_loop_of_ones_own_ends_with_the_same_bits_at_all_ranks(fabric: Path) -> None:
    status, out, err = weir("launch", "-n", "3", "--topology", fabric, LOOP)
    assert status == 0, err
    found = re.findall(r"^\[(\d)\] rank (\d) of 3: weights (\w+) are \[(.*)\]$", out, re.MULTILINE)
    assert sorted((tag, rank) for tag, rank, _, _ in found) == [("0", "0"), ("1", "1"), ("2", "2")]
    assert len({bits for _, _, bits, _ in found}) == 1
    assert [float(word) for word in found[0][3].split()] == pytest.approx([3.0, -1.5], abs=1e-5)
    assert "of h1, h2, h3 on two-switches, summed at s" in err
    assert re.search(r"^weir: [\d.]+ MB in \d+ sums; .* take [\d.]+ ms", err, re.MULTILINE)


def test_a_run_has_a_time_out_losses_a_seed_a_history_and_a_page(fabric: Path, tmp_path: Path) -> None:
    """The first rank reads the page while all of them run."""
    duckdb, *_ = (pytest.importorskip(name) for name in ("duckdb", "aiohttp", "plotly"))
    program = tmp_path / "calls.py"
    program.write_text(
        "import os, sys, numpy as np, weir\n"
        "from weir.tests.support.live_page import read_page\n"
        "c = weir.join()\n"
        "if not c.rank: print(read_page(sys.argv[1]))\n"
        "for _ in range(20): total = c.allreduce(np.ones(3000, np.float32))\n"
        "print(os.environ['WEIR_TIMEOUT'], c.timeout_s, total[0])\n"
    )
    kept = tmp_path / "seen.duckdb"
    options = f"--timeout 90s --loss 0.02 --seed 3 --strategy root --web {(port := free_port())} --history"
    status, out, err = weir("launch", "-n", "2", "--topology", fabric, *options.split(), kept, program, port)
    assert status == 0, err
    assert sorted(out.splitlines()) == ["[0] 90 90.0 2.0", "[0] two-switches", "[1] 90 90.0 2.0"]
    with duckdb.connect(str(kept), read_only=True) as history:
        assert history.execute("SELECT title FROM runs").fetchall() == [("two-switches",)]


def test_a_rank_that_fails_ends_the_others_who_are_told_why(
    fabric: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line is the reason, also on a machine that was too slow."""
    monkeypatch.setattr(LaunchedJob, "behind_s", 2.0)
    program = tmp_path / "fails.py"
    program.write_text(
        "import sys, numpy as np, weir\n"
        "with weir.join() as communicator:\n"
        "    communicator.barrier()\n"
        "    if communicator.rank == 1:\n"
        "        raise RuntimeError(f'no data for {sys.argv[1:]}')\n"
        "    communicator.allreduce(np.ones(4, np.float32))\n"
    )
    status, _, err = weir("launch", "--hosts", "h3,h1", "--topology", fabric, program, "--data", "-n 7")
    assert status == 1
    assert "[1] RuntimeError: no data for ['--data', '-n 7']" in err
    assert re.search(r"^\[0\] .*AllreduceAborted: .*RuntimeError: no data", err, re.MULTILINE)
    assert "weir: job " in err
    assert "weir: the machine did not keep up: the fabric's time stood still for 2.0 s" in err
    assert err.splitlines()[-1].startswith("weir: rank 1 (h1) failed first: RuntimeError: no data")
    frames = [line for line in err.splitlines() if '  File "' in line]
    assert all(str(program) in frame for frame in frames), "no frames inside the package"


def test_a_mesh_has_a_communicator_along_each_dimension(tmp_path: Path) -> None:
    """Groups of one rank, too; sums are NumPy's over the axis, and all jobs are one family."""
    program = tmp_path / "grid.py"
    program.write_text(
        "import numpy as np, weir\n"
        "with weir.join() as communicator:\n"
        "    along = [group.allreduce(np.full(1000, communicator.rank, np.float32)) for group in communicator.mesh]\n"
        "    print(*[group.rank for group in communicator.mesh], *[int(total[-1]) for total in along])\n"
    )
    shape = (2, 1, 2)
    hosts = ["h4", "h2", "h1", "h9"]

    async def go() -> tuple[dict[int, int], set[str]]:
        async with launched_job(LaunchOptions(load_topology("live.yaml"), hosts, mesh=shape)) as job:
            seating = job.live.service._seating.jobs
            family = {number: seats.parent for number, seats in seating.items()}
            policies = {job.live.controller.jobs[number].spec.policy.value for number in family}
            assert family.pop(job.number) == 0
            assert {*family.values()} == {job.number}
            ended = await run_ranks(job.ranks, lambda _: [sys.executable, str(program)])
            assert ended.status == 0
            return family, policies

    out = io.StringIO()
    with redirect_stdout(out):
        family, policies = asyncio.run(go())
    assert (len(family), policies) == (2 + 4 + 2, {"abort"})
    ranks = np.arange(4).reshape(shape)
    sums = [np.broadcast_to(ranks.sum(axis, keepdims=True), shape) for axis in range(3)]
    assert sorted(out.getvalue().splitlines()) == [
        f"[{rank}] " + " ".join(map(str, [*at, *(total[at] for total in sums)])) for at, rank in np.ndenumerate(ranks)
    ]


def test_a_job_without_a_mesh_has_no_groups(fabric: Path, tmp_path: Path) -> None:
    program = tmp_path / "grid.py"
    program.write_text("import weir\nwith weir.join() as communicator:\n    communicator.mesh\n")
    status, _, err = weir("launch", "--hosts", "h3,h1", "--topology", fabric, program)
    assert status == 1
    assert "HostError: mesh: this job has none; start it with one of two or more dimensions" in err


def test_ranks_heartbeats_cross_the_fabric_to_a_free_host(fabric: Path, tmp_path: Path) -> None:
    over = tmp_path / "over"
    program = f"""
import pathlib, time, weir
with weir.join() as communicator:
    while not pathlib.Path({str(over)!r}).exists():
        time.sleep(0.01)
    communicator.barrier()
"""

    async def go() -> tuple[int, str | None, int, int, int, int]:
        async with launched_job(LaunchOptions(load_topology(fabric), ["h3", "h1"])) as job:
            running = asyncio.ensure_future(run_ranks(job.ranks, lambda _: [sys.executable, "-c", program]))
            heard = job.live.service.heartbeats
            while not running.done() and {host for _, host in heard.seats} != {"h3", "h1"}:
                await asyncio.sleep(0.01)
            over.touch()
            ended = await running
            return ended.status, job.heartbeats_at, heard.came, heard.sent, heard.damaged, heard.repeated

    status, at, came, sent, *wrong = asyncio.run(go())
    assert (status, at, wrong) == (0, "h2", [0, 0]), "but for those that come when the job is over, and of no seat"
    assert came == sent >= 2


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["-n", "2"], "weir launch runs a program of yours: weir launch -n 4 train.py"),
        (["train.py"], "say how many workers (-n 4) or on which hosts (--hosts h1,h4), and not both"),
        (["-n", "2", "nothing.py"], "nothing.py: there is no such file"),
        (["-n", "2", "nothing"], "nothing: there is no such command; the name of a Python file ends with .py"),
        (
            ["-n", "13", LOOP],
            "13 workers on leaf-spine, which has 12 hosts; a host runs one worker",
        ),
        (["--hosts", "h1, h99", LOOP], 'weir: leaf-spine: no host "h99"; there are h1, h2'),
        (["--hosts", "h1, h2,h1", LOOP], "weir: h1: named twice; a host runs one worker"),
        (
            ["-n", "2", "--strategy", "wides", LOOP],
            'strategy "wides" is unknown, did you mean "widest"?; supported: agg',
        ),
        (["--mesh", "2x0", LOOP], 'weir: --mesh: "2x0" is not a mesh; write 1 to 8 sizes of at least 1, like 2x2x2'),
        (["--mesh", "a", LOOP], 'weir: --mesh: "a" is not a mesh'),
        (["-n", "8", "--mesh", "3x3", LOOP], "weir: --mesh: 3x3 has 9 ranks, and the job 8; the sizes multiply to"),
        (["--hosts", "h1,h2", "--mesh", "2x2", LOOP], "weir: --mesh: 2x2 has 4 ranks, and the job 2"),
        (["--mesh", "4x4", LOOP], "16 workers on leaf-spine, which has 12 hosts; a host runs one worker"),
        (["--mesh", "2x2", "--stripes", "2", LOOP], "weir: --stripes 2 and --mesh exclude each other"),
        (["-n", "2", "--timeout", "soon", LOOP], 'weir: --timeout: delay "soon" is not a delay; write it like 10us'),
        (["-n", "2", "--timeout", "0s", LOOP], "weir: --timeout 0: write it like 30s"),
        (["-n", "2", "--policy", "abbort", LOOP], 'policy "abbort" is unknown; supported: continue, wait, abort'),
    ],
)
def test_an_impossible_launch_is_one_line(words: list[str], complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said before a fabric is made."""
    monkeypatch.setattr("weir.cli.ranks.live_fabric", None)
    status, out, err = weir("launch", *words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert complaint in err


def test_join_without_a_seat_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WEIR_CONTROL", "WEIR_JOB", "WEIR_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with raises(JoinRefused, value=("WEIR_JOB", "WEIR_TOKEN")) as refused:
        join("127.0.0.1:9561")
    assert "weir launch -n 2 script.py" in str(refused.value)
    monkeypatch.setenv("WEIR_JOB", "seven")
    with raises(JoinRefused, place="WEIR_JOB", value="seven"):
        join("127.0.0.1:9561", token="x")


SPINES = """
name: two-spines
hosts: {h1: , h2: , h3: , h4: }
switches: {s1: , s2: , s3: , s4: }
defaults: {rate: 200Mbit}
links:
- {ends: [h1, s1-p1]}
- {ends: [h2, s1-p2]}
- {ends: [h3, s2-p1]}
- {ends: [h4, s2-p2]}
- {ends: [s1-p3, s3-p1], rate: 100Mbit}
- {ends: [s1-p4, s4-p1], rate: 100Mbit}
- {ends: [s2-p3, s3-p2], rate: 100Mbit}
- {ends: [s2-p4, s4-p2], rate: 100Mbit}
"""


@pytest.mark.long
def test_two_trees_share_a_loops_sums(tmp_path: Path) -> None:
    """Each tree has its own spine; the program has one seat, and receives the sums of all chunks."""
    fabric, program = tmp_path / "two_spines.yaml", tmp_path / "sums.py"
    fabric.write_text(SPINES)
    program.write_text(
        "import numpy as np, weir\n"
        "with weir.join() as communicator:\n"
        "    mine = np.arange(5_000) * (communicator.rank + 1)\n"
        "    for length in (5_000, 1, 300):\n"
        "        total = communicator.allreduce(mine[:length])\n"
        "        print(bool((total == 10 * np.arange(5_000)[:length]).all()))\n"
    )
    status, out, err = weir("launch", "-n", "4", "--stripes", "2", "--topology", fabric, program)
    assert status == 0, err
    assert sorted(out.splitlines()) == [f"[{rank}] True" for rank in range(4) for _ in range(3)]
    assert "summed at s1, s2, s3, s4" in err


def test_a_folder_whose_path_is_too_long_for_sockets_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    status, _, err = weir("launch", "-n", "2", LOOP)
    assert status == 2
    assert f"{long}/" in err
    assert "TMPDIR names another" in err


def ranks_of(*commands: Sequence[str]) -> int:
    """The exit status of these commands as ranks without a job."""
    ranks = [RankProcess(number, f"h{number + 1}", {}) for number in range(len(commands))]
    return asyncio.run(asyncio.wait_for(run_ranks(ranks, lambda rank: commands[rank.rank]), 60)).status


SLEEPS: Final = "import time; time.sleep(1000)"


def test_children_of_a_rank_end_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rank that fails, or another: of a script that starts a program, the program ends, too."""
    monkeypatch.setattr(launching, "_TO_END_S", 0.3)
    monkeypatch.setenv("WEIR_TEST_MARK", str(tmp_path))
    program = f"{sys.executable} -c '{SLEEPS}'"
    assert ranks_of(["sh", "-c", "exit 3"], ["sh", "-c", f"{program}; true"]) == 3
    assert ranks_of(["sh", "-c", f"{program} & exit 4"]) == 4
    assert left_with(f"WEIR_TEST_MARK={tmp_path}") == []


def test_ranks_end_when_the_output_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same happens with `weir launch … | head`."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        with pytest.raises(ExperimentError, match=r"rank 0: .*cannot be written: Broken pipe; .*ended"):
            ranks_of([sys.executable, "-c", f"print('a line', flush=True); {SLEEPS}"])


def test_lines_the_terminal_cannot_encode_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", written)
    assert ranks_of([sys.executable, "-X", "utf8", "-c", "print('10 µs')"]) == 0
    assert written.buffer.getvalue() == rb"[0] 10 \xb5s" + b"\n"


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.long)]
)
def test_a_signal_ends_all_ranks(
    fabric: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, status: int
) -> None:
    """The same signal also ends ranks inside a script that is the rank."""
    monkeypatch.setenv("WEIR_TEST_MARK", str(tmp_path))
    program = tmp_path / "sleeps.py"
    program.write_text(
        "import os, signal, sys\n"
        "for number in (signal.SIGINT, signal.SIGTERM):\n"
        "    signal.signal(number, lambda by, _: sys.exit(open(f'{sys.argv[1]}/{os.getpid()}.{by}', 'w').close()))\n"
        f"print('up', flush=True)\n{SLEEPS}"
    )
    command = f"{sys.executable} {program} {tmp_path}; true"
    words = [str(WEIR), "launch", "-n", "2", "--topology", str(fabric), "sh", "-c", command]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as launched:
        assert launched.stdout is not None
        assert sorted(launched.stdout.readline() for _ in range(2)) == ["[0] up\n", "[1] up\n"]
        launched.send_signal(number)
        assert launched.wait(60) == status
    assert [path.suffix for path in tmp_path.glob("[0-9]*.*")] == [f".{number}"] * 2
    assert left_with(f"WEIR_TEST_MARK={tmp_path}") == []


def test_a_launch_ends_as_soon_as_its_controller_has_ended(fabric: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another controller takes one of its switches. The ranks, which never end by themselves, are ended."""
    switch = load_topology(fabric).switches[0]
    with tempfile.TemporaryDirectory() as folder:  # pytest's paths are too long for sockets
        monkeypatch.setenv("TMPDIR", folder)
        program = f"print('up', flush=True); {SLEEPS}"
        words = [str(WEIR), "launch", "-n", "2", "--topology", str(fabric), sys.executable, "-c", program]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as launched:
            try:
                assert launched.stdout is not None
                assert sorted(launched.stdout.readline() for _ in range(2)) == ["[0] up\n", "[1] up\n"]
                (address,) = Path(folder).glob("weir-live-*/p4runtime")
                with Client(f"unix:{address}", switch.device_id, election_id=1 << 127) as other:
                    stream = other.primary()
                    complaint = launched.communicate(timeout=300)[1]
                    stream.close()
            finally:
                launched.kill()
        assert launched.returncode == 2
        assert "controller has ended" in complaint.splitlines()[-1]
        assert left_with(f"TMPDIR={folder}") == []
        assert not [*Path(folder).glob("weir-[lp]*")], "folders of the fabric and of its sockets"


@pytest.mark.parametrize(
    ("status", "said"), [(3, "ended with status 3"), (-9, "was ended by SIGKILL"), (-40, "was ended by signal 40")]
)
def test_how_a_rank_ended(status: int, said: str) -> None:
    assert _described(status) == said
