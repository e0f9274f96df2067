"""Compression codecs, end to end: processor time of one core for encoding and decoding an array

An array of 16 MiB of float32 is encoded into messages of lanes, or into a code, and decoded. Bytes are those of the
float32 numbers. The peer of a codec in CompLL's native code is NumPy's code of the same text.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from weir.bench.measure import Aim, Figure
from weir.hosts.compression.codecs import make_codec
from weir.hosts.compression.trial import measure
from weir.tests.paths import ROOT

NUMBERS: Final = 4 << 20
PACKED_AIM: Final = 2e9
"""Bytes per second of one core, so that coding costs less than a link of 10 Gbit/s saves."""
RUNS: Final = 3
PACKED: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("packed(8)", {}),
    ("packed(8), not rotated", {"rotated": False}),
)
FILES: Final = ("onebit", "tbq", "terngrad", "graddrop", "dgc")


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module."""
    for label, options in PACKED:
        for step, rates in zip(("encode", "decode"), _rates("packed", **options), strict=True):
            yield Figure(f"{label}: {step}", "B/s", rates, aim=Aim(PACKED_AIM))
    for name in FILES:
        path = str(ROOT / "examples" / "codecs" / f"{name}.compll")
        native, plain = (_rates(path, native=choice) for choice in (True, False))
        for step, mine, theirs in zip(("encode", "decode"), native, plain, strict=True):
            yield Figure(f"{name}.compll: {step}", "B/s", mine, "NumPy", theirs)


def _rates(codec: str, **options: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return bytes per second of encoding and of decoding, for each run."""
    made = make_codec(codec, **options)
    measure(made, 1 << 12, time.process_time)  # compiles
    spans = [measure(made, NUMBERS, time.process_time) for _ in range(RUNS)]
    encode, decode = (tuple(4 * NUMBERS / span[place] for span in spans) for place in (0, 1))
    return encode, decode
