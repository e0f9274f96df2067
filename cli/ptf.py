"""`weir ptf`: p4lang's Packet Test Framework on an emulated switch."""

from __future__ import annotations

import re
import runpy
import shutil
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from ..experiments.errors import ExperimentError
from ..imports.extras import MissingExtra

_PLATFORM: Final = "from weir.testing.ptf_switch import platform_config_update\n"


def ptf(
    words: Annotated[list[str], typer.Argument(metavar="--test-dir FOLDER …", help="Options and tests for ptf.")],
    program: Annotated[
        Path | None,
        typer.Option(
            metavar="PROGRAM", help="BMv2 JSON, or P4 that p4c compiles now; default: none, the tests set one."
        ),
    ] = None,
    ports: Annotated[str, typer.Option(metavar="FIRST-LAST", help="Numbers of the switch's ports.")] = "0-7",
    grpc_addr: Annotated[
        str, typer.Option(metavar="ADDRESS:PORT", help="Where P4Runtime is served; port 0 takes a free one.")
    ] = "127.0.0.1:9559",
) -> None:
    """Run PTF tests of a P4 program, without root or interfaces.

    They meet an emulated switch. The exit status is ptf's.

    Tests find P4Runtime by the test parameter grpcaddr, and the switch's tables, counters and registers by name
    through weir.testing.switch_under_test().
    """
    script = shutil.which("ptf", path=str(Path(sys.executable).parent)) or shutil.which("ptf")
    if script is None:
        raise MissingExtra("weir ptf needs ptf, which is not installed: pip install --no-deps ptf scapy", name="ptf")
    numbers = _range(ports)
    from ..emulator.stf.suite import load_program
    from ..testing.ptf_switch import PLATFORM, PtfSwitch, under_ptf
    from ..topologies.mininet.scratch import scratch_folder

    switch = PtfSwitch(numbers, grpc_addr)
    if program is not None:
        loaded = load_program(program)
        switch.switch.start(loaded, loaded.new_state())
    with under_ptf(switch), scratch_folder("weir-ptf-") as folder:
        (folder / f"{PLATFORM}.py").write_text(_PLATFORM)
        told = [] if _says(words, "-t", "--test-params") else ["--test-params", f"grpcaddr='{switch.address}'"]
        sys.argv = ["ptf", "--allow-user", "--platform", PLATFORM, "--platform-dir", str(folder), *told, *words]
        runpy.run_path(script, run_name="__main__")


def _range(text: str) -> range:
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    if match is None or int(match[2] or match[1]) < int(match[1]):
        raise ExperimentError(f'--ports "{text}" is no range of ports; write it like 0-7')
    return range(int(match[1]), int(match[2] or match[1]) + 1)


def _says(words: list[str], *options: str) -> bool:
    return any(word.partition("=")[0] in options for word in words)
