"""Compression codecs, end to end: processor time of one core for encoding and decoding an array.

An array of 16 MiB of float32 is encoded into messages of lanes, or into a code, and decoded. Bytes are those of the
float32 numbers. The peer of packed numbers is the same codec without Numba. Programs of CompLL in native code make and
read codes of bytes, beside plain NumPy as public collections have it, of 64 and 256 MiB.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any, Final
from unittest.mock import patch

import numpy as np

from weir.bench.measure import Aim, Figure, TimedWork, compare, cpu_seconds
from weir.experiments.repetition.plain_codecs import PLAIN
from weir.hosts.compression.codecs import make_codec
from weir.hosts.compression.language.program import CodecProgram
from weir.hosts.compression.trial import measure
from weir.hosts.numerics import lane_codes
from weir.hosts.numerics.draws import Draws
from weir.tests.paths import ROOT

NUMBERS: Final = 4 << 20
PACKED_AIM: Final = 2e9
"""Bytes per second of one core, so that coding costs less than a link of 10 Gbit/s saves."""
RUNS: Final = 3
PACKED: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("packed(8)", {}),
    ("packed(8), not rotated", {"rotated": False}),
    ("packed(15)", {"bits": 15}),
)
PROGRAM_NUMBERS: Final = (16 << 20, 64 << 20)
FILES: Final = ("onebit", "tbq", "terngrad", "graddrop", "dgc")


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module."""
    yield Figure("copy of the array", "B/s", tuple(_copy_rate() for _ in range(RUNS)))
    for label, options in PACKED:
        native = _rates("packed", **options)
        with patch.object(lane_codes, "native_code", lambda: None):
            plain = _rates("packed", **options)
        for step, mine, theirs in zip(("encode", "decode"), native, plain, strict=True):
            yield Figure(f"{label}: {step}", "B/s", mine, "NumPy", theirs, aim=Aim(PACKED_AIM))
    for numbers, name in product(PROGRAM_NUMBERS, FILES):
        yield from _program_figures(name, numbers)


def _program_figures(name: str, numbers: int) -> Iterator[Figure]:
    """Yield the speed of a program's codes of bytes beside plain NumPy's, in turns."""
    program = CodecProgram((ROOT / "examples" / "codecs" / f"{name}.compll").read_text(), name, native=True)
    values = np.random.default_rng(1).standard_normal(numbers).astype(np.float32)
    values *= np.float32(0.01)
    rng, (encode, decode) = np.random.default_rng(2), PLAIN[name]
    code = program.encode(values[:4096], Draws(1, 0))
    program.decode(code, 4096)  # compiles
    label, mine, theirs = f"{name}.compll, {4 * numbers >> 20} MiB", "native", "NumPy"
    yield compare(
        f"{label}: encode",
        "B/s",
        TimedWork(mine, 4 * numbers, partial(program.encode, values, Draws(1, 0))),
        TimedWork(theirs, 4 * numbers, partial(encode, values, rng)),
        runs=RUNS,
        clock=cpu_seconds,
    )
    code, plain = program.encode(values, Draws(1, 0)), encode(values, rng)
    yield compare(
        f"{label}: decode",
        "B/s",
        TimedWork(mine, 4 * numbers, partial(program.decode, code, numbers)),
        TimedWork(theirs, 4 * numbers, partial(decode, plain)),
        runs=RUNS,
        clock=cpu_seconds,
    )


def _copy_rate() -> float:
    source, target = np.ones(NUMBERS, np.float32), np.zeros(NUMBERS, np.float32)
    return 4 * NUMBERS / cpu_seconds(lambda: np.copyto(target, source))


def _rates(codec: str, **options: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return bytes per second of encoding and of decoding, for each run."""
    made = make_codec(codec, **options)
    measure(made, 1 << 12, time.process_time)  # compiles
    spans = [measure(made, NUMBERS, time.process_time) for _ in range(RUNS)]
    encode, decode = (tuple(4 * NUMBERS / span[place] for span in spans) for place in (0, 1))
    return encode, decode
