"""Table entries written by P4Runtime: 10,000 of them, in batches, by one client over a Unix socket.

The peer is bmv2, which is sent the same messages. They are made beforehand, so that the client's own time is not in it.
"""

from __future__ import annotations

import queue
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc
from finsy.proto import U128, p4i, p4r, p4r_grpc
from google.protobuf import text_format

from weir.bench.devices import BMV2, DEVICE_ID, WEIR, P4Files, load, running_switch
from weir.bench.measure import Aim, Figure, seconds

ENTRIES: Final = 10_000
BATCH: Final = 1_000
RUNS: Final = 5
AIM_S: Final = 1.0
PROGRAM: Final = P4Files.at(Path(__file__).parent / "programs" / "lookups.json")
TABLES: Final = {"LookupsIngress.hosts": "exact", "LookupsIngress.routes": "LPM", "LookupsIngress.rules": "ternary"}
_ELECTION: Final = 1 << 32
"""Election id above that of the client that loaded the program."""


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module; the peer has turns where it is installed."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weir-bench-")))
        commands: dict[str, Sequence[str]] = {"weir": WEIR}
        if shutil.which(BMV2) is not None:
            commands[BMV2] = (BMV2, "-L", "off")
        clients = {}
        for name, command in commands.items():
            switch = stack.enter_context(running_switch(command, folder))
            load(switch.address, PROGRAM, ())
            clients[name] = stack.enter_context(_client(switch.address))
        for table, kind in TABLES.items():
            messages = {update: _messages(table, kind, update) for update in (p4r.Update.INSERT, p4r.Update.DELETE)}
            turns: dict[str, list[float]] = {name: [] for name in clients}
            for _ in range(RUNS):
                for name, client in clients.items():
                    turns[name].append(seconds(partial(_write, client, messages[p4r.Update.INSERT])))
                    _write(client, messages[p4r.Update.DELETE])
            yield Figure(
                f"{ENTRIES:,} {kind} entries, in batches of {BATCH:,}",
                "s",
                tuple(turns["weir"]),
                BMV2 if BMV2 in turns else None,
                tuple(turns.get(BMV2, ())),
                less_is_better=True,
                aim=Aim(AIM_S),
            )


@contextmanager
def _client(address: str) -> Iterator[Any]:
    """A stub of the primary controller."""
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
    arbitration = p4r.MasterArbitrationUpdate(device_id=DEVICE_ID, election_id=U128.encode(_ELECTION))
    requests.put(p4r.StreamMessageRequest(arbitration=arbitration))
    with grpc.insecure_channel(address) as channel:
        stub = p4r_grpc.P4RuntimeStub(channel)
        answers = stub.StreamChannel(iter(requests.get, None))
        next(answers)
        yield stub
        requests.put(None)


def _write(client: Any, messages: Sequence[Any]) -> None:
    for message in messages:
        client.Write(message)


def _messages(name: str, kind: str, update: Any) -> list[Any]:
    """Write requests that insert or delete ENTRIES entries of a table."""
    info = p4i.P4Info()
    text_format.Parse(PROGRAM.info.read_text(), info)
    table = next(candidate for candidate in info.tables if candidate.preamble.name == name)
    send = next(candidate for candidate in info.actions if candidate.preamble.name == "LookupsIngress.send")
    result = []
    for first in range(0, ENTRIES, BATCH):
        message = p4r.WriteRequest(device_id=DEVICE_ID, election_id=U128.encode(_ELECTION))
        for number in range(first, first + BATCH):
            entry = message.updates.add(type=update).entity.table_entry
            entry.table_id = table.preamble.id
            match = entry.match.add(field_id=table.match_fields[0].id)
            value = (0x0A000000 + (number << 8)).to_bytes(4, "big")
            if kind == "exact":
                match.exact.value = value
            elif kind == "LPM":
                match.lpm.value, match.lpm.prefix_len = value, 24
            else:
                match.ternary.value, match.ternary.mask = value, b"\xff\xff\xff\x00"
                entry.priority = 1 + number
            entry.action.action.action_id = send.preamble.id
            entry.action.action.params.add(param_id=1, value=b"\x02")
        result.append(message)
    return result
