"""Several `weir controller` on one journal: one of them runs through stops, hangs, kills and continuations."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from weir.emulator.p4runtime import P4RuntimeServer
from weir.emulator.switch import Switch
from weir.hosts import ControlClient, ControlRefused
from weir.p4src import FABRIC_JSON
from weir.topologies.generators import leaf_spine

WEIR = Path(sys.executable).with_name("weir")
PATIENCE_S = 120.0
TOPOLOGY = """\
name: rack
generate: {kind: leaf-spine, leaves: 1, spines: 1, hosts_per_leaf: 3, rate: 1Gbit, delay: 2us}
"""


@pytest.fixture
def rpc() -> Iterator[P4RuntimeServer]:
    switches = [Switch(node.device_id) for node in leaf_spine(1, 1, 3).switches]
    for switch in switches:
        switch.load(FABRIC_JSON.read_bytes())
    server = P4RuntimeServer(switches)
    server.start()
    yield server
    server.stop()


class Process:
    """One controller."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said = ""

    async def says(self, text: str) -> None:
        assert self.process.stderr is not None
        async with asyncio.timeout(PATIENCE_S):
            while text not in self.said:
                line = await self.process.stderr.readline()
                assert line, f"it ended without saying {text!r}: {self.said}"
                self.said += line.decode()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def end(self) -> int:
        async with asyncio.timeout(PATIENCE_S):
            return await self.process.wait()


class Setting:
    """The switches, a journal, and an address."""

    def __init__(self, rpc: P4RuntimeServer, folder: Path) -> None:
        self.rpc, self.folder = rpc, folder
        self.address = f"unix:{folder}/control"
        self.processes: list[Process] = []

    async def start(self, election_id: int, *more: str) -> Process:
        at = [word for node in ("s1", "s2") for word in ("--switch", f"{node}={self.rpc.address}")]
        words = ["controller", str(self.folder / "fabric.yaml"), *at, "--listen", self.address]
        words += ["--journal", str(self.folder / "journal"), "--election-id", str(election_id), *more]
        process = Process(
            await asyncio.create_subprocess_exec(
                WEIR, *words, stderr=asyncio.subprocess.PIPE, env={**os.environ, "COLUMNS": "400"}
            )
        )
        self.processes.append(process)
        return process

    async def jobs(self) -> list[int]:
        def ask() -> list[int]:
            with ControlClient(self.address) as client:
                return [job.job for job in client.jobs()]

        return await asyncio.to_thread(ask)


@asynccontextmanager
async def setting(rpc: P4RuntimeServer, folder: Path) -> AsyncIterator[Setting]:
    (folder / "fabric.yaml").write_text(TOPOLOGY)
    made = Setting(rpc, folder)
    try:
        yield made
    finally:
        for process in made.processes:
            if process.process.returncode is None:
                process.process.kill()
                await process.process.wait()


SERVED = "jobs are served at"


@pytest.mark.long
async def test_a_second_controller_waits_and_takes_over(rpc: P4RuntimeServer, tmp_path: Path) -> None:
    """Even with a higher election id, and while the first hangs: it may go on at any moment."""
    async with setting(rpc, tmp_path) as of:
        first = await of.start(10)
        await first.says(SERVED)

        def register() -> None:
            with ControlClient(of.address) as client:
                client.register(["h1", "h2"], None, job=7)

        await asyncio.to_thread(register)
        first.send(signal.SIGSTOP)
        second = await of.start(20)
        await second.says(f"process {first.process.pid} has the journal")
        first.send(signal.SIGCONT)
        assert await of.jobs() == [7]
        assert first.process.returncode is None
        first.send(signal.SIGKILL)
        await first.end()
        await second.says(f"{SERVED} {of.address}; 1 jobs go on")
        assert await of.jobs() == [7]

        second.send(signal.SIGSTOP)
        third = await of.start(30, "--take-over")
        await third.says(f"{SERVED} {of.address}; 1 jobs go on")
        assert await second.end() == -signal.SIGKILL
        assert await of.jobs() == [7]

        fourth = await of.start(5, "--take-over")
        await fourth.says(f"{SERVED} {of.address}; 1 jobs go on")
        assert await third.end() == 128 + signal.SIGTERM
        assert await of.jobs() == [7]
        fourth.send(signal.SIGTERM)
        assert await fourth.end() == 128 + signal.SIGTERM


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 120))
async def test_any_stops_and_deaths_leave_one_controller_and_all_jobs(
    seed: int, rpc: P4RuntimeServer, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    done: list[str] = []
    async with setting(rpc, tmp_path) as of, asyncio.TaskGroup() as group:

        async def listen(controller: Process) -> None:
            assert controller.process.stderr is not None
            async for line in controller.process.stderr:
                controller.said += line.decode()

        async def start(*more: str) -> Process:
            controller = await of.start(rng.randrange(1, 100), *more)
            group.create_task(listen(controller))
            return controller

        def alive() -> list[Process]:
            return [process for process in of.processes if process.process.returncode is None]

        async def one_serves() -> None:
            """One that runs serves, and answers; no other does."""
            async with asyncio.timeout(PATIENCE_S):
                while sum(SERVED in process.said for process in alive()) != 1 or await answer() != [7]:
                    await asyncio.sleep(0.1)

        async def answer() -> list[int] | None:
            try:
                return await of.jobs()
            except ControlRefused:
                return None

        await start()
        while not any(SERVED in process.said for process in alive()):
            await asyncio.sleep(0.05)

        def register() -> None:
            with ControlClient(of.address) as client:
                client.register(["h1", "h2"], None, job=7)

        await asyncio.to_thread(register)
        for _ in range(8):
            act = rng.choice(["start", "take over", "stop", "stop", "continue", "kill", "end"])
            number = rng.randrange(3)
            done.append(f"{act} {number}")
            if act in ("start", "take over"):
                if len(alive()) < 3:
                    await start(*(["--take-over"] if act == "take over" else []))
            elif number < len(alive()):
                alive()[number].send(
                    {
                        "stop": signal.SIGSTOP,
                        "continue": signal.SIGCONT,
                        "kill": signal.SIGKILL,
                        "end": signal.SIGTERM,
                    }[act]
                )
            await asyncio.sleep(rng.uniform(0, 1.5))
        for process in alive():
            process.send(signal.SIGCONT)
        await asyncio.sleep(0.2)  # the one that was signalled while it was stopped ends now
        if not alive():
            await start()
        try:
            await one_serves()
        except TimeoutError:
            said = "\n".join(
                f"{process.process.pid} {process.process.returncode}: {process.said}" for process in of.processes
            )
            raise AssertionError(f"{done}\n{said}") from None
        for process in alive():
            process.send(signal.SIGKILL)
