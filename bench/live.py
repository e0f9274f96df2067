"""The live page with many watchers.

A controller of the demo's fabric (6 switches, 28 links) is polled five times a second while 20 pages are open. The cost
is the processor time of this process, polls and the server's thread together; the watchers are another process. A state
counts as seen when a watcher has read it; the poll interval before it adds up to 0.2 s.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from itertools import count
from subprocess import PIPE, Popen
from typing import Final

from weir.bench.measure import Aim, Figure
from weir.controller.controller import Controller, ControllerOptions
from weir.controller.live.server import LiveServer
from weir.controller.live.watch import LOOK_S, Watch
from weir.controller.placement.strategies import strategy
from weir.experiments.backends.emulated import EmulatedFabric
from weir.topologies import Routes, leaf_spine

RUNS: Final = 3
PAGES: Final = 20
LOOKS: Final = 50

_WATCHERS: Final = """
import json, sys, time, threading
from urllib.request import urlopen
url, pages = sys.argv[1], int(sys.argv[2])
delays, ready, lock = [], threading.Semaphore(0), threading.Lock()
def watch():
    first = True
    with urlopen(url + "live") as lines:
        for line in lines:
            if line.startswith(b"data: ") and b'"doing"' in line[:80]:
                sent = json.loads(line[6:])["doing"]
                if first:
                    first = False
                    ready.release()
                elif sent:
                    with lock:
                        delays.append((time.monotonic_ns() - int(sent)) / 1e9)
for _ in range(pages):
    threading.Thread(target=watch, daemon=True).start()
for _ in range(pages):
    ready.acquire()
print(flush=True)
sys.stdin.readline()
print(json.dumps(delays), flush=True)
"""


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module."""
    runs = [asyncio.run(_watched()) for _ in range(RUNS)]
    shares, delays = zip(*runs, strict=True)
    yield Figure(f"share of a core, {PAGES} pages open", "cores", shares, less_is_better=True, aim=Aim(0.05))
    yield Figure("from the look to the page, 99 %", "s", delays, less_is_better=True, aim=Aim(1 - LOOK_S))


async def _watched() -> tuple[float, float]:
    """(share of a core, 99th percentile of the delay in seconds)."""
    topology = leaf_spine(4, 2, 3)
    emulated = EmulatedFabric(topology)
    with emulated.serve() as rpc, LiveServer(port=0) as server:
        async with emulated.sessions(rpc) as sessions:
            controller = Controller(topology, Routes(topology), sessions, strategy("widest"), ControllerOptions())
            await controller.start()
            await controller.tick(0)
            watch = Watch(server, clock=count().__next__)  # every call looks
            watch.begin(topology, "a bench")
            watch.refresh(controller, 0)
            watchers = Popen(
                [sys.executable, "-c", _WATCHERS, server.url, str(PAGES)], stdin=PIPE, stdout=PIPE, text=True
            )
            assert watchers.stdin is not None
            assert watchers.stdout is not None
            await asyncio.to_thread(watchers.stdout.readline)
            began_s, used_s = time.monotonic(), time.process_time()
            for number in range(LOOKS):
                await asyncio.sleep(began_s + number * LOOK_S - time.monotonic())
                watch.refresh(controller, number, str(time.monotonic_ns()))
            await asyncio.sleep(LOOK_S)
            share = (time.process_time() - used_s) / (time.monotonic() - began_s)
            told, _ = await asyncio.to_thread(watchers.communicate, "\n")
            delays = sorted(json.loads(told))
            if len(delays) < 0.9 * LOOKS * PAGES:  # a page that is late sees the newest state alone
                raise RuntimeError(f"{len(delays)} states were seen, of {LOOKS * PAGES}")
            return share, delays[len(delays) * 99 // 100]
