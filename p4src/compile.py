"""Compile the switch program: p4c on `bmv2/fabric.p4`, and the digests that tie the result to its sources.

p4c runs inside this folder with relative paths, so the result names no path of the machine.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from . import FABRIC_DIGEST, LANES, P4C, P4C_HOME, ROOT, json_of, p4info_of


class CompileError(Exception):
    """p4c is missing, or did not like the program."""


def sources() -> list[Path]:
    """All P4 files that the program is made of, in a fixed order."""
    return sorted([*ROOT.glob("common/*.p4"), *ROOT.glob("bmv2/*.p4")])


def digests() -> str:
    """One line per source and product, as `sha256sum` writes them."""
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(ROOT)}\n"
        for path in (*sources(), *(path for program in LANES for path in (json_of(program), p4info_of(program))))
    )


def compile_fabric(json: Path, p4info: Path, lanes: int) -> None:
    """Compile `bmv2/fabric.p4` for so many lanes to BMv2 JSON and P4Info; every warning is an error.

    One warning is off: p4c warns of each table with an action selector that v1model knows no default action there, and
    the program relies on none. Raises CompileError with p4c's own words.
    """
    if shutil.which(P4C) is None:
        raise CompileError(
            f"{P4C} is not on PATH; install p4c as {P4C_HOME} says, under 'Installing packaged versions'"
        )
    options = [f"-DLANES={lanes}", "--arch", "v1model", "--Werror", "--Wdisable=unsupported"]
    done = subprocess.run(
        [P4C, *options, "-o", str(json), "--p4runtime-files", str(p4info), "bmv2/fabric.p4"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CompileError(done.stderr.strip())


def main() -> int:
    """`python -m weir.p4src.build`: compile into `build/`. 0 when done, 2 when not."""
    try:
        for program, lanes in LANES.items():
            compile_fabric(json_of(program), p4info_of(program), lanes)
    except CompileError as error:
        sys.stderr.write(f"p4src: {error}\n")
        return 2
    FABRIC_DIGEST.write_text(digests())
    sys.stdout.write(f"p4src: {' and '.join(LANES)} are made of {len(sources())} sources\n")
    return 0
