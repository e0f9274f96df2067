"""`weir codec`: compression codecs by name or file, their contract and their speed."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from .help import command_group, examples

app = command_group(
    no_args_is_help=True,
    help="List compression codecs, check one, or measure its speed.",
    epilog=examples("weir codec list", "weir codec check topk", "weir codec bench packed --megabytes 16"),
)

CodecArgument = Annotated[
    str, typer.Argument(metavar="CODEC", help="A name of weir codec list, or a .compll or Python file.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

_console = Console(highlight=False, markup=False)


@app.command("list", epilog=examples("weir codec list", "weir codec list --json"))
def list_codecs(as_json: JsonOption = False) -> None:
    """List the codecs: way, bytes and algorithm.

    Bytes are those of a number on one worker's link, in a direction, with 8 workers.
    """
    from ..hosts.compression.codecs import CODECS, make_codec

    size = 1 << 20
    rows = []
    for name, description in CODECS.items():
        codec = make_codec(name)
        rows.append(
            {
                "name": name,
                "way": "switches" if codec.homomorphic else "all-gather",
                "bytes_per_number": round(codec.bytes_on_wire(size, 8) / size, 3),
                "summary": description.summary,
            }
        )
    if as_json:
        sys.stdout.write(json.dumps(rows) + "\n")
        return
    table = Table("name", "way", "bytes", "algorithm", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for row in rows:
        table.add_row(*(str(cell) for cell in row.values()))
    _console.print(table)


@app.command(epilog=examples("weir codec check topk", "weir codec check examples/codecs/tbq.compll"))
def check(codec: CodecArgument, as_json: JsonOption = False) -> None:
    """Check types, claims and sizes of a codec.

    A .compll file has checked types, and switches sum its codes if that follows from the text. Arrays of many sizes are
    encoded, merged and decoded.

    The exit status is 1 if the codec does not keep its contract.
    """
    from ..hosts.compression.codecs import make_codec
    from ..hosts.compression.language.codec import ENDING
    from ..hosts.compression.trial import check as check_codec

    report = check_codec(make_codec(codec))
    facts: dict[str, object] = {
        "codec": report.name,
        "homomorphic": report.homomorphic,
        "linear": report.linear,
        "bytes_per_number": round(report.bytes_per_number, 3),
        "error": float(f"{report.error:.3g}"),
    }
    if codec.endswith(ENDING):
        from ..hosts.compression.language.codec import reason, same_bits

        facts["reason"] = reason(codec)
        facts["lines"] = len([line for line in Path(codec).read_text().splitlines() if line.strip()])
        facts["back_ends_agree"] = same_bits(codec)
    if as_json:
        sys.stdout.write(json.dumps(facts) + "\n")
        return
    for name, value in facts.items():
        _console.print(f"{name.replace('_', ' '):18} {value}")


@app.command(epilog=examples("weir codec bench packed", "weir codec bench examples/codecs/tbq.compll --megabytes 256"))
def bench(
    codec: CodecArgument,
    megabytes: Annotated[int, typer.Option(min=1, help="Size of the array of float32, in units of 2^20 bytes.")] = 64,
    as_json: JsonOption = False,
) -> None:
    """Measure encoding and decoding on one core.

    Printed are bytes of float32 in a second, the best of three times.
    Files in CompLL are measured with both back ends.
    """
    from ..hosts.compression.codecs import make_codec
    from ..hosts.compression.language.codec import ENDING
    from ..hosts.compression.trial import measure

    size = megabytes << 18
    ways: dict[str, dict[str, bool]] = {"": {}}
    if codec.endswith(ENDING):
        ways = {"NumPy": {"native": False}, "native": {"native": True}}
    rows = []
    for way, options in ways.items():
        made = make_codec(codec, **options)
        measure(made, 1 << 12, time.perf_counter)  # compiles
        encode_s, decode_s = measure(made, size, time.perf_counter)
        rows.append(
            {
                "codec": made.name,
                "back_end": way,
                "encode_gb_s": round(4e-9 * size / encode_s, 3),
                "decode_gb_s": round(4e-9 * size / decode_s, 3),
            }
        )
    if as_json:
        sys.stdout.write(json.dumps(rows) + "\n")
        return
    table = Table("codec", "back end", "encode GB/s", "decode GB/s", box=box.SIMPLE_HEAD, show_edge=False)
    for row in rows:
        table.add_row(*(str(cell) for cell in row.values()))
    _console.print(table)
