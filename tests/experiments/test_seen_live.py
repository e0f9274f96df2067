"""The demo's run, seen by a browser: the move of its aggregation point is on the page within a second of it.

::

    run ──look──▶ page's server ──▶ browser ──▶ what it shows
     ▲                                              │
     └──────── goes on when it is shown ────────────┘

The run has its own clock, and a person sees it at a hundredth of its speed, which is about what the demo has on a small
machine. What is late is told by times of that clock alone: the move's own, and that of the event on the page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("plotly")

from weir.controller.controller import Controller
from weir.controller.live.server import LiveServer
from weir.controller.live.watch import Watch
from weir.experiments.backends.placements import Moved
from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig
from weir.tests.browser import chromium
from weir.topologies.model import Topology

SLOWER: Final = 100
"""Seconds of a viewer's time per second of the run."""
PATIENCE_S: Final = 300
"""Time limit in seconds for a browser without output; it measures nothing."""
SHOWN: Final = """
const row = document.querySelector("#jobs tr"), move = [...document.querySelectorAll("#events li")]
  .find(item => item.querySelector("b").textContent === "move" && item.textContent.includes("generation 2"))
return [Number(row?.dataset.generation ?? 0), row?.dataset.sums ?? "", move?.textContent ?? ""]
"""
SUMMING: Final = (
    'return document.getElementById("fabric").data?.find(t => t.marker?.symbol === "square")?.marker.color'
    '.map((colour, at) => colour === "#7fd1c7" ? fabric.nodes.filter(n => n.switch)[at].name : "")'
    '.filter(name => name).join(" ")'
)


HOOK: Final = """
const before = show
window.shownNs = -1
show = state => { before(state); window.shownNs = state.time_ns }
"""


@dataclass(frozen=True)
class Seen:
    """The job at one look: as the controller has it, and as the page shows it then."""

    now_ns: int
    generation: int
    sums: str
    shown_generation: int
    shown_sums: str
    shown_move: str


class Onlooker(Watch):
    """Lets the run go on when the browser shows what there was to see."""

    def __init__(self, server: LiveServer, browser: Any) -> None:
        super().__init__(server, clock=lambda: SLOWER * self.cluster.now_ns / 1e9)
        self.cluster: Cluster
        self.looks: list[Seen] = []
        self._browser, self._url = browser, server.url

    def begin(self, topology: Topology, title: str, now_ns: int = 0) -> None:
        """Wait until switches and controller have started: a browser that starts at the same time may take all of a
        small machine.
        """
        super().begin(topology, title, now_ns)
        self._browser.get(self._url)
        until(self._browser, 'return document.getElementById("title").textContent', f"Weir: {title}")
        self._browser.execute_script(HOOK)

    def refresh(self, controller: Controller, now_ns: int, doing: str = "") -> None:
        super().refresh(controller, now_ns, doing)
        until(self._browser, "return window.shownNs", now_ns)
        for job in controller.jobs.values():
            placement = job.plan.placement
            sums = " ".join(sorted({*placement.switches, *({placement.root} - {job.spec.server})}))
            shown = self._browser.execute_script(SHOWN)
            self.looks.append(Seen(now_ns, job.plan.generation, sums, *shown))


def until(browser: Any, script: str, value: object) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, PATIENCE_S).until(lambda browser: browser.execute_script(script) == value)


async def train(config: RunConfig, onlooker: Onlooker) -> int:
    """Until the job has moved, and a second more of a person's time has passed; when it had its new place, in ns."""
    job = config.new_job()
    samples = [job.samples(worker) for worker in range(job.workers)]
    onlooker.cluster = Cluster(config, "widest", onlooker)
    async with onlooker.cluster as cluster:
        moved: list[Moved] = []
        for step in range(config.training.steps):
            await cluster.compute(config.training.compute)
            totals, _ = await cluster.allreduce(job.gradients(step), samples)
            job.apply([total.mean() for total in totals])
            moved += cluster.pop_moves()
            if moved and SLOWER * (cluster.now_ns - moved[0].time_ns) > 1e9:
                return moved[0].time_ns
    raise AssertionError(f"moves: {moved}, and no second afterwards")


@pytest.fixture
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


def check(config: RunConfig, browser: Any) -> None:
    with LiveServer(port=0) as server:
        onlooker = Onlooker(server, browser)
        moved_ns = asyncio.run(train(config, onlooker))
        seen = onlooker.looks
        assert [(each.shown_generation, each.shown_sums) for each in seen] == [
            (each.generation, each.sums) for each in seen
        ]
        before = [each for each in seen if each.generation == 1]
        first = next(each for each in seen if each.generation == 2)
        assert {each.shown_move for each in before} == {""}
        assert first.sums not in {each.sums for each in before}
        assert SLOWER * abs(first.now_ns - moved_ns) <= 1e9
        assert first.shown_move.startswith(f"{first.now_ns / 1e9:.3f} s move job 1: generation 2, summed at ")
        until(browser, SUMMING, seen[-1].sums)  # and it is drawn


def test_a_move_of_the_demos_job_is_on_the_page_within_a_second(short: RunConfig, browser: Any) -> None:
    longer = short.training.model_copy(update={"steps": 60})  # it ends when the move has been seen
    check(short.model_copy(update={"training": longer}), browser)


@pytest.mark.long
def test_the_demos_move_is_on_the_page_within_a_second(demo: RunConfig, browser: Any) -> None:
    check(demo, browser)
