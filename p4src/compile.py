"""Compile the switch program: p4c on `bmv2/fabric.p4`, the control plane of `tofino/fabric.p4`, and the digests that
tie the result to its sources.

p4c runs inside this folder with relative paths, so the result names no path of the machine.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from . import FABRIC_DIGEST, LANES, P4C, P4C_HOME, P4TEST, ROOT, TOFINO, json_of, p4info_of

_TNA_AS_PSA: Final = (
    (r"Meter\(bit<32> size,", "Meter(bit<32> n_meters,"),
    (r"\bCounter\(bit<32> size,", "Counter(bit<32> n_counters,"),
    (r"extern ActionSelector \{", "extern ActionSelector { ActionSelector(bit<32> size);"),
    (
        r"ActionProfile\((\w+)\) ecmp;(.*?)ActionSelector\(ecmp, \w+, [\w.]+, (\w+), \w+\) ecmp_groups;",
        r"@max_group_size(\3) ActionSelector(\1) ecmp;\2",
    ),
    (r"\bimplementation = ecmp_groups;", "psa_implementation = ecmp;"),
)
"""p4c's own generator of P4Info knows PSA and not TNA, whose externs have other names for the same parameters, and a
profile apart from its selector, which P4Info has as one."""


_FRAGMENT: Final = re.compile(r'("source_fragment" : "(?:[^"\\]|\\.){0,100})(?:[^"\\]|\\.)*"')
"""A quotation of the source: p4c quotes all that a macro makes with each of its tables, a megabyte for features."""


class CompileError(Exception):
    """p4c is missing, or did not like the program."""


def sources(*folders: str) -> list[Path]:
    """Return the P4 files in these folders, or all that there are, in a fixed order."""
    return sorted(path for folder in folders or ("common", "bmv2", "tofino") for path in ROOT.glob(f"{folder}/*.p4"))


def products() -> list[Path]:
    """Return all that is made of them."""
    compiled = [path for program in LANES for path in (json_of(program), p4info_of(program))]
    return [*compiled, *(p4info_of(program) for program in TOFINO)]


def digests() -> str:
    """Return one line per source and product, as `sha256sum` writes them."""
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(ROOT)}\n"
        for path in (*sources(), *products())
    )


def compile_fabric(json: Path, p4info: Path, lanes: int) -> None:
    """Compile `bmv2/fabric.p4` for `lanes` lanes to BMv2 JSON and P4Info; every warning is an error.

    One warning is off: p4c warns of each table with an action selector that v1model knows no default action there, and
    the program relies on none.

    Raises:
        CompileError: p4c refused; the message is p4c's.
    """
    options = [f"-DLANES={lanes}", "--arch", "v1model", "--Werror", "--Wdisable=unsupported"]
    run_compiler(P4C, *options, "-o", str(json), "--p4runtime-files", str(p4info), "bmv2/fabric.p4")
    json.write_text(_FRAGMENT.sub(r'\1"', json.read_text()))


def describe_tofino(p4info: Path, generation: int) -> None:
    """Write the control plane of `tofino/fabric.p4` for Tofino 1 or 2 as P4Info, which takes no back end for the chip.
    Raises CompileError with p4c's own words.
    """
    preprocessed = run_compiler(P4TEST, "-E", f"-D__TARGET_TOFINO__={generation}", "tofino/fabric.p4")
    if (
        "fatal error: " in preprocessed.stderr
    ):  # such as a missing tna.p4, with which p4test -E still ends in good order
        raise CompileError(preprocessed.stderr.strip())
    text = preprocessed.stdout
    for tna, psa in _TNA_AS_PSA:
        text, count = re.subn(tna, psa, text, flags=re.DOTALL)
        if not count:
            raise CompileError(f"tofino/fabric.p4 and TNA have nothing like {tna}, which P4Info is made from")
    with TemporaryDirectory() as folder:
        adapted = Path(folder, "fabric.p4")
        adapted.write_text(text)
        run_compiler(P4TEST, "--arch", "psa", "--Wdisable=unused", "--p4runtime-files", str(p4info), str(adapted))
    p4info.write_text(p4info.read_text().replace('arch: "psa"', 'arch: "tna"'))


def run_compiler(compiler: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a compiler in this folder and return its output. Raises CompileError if it is missing or refuses."""
    if shutil.which(compiler) is None:
        raise CompileError(
            f"{compiler} is not on PATH; install p4c as {P4C_HOME} says, under 'Installing packaged versions'"
        )
    done = subprocess.run([compiler, *options], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(done.stderr.strip())
    return done


def main() -> int:
    """Run `python -m weir.p4src.build`: compile into `build/`. 0 when done, 2 when not."""
    try:
        for program, lanes in LANES.items():
            compile_fabric(json_of(program), p4info_of(program), lanes)
        for program, generation in TOFINO.items():
            describe_tofino(p4info_of(program), generation)
    except CompileError as error:
        sys.stderr.write(f"p4src: {error}\n")
        return 2
    FABRIC_DIGEST.write_text(digests())
    sys.stdout.write(f"p4src: {', '.join((*LANES, *TOFINO))} are made of {len(sources())} sources\n")
    return 0
