"""Run files with numbers, nesting and lists beyond any measure: one line each, soon, and nothing is computed first."""

from __future__ import annotations

from pathlib import Path

import pytest

from weir.experiments.config import RunConfig
from weir.experiments.errors import ExperimentError
from weir.experiments.flows.sizes import points_of
from weir.tests.support.errors import raises

_BASE = """name: numbers
fabric: leaf_spine.yaml
job: {workers: [h1, h4], server: h12}
training: {steps: 2}
strategies: [ps]
"""
_OPTIONS = _BASE + "workload: {script: own.py, options: {%s}}\n"
_BOMB = ", ".join(
    ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
)


def _background(flows: int, keys: str, first_port: int | None = None) -> str:
    """A run file with so many flows, each with its own port, if a first one is given."""
    ports = ["" if first_port is None else f", port: {first_port + number}" for number in range(flows)]
    lines = [f"  - {{source: h3, destination: h6, {keys}{port}}}\n" for port in ports]
    return "".join([_BASE, "background:\n", *lines])


_FILES = {
    "base 60": _BASE + "seed: " + ":".join(["1"] * 20_000) + "\n",
    "base 16": _BASE + "seed: 0x" + "f" * 10_000 + "\n",
    "a rate": _BASE + "background:\n  - {source: h3, destination: h6, rate: 1" + "0" * 4000 + "Mbit}\n",
    "a rate of 2^63 bit/s": _BASE + "background:\n  - {source: h3, destination: h6, rate: 9223372036854775808bit}\n",
    "a rate above the link's": _BASE + "background:\n  - {source: h3, destination: h6, rate: 100Gbit}\n",
    "a time": _BASE + "host_poll: 1" + "0" * 400 + "s\n",
    "an interval": _BASE + "heartbeats: {to: h3, interval: 1" + "0" * 400 + "s}\n",
    "nested": _OPTIONS % ("a: " + "[" * 480 + "]" * 480),
    "nested by aliases": _OPTIONS % ", ".join(["a0: &a0 [1]", *(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 480))]),
    "a bomb of anchors": _OPTIONS % _BOMB,
    "itself": _OPTIONS % "a: &a [*a]",
    "yielding flows": _background(1_001, "kind: yielding", first_port=1),
    "windows": _background(65, "kind: yielding, window: 4096", first_port=1),
    "messages": _background(2, f"kind: transfer, bytes: {1 << 28}"),
    "unknown keys": _BASE + "".join(f"key{i}: 1\n" for i in range(5_000)),
}


@pytest.mark.parametrize("name", _FILES)
def test_values_beyond_measure_are_refused_in_short_lines(name: str, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(_FILES[name])
    (tmp_path / "own.py").write_text("")
    with pytest.raises(ExperimentError) as refused:
        RunConfig.load(file)
    assert all(len(line) < 400 for line in str(refused.value).splitlines())


def test_a_device_without_an_end_is_no_file_of_flow_sizes(tmp_path: Path) -> None:
    sizes = tmp_path / "sizes.csv"
    sizes.symlink_to("/dev/zero")
    with raises(ExperimentError, place=str(sizes)):
        points_of(str(sizes))
