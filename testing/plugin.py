"""The pytest plugin: a fabric for a test, and the packets that cross it.

It is loaded wherever Weir is installed, so it imports nothing but pytest until a test requests a fabric.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .network import Network, Packet, Programs, TopologyLike

MakeFabric = Callable[..., "Network"]
Send = Callable[[str, "Packet"], None]
Received = Callable[[str], list[bytes]]
RunStf = Callable[["str | Path", str], None]


class _Fabrics:
    """The fabrics of one test; files are searched in the test's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.made: list[Network] = []

    def make(self, topology: TopologyLike | None = None, program: Programs | None = None, **options: Any) -> Network:
        from .network import Network

        self.made.append(Network(topology, program, folder=self._folder, **options))
        return self.made[-1]

    @property
    def last(self) -> Network:
        if not self.made:
            pytest.fail("there is no fabric yet: the test calls fabric(topology, program) first", pytrace=False)
        return self.made[-1]


@pytest.fixture
def _fabrics(request: pytest.FixtureRequest) -> Iterator[_Fabrics]:
    fabrics = _Fabrics(request.path.parent)
    yield fabrics
    for network in fabrics.made:
        network.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the traces of lost packets to a failed test's report."""
    report = yield
    fabrics = getattr(item, "funcargs", {}).get("_fabrics")
    if report.when == "call" and report.failed and isinstance(fabrics, _Fabrics):
        for network in fabrics.made:
            if lost := network.lost_frames():
                report.sections.append(("packets that came to no host, replayed in the switches as they are now", lost))
    return report


@pytest.fixture
def fabric(_fabrics: _Fabrics) -> MakeFabric:
    """Return a factory: `fabric(topology, program)` gives a `weir.testing.Network`. Files are searched next to the
    test.
    """
    return _fabrics.make


@pytest.fixture
def send(_fabrics: _Fabrics) -> Send:
    """`send("h1", packet)` sends from a host of the test's fabric."""
    return lambda host, packet: _fabrics.last.send(host, packet)


@pytest.fixture
def received(_fabrics: _Fabrics) -> Received:
    """`received("h2")`: the frames that have come to a host since it was asked last, after all have arrived."""
    return lambda host: _fabrics.last.received(host)


@pytest.fixture
def stf(request: pytest.FixtureRequest) -> RunStf:
    """Return a player: `stf(program, statements)` plays p4c's packet tests on a new switch (docs/stf.md).

    The test fails if a statement does not hold. Files are searched next to the test.
    """

    def run(program: str | Path, statements: str) -> None:
        from ..emulator.stf import StfTest, load_program, play
        from ..emulator.stf.reader import parse

        test = StfTest(Path(request.node.name), parse(statements, request.node.name))
        if failures := play(load_program(request.path.parent / program), test).failures:
            pytest.fail("\n".join(failures), pytrace=False)

    return run
