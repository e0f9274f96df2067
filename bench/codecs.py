"""Compression codecs, end to end: processor time of one core for encoding and decoding an array

An array of 16 MiB of float32 is encoded into messages of lanes, or into a code, and decoded. Bytes are those of the
float32 numbers. The peer of packed numbers is the same codec without Numba, and that of a codec in CompLL's native code
is NumPy's code of the same text.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final
from unittest.mock import patch

import numpy as np

from weir.bench.measure import Aim, Figure, cpu_seconds
from weir.hosts.compression.codecs import make_codec
from weir.hosts.compression.trial import measure
from weir.hosts.numerics import lane_codes
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
    for name in FILES:
        path = str(ROOT / "examples" / "codecs" / f"{name}.compll")
        native, plain = (_rates(path, native=choice) for choice in (True, False))
        for step, mine, theirs in zip(("encode", "decode"), native, plain, strict=True):
            yield Figure(f"{name}.compll: {step}", "B/s", mine, "NumPy", theirs)


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
