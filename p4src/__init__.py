"""The switch program, and where its compiled form lies.

`common/` holds ids, sizes and headers, `bmv2/` the program for v1model with `fabric.p4` on top and `target.p4` for what
is v1model's alone, `build/` what p4c makes of it. The compiled form is checked in, so that only who edits P4 needs p4c:
`make p4` recompiles.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent
FABRIC_JSON: Final = ROOT / "build" / "fabric.json"
"""The program as BMv2 JSON."""

FABRIC_P4INFO: Final = ROOT / "build" / "fabric.p4info.txtpb"
"""Its control-plane interface as P4Info in protobuf text."""

FABRIC_DIGEST: Final = ROOT / "build" / "fabric.sha256"
"""Digests of the sources these two came from, and of the two; `sha256sum --check` in this folder reads it."""

P4C: Final = "p4c-bm2-ss"
P4C_HOME: Final = "https://github.com/p4lang/p4c"
