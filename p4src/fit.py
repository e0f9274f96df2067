"""Resources that the Tofino program uses on each chip, as reported by p4c's back end, and whether it fits.

The back end compiles a program that needs more stages than the chip has without any error, so this module checks it. It
reads the output of p4c 1.2.5: `pipe/logs/resources.json` and `phv.json`, and the assembly.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from . import BUILD, P4C_HOME, ROOT
from .compile import CompileError, run_compiler, sources


@dataclass(frozen=True, slots=True)
class Chip:
    """Target chip of the compilation."""

    program: str
    target: str
    """Name used by the back end."""
    architecture: str
    source: str = "tofino/fabric.p4"

    @property
    def generation(self) -> int:
        """1 or 2."""
        return 2 if self.target == "tofino2" else 1

    @property
    def name(self) -> str:
        """Display name."""
        return f"Tofino {self.generation}"

    @property
    def folder(self) -> str:
        """Folder of the source."""
        return self.source.partition("/")[0]

    @property
    def assembly(self) -> Path:
        """The back end's assembly, in its output folder."""
        return Path("pipe", f"{Path(self.source).stem}.bfa")

    @property
    def report(self) -> Path:
        """The report that is checked in."""
        return BUILD / f"{self.program}.fit.txt"


CHIPS: Final = (
    Chip("fabric_tofino", "tofino", "tna"),
    Chip("fabric_tofino2", "tofino2", "t2na"),
)
FORESTS: Final = (
    Chip("forest_tofino", "tofino", "tna", "forest/forest.p4"),
    Chip("forest_tofino2", "tofino2", "t2na", "forest/forest.p4"),
)
"""The program for decision forests, which has no place beside sums."""
_BORROWED: Final = ("bmv2/classification.p4", "tofino/checksum.p4", "tofino/routing.p4", "tofino/target.p4")
"""Files of other programs that it includes."""

BACK_END: Final = "p4c-barefoot"
ASSEMBLER: Final = "bfas"
SCHEMA: Final = "bfrt.json"
ASSEMBLED: Final = "assembled"
"""Subfolders of a compiled program: the control plane of the chip's driver, and the files that the chip and its driver
load.
"""

_HARMLESS: Final = ("No size defined for table", "will be unrolled up to", "Applying @pa_byte_pack on parsed field")
"""Ignored warnings of the back end: tables of one entry, a generated loop, and header-validity bits packed in one byte,
all of which are 0 until a parser or a table sets them.
"""

_PRUNING: Final = re.compile(r"#ifdef PRUNING\n.*?#endif\n", re.DOTALL)
"""Parts of common/ for programs that send DONE, which those for chips do not."""
_LEFT_OUT: Final = re.compile(r"#ifdef (?:CLASSIFICATION|PRUNING)\n.*?#endif\n", re.DOTALL)
"""The same, and parts for programs with classification, which the fabric's program for Tofino lacks."""

_GRESSES: Final = ("ingress", "egress")
_TABLE: Final = re.compile(r"  (?:[a-z]+_match|hash_action|gateway|stateful|meter|selection|counter) ")


class FitError(Exception):
    """The back end warns, or writes something else than is known of it."""


@dataclass(frozen=True, slots=True)
class Use:
    """So much of a resource, of so much that there is."""

    name: str
    used: int
    there_is: int


@dataclass(frozen=True, slots=True)
class Fit:
    """Resources of a program."""

    version: str
    """Version of the back end."""
    stages: dict[str, int]
    """Stages used in ingress and egress."""
    chip_stages: int
    by_stage: tuple[tuple[Use, ...], ...]
    """The same resources for each stage."""
    whole: tuple[Use, ...]
    """Resources outside stages: containers of fields, states of parsers."""
    blocks: Mapping[str, int] = field(default_factory=dict)
    """SRAM and TCAM blocks by table."""

    @property
    def totals(self) -> list[Use]:
        """Over all stages of the chip, those that nothing is in included."""
        return [
            Use(uses[0].name, sum(use.used for use in uses), uses[0].there_is * self.chip_stages)
            for uses in zip(*self.by_stage, strict=True)
        ]

    def refusals(self) -> list[str]:
        """Return the reasons why a program does not fit; empty if it does."""
        late = [
            f"{gress} takes {count} stages of {self.chip_stages}"
            for gress, count in self.stages.items()
            if count > self.chip_stages
        ]
        uses = (*(use for stage in self.by_stage for use in stage), *self.whole)
        return late + [f"{use.used} {use.name} of {use.there_is}" for use in uses if use.used > use.there_is]


def sources_digest(folder: str = "tofino") -> str:
    """Return the SHA-256 over the sources that a program for Tofino is made of, by name, without parts that it
    leaves out.
    """
    digest = hashlib.sha256()
    if folder == "forest":
        for path in (*sources("common", "forest"), *(ROOT / name for name in _BORROWED)):
            digest.update(f"{path.relative_to(ROOT)}\0{_PRUNING.sub('', path.read_text())}".encode())
        return digest.hexdigest()
    for path in sources("common", "tofino"):
        digest.update(f"{path.relative_to(ROOT)}\0{_LEFT_OUT.sub('', path.read_text())}".encode())
    return digest.hexdigest()


def lanes() -> int:
    """Return lanes of a message that the program sums."""
    found = re.search(r"#define LANES (\d+)\n", (ROOT / "tofino" / "target.p4").read_text())
    assert found
    return int(found[1])


def compile_for_chip(chip: Chip, folder: Path) -> Fit:
    """Compile and assemble its program into a folder. Raises CompileError or FitError with their own words."""
    options = ["--target", chip.target, "--arch", chip.architecture, f"-D__TARGET_TOFINO__={chip.generation}"]
    options += ["-g", "-o", str(folder), "--bf-rt-schema", str(folder / SCHEMA)]
    # warnings about parts of common/ for other targets, and about annotations that only P4Info reads
    said = run_compiler(BACK_END, *options, "--Wdisable=unused", "--Wdisable=unknown", chip.source).stderr
    warnings = [
        line for line in said.splitlines() if "warning: " in line and not any(word in line for word in _HARMLESS)
    ]
    if warnings:
        raise FitError(f"{BACK_END} warns:\n" + "\n".join(warnings))
    assembly = folder / chip.assembly
    check_parsers(assembly.read_text())
    run_compiler(ASSEMBLER, "--target", chip.target, "-o", str(folder / ASSEMBLED), str(assembly))
    return read_fit(folder, chip.assembly)


def keep(folder: Path, kept: Path) -> None:
    """Put what the chip and its driver load, of a program compiled into `folder`, into another one."""
    shutil.copytree(folder / ASSEMBLED, kept, dirs_exist_ok=True)
    shutil.copy(folder / SCHEMA, kept)


def check_parsers(assembly: str) -> None:
    """Raise FitError if the back end has left out what parsers choose by, as p4c 1.2.5.16 does."""
    if not re.search(r"^ +match: \[.*\b(half|byte\d)", assembly, re.MULTILINE):  # padding chooses by counters alone
        raise FitError(
            f"{BACK_END} writes parsers that choose nothing, a fault of this p4c: take one that has "
            f"{P4C_HOME}/pull/5753, of September 2026"
        )


def read_fit(folder: Path, assembly: Path = CHIPS[0].assembly) -> Fit:
    """Read the back end's output from a folder. Raises FitError for an unknown format."""
    try:
        logs = folder / "pipe" / "logs"
        written = json.loads((logs / "resources.json").read_text())
        containers = json.loads((logs / "phv.json").read_text())["containers"]
        resources = written["resources"]
        mau = resources["mau"]
        by_stage = tuple(tuple(_uses_of_stage(stage)) for stage in mau["mau_stages"])
        whole = (*_containers(resources["phv_containers"], containers), *_parsers(resources["parser"]["parsers"]))
        return Fit(
            version=written["compiler_version"],
            stages=_last_stages((folder / assembly).read_text()),
            chip_stages=mau["nStages"],
            by_stage=by_stage,
            whole=whole,
            blocks=_blocks(mau["mau_stages"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FitError(f"{folder}: {BACK_END} writes its reports in another way than p4c 1.2.5: {error!r}") from error


def _uses_of_stage(stage: dict[str, Any]) -> Iterable[Use]:
    def used(resource: str, units: str) -> int:
        return len(stage[resource][units])

    rams, tcams, maps, gateways = stage["rams"], stage["tcams"], stage["map_rams"], stage["gateways"]
    yield Use("SRAM blocks", used("rams", "srams"), rams["nRows"] * rams["nColumns"])
    yield Use("TCAM blocks", used("tcams", "tcams"), tcams["nRows"] * tcams["nColumns"])
    yield Use("map RAMs", used("map_rams", "maprams"), maps["nRows"] * maps["nUnits"])
    yield Use("register and meter units", used("meter_alus", "meters"), stage["meter_alus"]["nAlus"])
    yield Use("counter units", used("statistic_alus", "stats"), stage["statistic_alus"]["nAlus"])
    yield Use("conditions", used("gateways", "gateways"), gateways["nRows"] * gateways["nUnits"])
    yield Use("logical tables", used("logical_tables", "ids"), stage["logical_tables"]["size"])
    crossbar = stage["xbar_bytes"]
    for kind in ("exact", "ternary"):
        taken = sum(byte["byte_type"] == kind for byte in crossbar["bytes"])
        yield Use(f"{kind} crossbar bytes", taken, crossbar[f"{kind}_size"])


def _blocks(stages: list[dict[str, Any]]) -> dict[str, int]:
    units = [unit for stage in stages for unit in (*stage["tcams"]["tcams"], *stage["rams"]["srams"])]
    return dict(Counter(usage["used_by"] for unit in units for usage in unit.get("usages", ())))


def _containers(there_are: dict[str, Any], used: list[dict[str, Any]]) -> Iterable[Use]:
    for kind, sizes in there_are.items():
        for size in sizes:
            width = size["width"]
            taken = {
                container["phv_number"]
                for container in used
                if (container["container_type"], container["bit_width"]) == (kind, width)
            }
            yield Use(f"{kind} containers of {width} bits", len(taken), size["units"])


def _parsers(parsers: list[dict[str, Any]]) -> Iterable[Use]:
    for gress in _GRESSES:
        states = {parser["nStates"]: len(parser["states"]) for parser in parsers if parser["gress"] == gress}
        [(there_is, taken)] = states.items()
        yield Use(f"states of the {gress} parser", taken, there_is)


def _last_stages(assembly: str) -> dict[str, int]:
    """Number of stages of each direction, up to its last table."""
    stages, gress = dict.fromkeys(_GRESSES, 0), ""
    number = 0
    for line in assembly.splitlines():
        if found := re.match(r"stage (\d+) (\w+):", line):
            number, gress = int(found[1]) + 1, found[2]
        elif not line.startswith(" "):
            gress = ""
        elif gress and _TABLE.match(line):
            stages[gress] = number
    return stages


def model_lines(fit: Fit, trees: int = 9, leaves: int = 64) -> list[str]:
    """Return the room for decision forests, and what one takes of it, by the blocks of the tables."""
    sizes = (ROOT / "forest" / "classification.p4").read_text()
    defines = {name: int(number) for name, number in re.findall(r"#define (\w+) +(\d+)", sizes)}
    each = [count for table, count in fit.blocks.items() if re.fullmatch(r".*inference\.tree_\d+", table)]
    features = sum(count for table, count in fit.blocks.items() if re.fullmatch(r".*inference\.feature_\d+", table))
    bits = 16 * defines["WORD_BITS"]
    return [
        f"forests    {len(each)} trees, each with {defines['CHIP_LEAVES']} rows of {bits} bits: two models'",
        f"           {trees} trees with {leaves} leaves: {trees * max(each)} TCAM blocks of 44 bits x 512 rows, "
        f"{trees * leaves} rows of {trees * defines['CHIP_LEAVES']};",
        f"           64 features with a row for each value: {features} SRAM blocks",
    ]


def report_of(chip: Chip, fit: Fit, digest: str) -> str:
    """Return the report as it is checked in."""
    lines = [
        f"What p4src/{chip.folder} takes of a {chip.name}, as p4c's back end for it says. No switch has loaded it yet.",
        "",
        f"back end   {fit.version}",
        f"sources    sha256 {digest}",
        *([f"lanes      {lanes()} of a message"] if chip in CHIPS else model_lines(fit)),
        *(f"{gress:10s} {count} of {fit.chip_stages} stages" for gress, count in fit.stages.items()),
        "",
        *(f"{use.used:5d} of {use.there_is:4d} {use.name}" for use in (*fit.totals, *fit.whole)),
        "",
        "By stage:",
        "",
    ]
    names = [use.name for use in fit.by_stage[0]]
    lines.append("stage  " + "  ".join(names))
    for number, uses in enumerate(fit.by_stage):
        cells = "  ".join(f"{use.used:{len(name)}d}" for use, name in zip(uses, names, strict=True))
        lines.append(f"{number:5d}  {cells}")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Run `python -m weir.p4src.fit`: compile, and write the reports. Returns 0 if it fits or is unknown, else 2."""
    parser = argparse.ArgumentParser(
        prog="python -m weir.p4src.fit", description="Compile the program for each Tofino, and report what it takes."
    )
    parser.add_argument("--keep", type=Path, help="a folder for what chips and drivers load, by program")
    kept = parser.parse_args(arguments).keep
    if missing := [tool for tool in (BACK_END, ASSEMBLER) if shutil.which(tool) is None]:
        sys.stdout.write(
            f"p4src: {', '.join(missing)} not on PATH, so what is on record of the chips stays as it is; "
            f"p4c has both if it is built with its Tofino back end ({P4C_HOME})\n"
        )
        return 0
    reports = {}
    for chip in (*CHIPS, *FORESTS):
        sys.stdout.write(f"p4src: compiling {chip.source} for {chip.name}, which takes some minutes\n")
        sys.stdout.flush()
        try:
            with TemporaryDirectory() as folder:
                fit = compile_for_chip(chip, Path(folder))
                if kept is not None and chip in CHIPS:
                    keep(Path(folder), kept / chip.program)
        except (CompileError, FitError) as error:
            sys.stderr.write(f"p4src: {chip.name}: {error}\n")
            return 2
        if refusals := fit.refusals():
            sys.stderr.write(f"p4src: {chip.source} does not fit {chip.name}: {'; '.join(refusals)}\n")
            return 2
        reports[chip] = report_of(chip, fit, sources_digest(chip.folder))
    for chip, report in reports.items():
        chip.report.write_text(report)
        sys.stdout.write(report)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
