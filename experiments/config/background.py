"""Background traffic of a run, as its file has it: flows at a mean rate that never yield, and flows that do.

::

    background:
      - {source: h3, destination: h6, rate: 700Mbit, stop: 70ms}                # UDP, whatever happens
      - {source: h4, destination: h6, kind: yielding, window: 16, start: 5ms}   # like a data centre's TCP
      - {source: h5, destination: h6, kind: transfer, bytes: 4000000}           # messages of Weir's own transport
      - {kind: trace, file: flows.csv}                                          # a steady flow for each row
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from ...controller.congestion import Uncontrolled, Windowed
from ...topologies.problems import LARGEST_FILE_BYTES
from ...wire.frames import FRAME_HEADER_BYTES
from ...wire.transport import HEADER_BYTES, PAYLOAD_BYTES
from .sections import Duration, Rate, Section

BACKGROUND_PAYLOAD_BYTES: Final = 1_000
"""Payload of each datagram of background traffic."""
TRANSFER_BYTES: Final = HEADER_BYTES + PAYLOAD_BYTES
"""UDP payload of a full packet of a transfer."""
DISCARD_PORT: Final = 9
"""UDP port of steady background traffic's destination, on which no process listens (RFC 863)."""


class BackgroundFlow(Section):
    """Traffic of one host pair, between two instants of virtual time."""

    source: str
    destination: str
    start: Duration = 0
    stop: Duration | None = None
    """When the traffic ends; with None it lasts as long as the run."""

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> Self:
        if self.stop is not None and self.stop <= self.start:
            raise ValueError(f"stop {self.stop} ns is not after start {self.start} ns; traffic begins before it ends")
        return self


class _PortedFlow(BackgroundFlow):
    """Traffic with a source port of its own."""

    port: int = Field(9, ge=1, le=65535)
    """UDP source port: another port may take another of the equal-cost paths."""


class SteadyFlow(_PortedFlow):
    """Datagrams at a mean rate that nothing changes."""

    kind: Literal["steady"] = "steady"
    rate: Rate


class YieldingFlow(_PortedFlow):
    """Packets that are acknowledged, as many as marks and losses allow (DCTCP, RFC 8257)."""

    kind: Literal["yielding"]
    window: int = Field(64, ge=1, le=4096)
    """The receiver's: packets in the network at most, with their acknowledgements."""


class TransferFlow(BackgroundFlow):
    """Messages of the point-to-point transport (`hosts/transport`), one after the other."""

    kind: Literal["transfer"]
    bytes: int = Field(1 << 20, ge=1, le=1 << 28)
    """Length of each message."""
    window: int = Field(64, ge=1, le=8192)
    """Maximum number of packets in the network, with their acknowledgements."""
    lower_effort: bool = False
    """True for DSCP 8, the class below bulk traffic."""


MAX_WINDOWED_FLOWS: Final = 1_000
"""Yielding flows and transfers of a run, whose hosts take every packet in Python."""
MAX_WINDOWED_PACKETS: Final = 1 << 18
"""Sum of their windows: the emulated network holds so many packets of them at once, of 1 to 2 KB each."""
MAX_MESSAGE_BYTES: Final = 1 << 28
"""Sum of the transfers' messages, which both ends hold."""

COLUMNS: Final = ("source", "destination", "rate", "start", "stop", "port")
"""Columns of a trace; the last three may be missing or empty."""
MAX_ROWS: Final = 10_000
"""Flows of one trace, and of all traces of a run together."""


def located_traces(run_file: Path, flows: object) -> object:
    """Return entries of a run file's list with the traces' files relative to that file's folder."""
    if not isinstance(flows, list):
        return flows
    return [{**flow, "file": str(run_file.parent / flow["file"])} if _is_trace(flow) else flow for flow in flows]


def read_trace(path: Path) -> Iterator[SteadyFlow]:
    """Read the flows of a CSV file whose first line has names of `COLUMNS`, with the units of run files.

    Raises:
        ValueError: The file or a row is wrong; names file, line, value and what is allowed.
    """
    try:
        if path.exists() and not path.is_file():  # a device, say, that has no end
            raise ValueError(f"{path}: cannot be read (no plain file)")
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise ValueError(f"{path}: cannot be read (larger than {LARGEST_FILE_BYTES >> 20} MiB)")
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            names = set(rows.fieldnames or ())
            if unknown := (names - {*COLUMNS}) | ({*COLUMNS[:3]} - names):
                raise ValueError(
                    f"{path}: columns {', '.join(sorted(unknown))} are unknown or missing; the first line has "
                    f"{', '.join(COLUMNS[:3])}, and may have {', '.join(COLUMNS[3:])}"
                )
            for row in rows:
                if rows.line_num > MAX_ROWS + 1:
                    raise ValueError(f"{path}: line {rows.line_num}: a trace has at most {MAX_ROWS} flows")
                yield _flow_of(row, f"{path}: line {rows.line_num}")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ValueError(f"{path}: cannot be read ({reason})") from None


def _flow_of(row: dict[str | None, Any], where: str) -> SteadyFlow:
    if None in row:
        raise ValueError(f"{where}: {row[None]} are too many values for the columns")
    try:
        return SteadyFlow.model_validate({name: value for name, value in row.items() if value})
    except ValidationError as error:
        first = error.errors()[0]
        place = ": ".join([where, *map(str, first["loc"])])
        raise ValueError(f"{place}: {first['msg'].removeprefix('Value error, ')}") from None


def _is_trace(flow: object) -> bool:
    return isinstance(flow, dict) and flow.get("kind") == "trace" and isinstance(flow.get("file"), str)


def steady_unless_said(flows: object) -> object:
    """Return entries of a list with their kind, where they name none."""
    if not isinstance(flows, list):
        return flows
    return [{"kind": "steady", **flow} if isinstance(flow, dict) else flow for flow in flows]


def _spelled_out(flows: object) -> object:
    """Entries of a list without traces, whose flows follow all others."""
    if not isinstance(flows, list):
        return flows
    traced = list(itertools.islice(_traced(flow["file"] for flow in flows if _is_trace(flow)), MAX_ROWS + 1))
    if len(traced) > MAX_ROWS:
        raise ValueError(f"traces have at most {MAX_ROWS} flows, all together")
    return steady_unless_said([*(flow for flow in flows if not _is_trace(flow)), *traced])


def _traced(files: Iterable[str]) -> Iterator[SteadyFlow]:
    for file in files:
        yield from read_trace(Path(file))


def _with_traces(schema: dict[str, Any]) -> None:
    """Allow traces in the JSON schema of the list: the model has only the flows that are read of them."""
    schema["items"]["oneOf"].append(
        {
            "type": "object",
            "properties": {"kind": {"const": "trace"}, "file": {"type": "string"}},
            "required": ["kind", "file"],
            "additionalProperties": False,
        }
    )


AnyFlow = SteadyFlow | YieldingFlow | TransferFlow


def _bounded(flows: list[AnyFlow]) -> list[AnyFlow]:
    """Limits of what flows with windows hold in memory, all together."""
    windowed = [flow for flow in flows if not isinstance(flow, SteadyFlow)]
    messages = sum(flow.bytes for flow in windowed if isinstance(flow, TransferFlow))
    sums = (
        (len(windowed), MAX_WINDOWED_FLOWS, "yielding flows and transfers"),
        (sum(flow.window for flow in windowed), MAX_WINDOWED_PACKETS, "packets in the windows of all flows together"),
        (messages, MAX_MESSAGE_BYTES, "bytes in the messages of all transfers together"),
    )
    for value, most, of in sums:
        if value > most:
            raise ValueError(f"{value:,} {of}; at most {most:,} are possible")
    return flows


Background = Annotated[
    list[Annotated[AnyFlow, Field(discriminator="kind")]],
    BeforeValidator(_spelled_out),
    AfterValidator(_bounded),
    Field(json_schema_extra=_with_traces),
]


def uncontrolled(flows: Iterable[SteadyFlow]) -> tuple[Uncontrolled, ...]:
    """Return each flow's declared traffic, with its own path and duration."""
    frame_bytes = BACKGROUND_PAYLOAD_BYTES + FRAME_HEADER_BYTES
    return tuple(
        Uncontrolled(
            flow.source,
            flow.destination,
            flow.rate,
            frame_bytes,
            ports=(flow.port, DISCARD_PORT),
            start_ns=flow.start,
            stop_ns=flow.stop,
        )
        for flow in flows
    )


def windowed(flows: Iterable[YieldingFlow | TransferFlow]) -> tuple[Windowed, ...]:
    """Return the packets that yielding flows and transfers may have in the network, whose windows are not leased."""
    return tuple(
        Windowed(
            flow.source,
            flow.destination,
            flow.window,
            FRAME_HEADER_BYTES + (TRANSFER_BYTES if isinstance(flow, TransferFlow) else BACKGROUND_PAYLOAD_BYTES),
        )
        for flow in flows
    )


def exchanged(hosts: Sequence[str], window: int) -> tuple[Windowed, ...]:
    """Return the packets that hosts may have in the network if each sends to each other one over the transport."""
    packet_bytes = FRAME_HEADER_BYTES + TRANSFER_BYTES
    return tuple(Windowed(one, other, window, packet_bytes) for one, other in itertools.permutations(hosts, 2))
