"""`weir controller` with switches that do not answer: the switches it starts without, and its messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest
from typer.testing import CliRunner

from weir.cli import controller as command
from weir.cli.app import app
from weir.cli.live import start_looking
from weir.controller.controller import Controller
from weir.controller.errors import SwitchUnreachable
from weir.controller.jobs.journal_file import JournalFile
from weir.controller.p4runtime.tables import DROP_REASONS
from weir.experiments.errors import ExperimentError
from weir.hosts import ControlClient
from weir.tests.support.errors import raises
from weir.tests.support.fake_switch import FakeSwitch, fake_switches

RACK = """\
name: rack
generate: {kind: leaf-spine, leaves: 1, spines: 1, hosts_per_leaf: 3, rate: 1Gbit, delay: 2us}
"""


@pytest.fixture
async def switches() -> AsyncIterator[dict[str, FakeSwitch]]:
    """Two that answer."""
    async with fake_switches(["s1", "s2"]) as made:
        yield made


class Setting:
    """A fabric's file, where its switches serve, and a journal."""

    def __init__(self, switches: dict[str, FakeSwitch], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.addresses = {name: switch.address for name, switch in switches.items()}
        self.journal, self.address = folder / "journal", f"unix:{folder}/control"
        self._fabric, self._monkeypatch = folder / "rack.yaml", monkeypatch
        self._fabric.write_text(RACK)

    def end_in(self, lost: Sequence[str]) -> None:
        """Leave the state of a controller that has ended, with these switches lost."""
        with JournalFile(self.journal) as journal:
            for key, value in (("name", "rack"), ("owner", 7), ("lost", [*lost])):
                journal.put("fabric", key, value)

    async def serve(self) -> None:
        """Until it is cancelled, or fails."""
        asked: list[command._Settings] = []

        async def ask(settings: command._Settings) -> None:
            asked.append(settings)

        words = ["controller", str(self._fabric), "--journal", str(self.journal), "--listen", self.address]
        words += [word for name, at in self.addresses.items() for word in ("--switch", f"{name}={at}")]
        with self._monkeypatch.context() as as_asked:
            as_asked.setattr(command, "_serve", ask)
            await asyncio.to_thread(CliRunner().invoke, app, words, catch_exceptions=False)
        await command._serve(*asked)

    @asynccontextmanager
    async def serving(self, says: str, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[None]:
        """A controller that has said so much."""
        task, said = asyncio.create_task(self.serve()), ""
        async with asyncio.timeout(30):
            while says not in said:
                assert not task.done(), task.exception()
                await asyncio.sleep(0.01)
                said += capsys.readouterr().err
            yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    @property
    def answers(self) -> bool:
        """True if hosts and operators are served."""
        return Path(self.address.removeprefix("unix:")).exists()

    async def register(self) -> list[str]:
        """The switches of a job of all hosts."""

        def ask() -> list[str]:
            with ControlClient(self.address) as client:
                client.register(["h1", "h2", "h3"], None, job=7)
                return [*client.jobs()[0].switches]

        return await asyncio.to_thread(ask)


@pytest.fixture
def setting(switches: dict[str, FakeSwitch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    return Setting(switches, tmp_path, monkeypatch)


async def test_a_first_start_says_which_switch_does_not_answer(
    setting: Setting, switches: dict[str, FakeSwitch]
) -> None:
    await switches["s2"].stop()
    for _ in range(2):  # nothing that the second could go on with is left by the first
        with raises(SwitchUnreachable, switch="s2", address=setting.addresses["s2"], asked="connect"):
            await setting.serve()


@pytest.mark.parametrize("lost", [["s2"], []])
async def test_a_controller_goes_on_although_a_switch_is_dead(
    lost: list[str],
    setting: Setting,
    switches: dict[str, FakeSwitch],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The controller continues at once if the switch was lost before, else after a wait; the other switches take
    jobs.
    """
    monkeypatch.setattr(command, "_SILENT_S", 0.05 if not lost else 600.0)
    setting.end_in(lost)
    await switches["s2"].stop()
    says = "s2: lost before, and still no answer" if lost else "s2: no answer; waited for 0.05 s, and then taken for lo"
    async with setting.serving(says, capsys):
        while not setting.answers:
            await asyncio.sleep(0.01)
        assert await setting.register() == ["s1"]


async def test_a_switch_that_comes_while_it_is_waited_for_is_kept(
    setting: Setting,
    switches: dict[str, FakeSwitch],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command, "_SILENT_S", 600.0)
    setting.end_in([])
    await switches["s2"].stop()
    async with setting.serving("s2: no answer; waited for 600 s", capsys):
        await switches["s2"].start(setting.addresses["s2"])
        await switches["s2"].asked.wait()


async def test_a_waiting_controller_ignores_a_switch_that_dies(
    setting: Setting,
    switches: dict[str, FakeSwitch],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command, "_SILENT_S", 0.05)
    switches["s2"].primary = 1_000
    async with setting.serving("another controller rules s2", capsys):
        await asyncio.sleep(0.1)
        assert not setting.answers
        await switches["s2"].stop()
        while not setting.answers:
            await asyncio.sleep(0.01)
        assert await setting.register() == ["s1"]


async def test_drops_are_told_without_a_switch_that_was_never_there() -> None:
    for name in ("aiohttp", "plotly", "duckdb"):
        pytest.importorskip(name)
    there = Mock(read_counter=AsyncMock(return_value=range(len(DROP_REASONS))))
    dead = Mock(read_counter=AsyncMock(side_effect=SwitchUnreachable("s2", "there", "read", "nobody answers")))
    keeper, told = Mock(Controller), asyncio.Event()
    keeper.switches = Mock(sessions={"s2": dead, "s1": there}, lost=frozenset({"s2"}))
    watch = Mock(update_drops=Mock(side_effect=lambda drops, now_ns: told.set()))
    looking = start_looking(watch, keeper, lambda: 5, "nothing")
    async with asyncio.timeout(30):
        await told.wait()
    looking.cancel()
    watch.update_drops.assert_called_once_with({reason: index for index, reason in enumerate(DROP_REASONS)}, 5)


async def test_without_any_switch_the_controller_does_not_start(
    setting: Setting, switches: dict[str, FakeSwitch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong port is no reason to give up all the jobs."""
    monkeypatch.setattr(command, "_SILENT_S", 0.05)
    setting.end_in(["s2"])
    for switch in switches.values():
        await switch.stop()
    where = ", ".join(f"{name} at {at}" for name, at in setting.addresses.items())
    with raises(ExperimentError, value=where):
        await setting.serve()
