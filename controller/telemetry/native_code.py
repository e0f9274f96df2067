"""Native code of links and probes, which is loaded without Numba once it has been compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ...machine_code.functions import NativeCode

_HERE: Final = Path(__file__).parent
_WIRE: Final = ("aggregation", "fields", "frames", "int_md", "int_native", "native_code")
_OWN: Final = ("link_native", "link_records", "probe_format", "probe_native", "probe_records")
_INTO: Final = "piiippi"
"""Types of `LinkState.into`."""

update_links, collect = NativeCode(
    "weir.controller.telemetry.probe_native",
    {"update_links": f"pi{_INTO}", "collect": f"ppiiippppppippipppp{_INTO}"},
    [*(_HERE.parents[1] / "wire" / f"{name}.py" for name in _WIRE), *(_HERE / f"{name}.py" for name in _OWN)],
).functions
"""`link_native.update_links` and `probe_native.collect`. Both are loaded at once: compilation takes seconds, and no
lease is to run out meanwhile.
"""
