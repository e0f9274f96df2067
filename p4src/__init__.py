"""The switch program, and the location of its compiled form.

`common/` holds ids, sizes and headers; `bmv2/` the program for v1model with `fabric.p4` on top and `target.p4` for the
parts specific to v1model; `build/` p4c's output. The compiled form is checked in, so that p4c is needed only after
changes of P4: `make p4` recompiles.
`tofino/` is the program for Tofino 1 and 2 under the same names, `forest/` one for decision forests on these chips; of
its compiled forms only the control plane is here, since the chips' binaries come from their own compiler.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent
BUILD: Final = ROOT / "build"


def loaded_of(program: str, ending: str) -> Path:
    """Return the path of the file that a switch loads, by the file ending of its kind of switch."""
    return BUILD / f"{program}.{ending}"


def json_of(program: str) -> Path:
    """Return a compiled program as BMv2 JSON."""
    return loaded_of(program, "json")


def p4info_of(program: str) -> Path:
    """Return its control-plane interface as P4Info in protobuf text."""
    return BUILD / f"{program}.p4info.txtpb"


LANES: Final = {"fabric": 256, "fabric_32": 32}
"""The compiled programs, and how many lanes each sums of a message at most. The first takes messages of the second as
well."""

TOFINO: Final = {"fabric_tofino": 1, "fabric_tofino2": 2}
"""The Tofino generation of each chip program; the name is that of its control plane and of the file that is loaded."""

FABRIC_JSON: Final = json_of("fabric")
FABRIC_P4INFO: Final = p4info_of("fabric")

FABRIC_DIGEST: Final = BUILD / "fabric.sha256"
"""Digests of the sources and of all that is made of them; `sha256sum --check` in p4src/ reads it."""

P4C: Final = "p4c-bm2-ss"
P4TEST: Final = "p4test"
"""p4c without a back end, which takes TNA."""
P4C_HOME: Final = "https://github.com/p4lang/p4c"
