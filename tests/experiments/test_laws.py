"""Window laws compared in an incast: only windows that the switches allow have a bound, and keep it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import yaml

from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig
from weir.experiments.errors import ExperimentError
from weir.experiments.records.record import RunRecord
from weir.tests.paths import ROOT
from weir.wire.aggregation import LANES, MESSAGE_BYTES
from weir.wire.frames import FRAME_HEADER_BYTES

GUIDE_LINES = (ROOT / "docs" / "congestion.md").read_text().splitlines()
GUIDE = " ".join(" ".join(GUIDE_LINES).split())
WORKERS = 8
BOUND = 64
BUFFER = 128
OWN = str(ROOT / "examples" / "user_law.py")


@dataclass(frozen=True)
class Incast:
    longest_queue: int
    drops: int
    refusals: list[str]
    broken: list[str]
    duration_ns: int


def config_of(
    law: str,
    host_poll: str = "0us",
    queue: int = BUFFER,
    workers: int = WORKERS,
    delay: str = "2us",
    **congestion: str,
) -> RunConfig:
    """A rack's workers send to one server, with windows of twice what fits into the buffer for all of them, or more."""
    rack = {"kind": "leaf-spine", "leaves": 1, "spines": 1, "hosts_per_leaf": workers + 1, "queue": queue}
    return RunConfig.model_validate(
        {
            "name": "incast",
            "fabric": {"name": "rack", "generate": {**rack, "rate": "1Gbit", "delay": delay}},
            "job": {
                "workers": [f"h{number + 1}" for number in range(workers)],
                "server": f"h{workers + 1}",
                "window": 32,
                "slots": 64,
            },
            "host_poll": host_poll,
            "congestion": {"bound": BOUND, "law": law, **congestion},
            "strategies": ["ps"],
        }
    )


def incast(law: str, rounds: int = 100, host_poll: str = "0us", workers: int = WORKERS, delay: str = "2us") -> Incast:
    """One sum of this many rounds."""
    config = config_of(law, host_poll, workers=workers, delay=delay)

    async def run() -> Incast:
        async with Cluster(config, "ps") as cluster:
            refusals = cluster.figures.refusals
            gradients = [np.full(rounds * LANES, rank, np.float32) for rank in range(workers)]
            _, duration_ns = await cluster.allreduce(gradients, 1)
            longest = max(link.largest_queue_packets for link in cluster.figures.links())
            drops = (await cluster.figures.drops()).get("queue full", 0)
            return Incast(longest, drops, refusals, cluster.figures.broken_promises, duration_ns)

    return asyncio.run(run())


@pytest.mark.parametrize(
    "law",
    ["explicit", "fixed", *(pytest.param(law, marks=pytest.mark.long) for law in ("dctcp", "hpcc", "delay", "loss"))],
)
def test_only_who_obeys_is_promised_a_bound(law: str) -> None:
    seen = incast(law)
    assert not seen.broken
    if law == "explicit":
        assert not seen.refusals
        assert seen.longest_queue <= BOUND
        assert not seen.drops
    else:
        assert any(f"{WORKERS} streams obey no window" in line for line in seen.refusals)
    if law in ("loss", "fixed"):
        assert seen.longest_queue == BUFFER
        assert seen.drops
    elif law != "explicit":
        assert seen.longest_queue < BUFFER, "marks and round trips tell before the buffer is full"


@pytest.mark.parametrize(
    "marks", ["sojourn", *(pytest.param(marks, marks=pytest.mark.long) for marks in ("depth", "virtual"))]
)
def test_marks_of_every_kind_hold_the_queue(marks: str) -> None:
    """The second sum counts, when DCTCP has found its windows: without marks all of them are in the queue, 8 · 32
    packets minus those in flight. K = Q* − N is 56.
    """
    config = config_of("dctcp", queue=512, marks=marks)

    async def run() -> int:
        async with Cluster(config, "ps") as cluster:
            gradients = [np.full(100 * LANES, rank, np.float32) for rank in range(WORKERS)]
            await cluster.allreduce(gradients, 1)
            cluster.emulated.pop_longest_queues()
            await cluster.allreduce([gradient[: 60 * LANES] for gradient in gradients], 1)
            assert not await cluster.figures.drops()
            return max(cluster.emulated.pop_longest_queues().values())

    assert BOUND - WORKERS <= asyncio.run(run()) < 2 * BOUND < WORKERS * 30


@pytest.mark.parametrize(
    ("law", "least", "most"),
    [
        pytest.param("explicit", 0.99, 1.0, marks=pytest.mark.long),
        pytest.param("dctcp", 0.99, 1.0, marks=pytest.mark.long),
        ("delay", 0.99, 1.0),
        pytest.param("hpcc", 0.89, 0.94, marks=pytest.mark.long),
    ],
)
def test_each_law_uses_as_much_of_the_link_as_it_is_to(law: str, least: float, most: float) -> None:
    """The time of 120 more rounds is compared with the server's link. HPCC should use η = 0.95 of it, of which INT has
    4 %: 16 bytes and 28 of the one switch, in 1,138.
    """
    assert least <= share_of(law) <= most + 1e-3


def share_of(law: str, workers: int = WORKERS, delay: str = "2us") -> float:
    """Share of the server's link, for 120 rounds more than 60."""
    short, long = (incast(law, rounds, "10us", workers, delay).duration_ns for rounds in (60, 180))
    return 120 * workers * 8 * (MESSAGE_BYTES + FRAME_HEADER_BYTES) / (long - short)


@pytest.mark.long
@pytest.mark.parametrize("delay", ["2us", "50us"])
def test_hpcc_uses_its_share_if_many_frames_fill_the_link(delay: str) -> None:
    """16 and 30 workers: with delays of 2 us a waiting frame is a sixth of the link's capacity in flight, with 50 us 4
    %.
    """
    few, many = (share_of("hpcc", workers, delay) for workers in (16, 30))
    if delay == "50us":
        assert min(few, many) >= 0.9
        assert f"with links of 50 µs, where at least 27 frames fill the link, {few:.3f} and {many:.3f}" in GUIDE
    else:
        assert max(few, many) < 0.89
        for workers, share in ((16, few), (30, many)):
            [row] = [line for line in GUIDE_LINES if line.startswith(f"| {workers} | hpcc |")]
            assert row.split("|")[5].strip() == f"{share:.3f}"


def test_a_users_bounded_law_keeps_the_bound() -> None:
    assert config_of(OWN).congestion_options.windows_obeyed
    measured = incast(OWN, rounds=30, workers=4)
    assert (measured.broken, measured.drops) == ([], 0)
    assert measured.longest_queue <= BOUND


def test_a_run_file_names_a_law_from_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(Path(OWN).read_text())
    run = {"name": "x", "fabric": "leaf_spine.yaml", "job": {"workers": ["h1", "h4"]}, "congestion": {"law": "mine.py"}}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(run))
    monkeypatch.chdir("/")
    assert RunConfig.load(tmp_path / "run.yaml").congestion.law == str(tmp_path / "mine.py")
    (tmp_path / "mine.py").write_text("DESCRIPTION = 1\n")
    (tmp_path / "mine.py").rename(tmp_path / "other.py")
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(run | {"congestion": {"law": "other.py"}}))
    with pytest.raises(ExperimentError, match=r"congestion\.law.*other\.py: DESCRIPTION"):
        RunConfig.load(tmp_path / "run.yaml")


def test_a_record_has_the_digest_of_a_users_law(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(Path(OWN).read_text())
    RunRecord.begin(config_of(str(path)), "", 0.0).save(tmp_path)
    with pytest.raises(ExperimentError, match="--trust"):
        RunRecord.load(tmp_path)
    assert RunRecord.load(tmp_path, trust=True).code.keys() == {str(path)}
    path.write_text(Path(OWN).read_text() + "# changed\n")
    with pytest.raises(ExperimentError, match="SHA-256 differs"):
        RunRecord.load(tmp_path, trust=True)
