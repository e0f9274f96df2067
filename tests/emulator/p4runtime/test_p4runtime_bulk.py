"""Large writes: the bulk path has the effect of single updates for every message, and no bytes harm it."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest
from finsy.proto import p4i, p4r

from weir.emulator.p4runtime import bulk_writer
from weir.emulator.p4runtime.bulk import batch
from weir.tests.emulator.harness import seeded_random
from weir.tests.emulator.p4runtime.p4runtime_fuzz import Maker, damaged, ids_of, mutate, octets
from weir.tests.emulator.p4runtime.p4runtime_rig import DELETE, EXTERNS, INSERT, MODIFY, entity
from weir.tests.emulator.p4runtime.servicer_rig import CONFIGS, WHOLE, ServicerRig
from weir.tests.paths import ROOT


class Plain(Maker):
    """Batches of plain table entries, as they are there or are not."""

    def __init__(self, info: p4i.P4Info, rng: random.Random) -> None:
        super().__init__(info, rng)
        self._plain = [
            table
            for table in info.tables
            if table.match_fields and not table.is_const_table and not table.implementation_id
        ]
        self.there: dict[bytes, p4r.TableEntry] = {}
        """Entries that are there, by their keys."""

    def few(self, width: int) -> int:
        return self.rng.getrandbits(self.rng.choice((width // 2, width))) if width else 0

    def batch(self) -> list[p4r.Update]:
        rng = self.rng
        tables = rng.sample(self._plain, min(rng.choice((1, 1, 1, 2, 3)), len(self._plain)))
        kinds = rng.choice(((INSERT,), (INSERT,), (DELETE,), (MODIFY,), (INSERT, INSERT, MODIFY, DELETE)))
        chosen: dict[bytes, p4r.Update] = {}
        for _ in range(rng.randrange(1, rng.choice((4, 12, 60)))):
            update = self._update(rng.choice(kinds), rng.choice(tables))
            chosen[key_of(update.entity.table_entry)] = update
        return list(chosen.values())

    def _update(self, kind: p4r.Update.Type.ValueType, table: p4i.Table) -> p4r.Update:
        rng = self.rng
        there = [entry for entry in self.there.values() if entry.table_id == table.preamble.id]
        if kind != INSERT and there:
            entry = p4r.TableEntry.FromString(key_of(rng.choice(there)))
        else:
            entry, kind = self.key(table), INSERT
            if key_of(entry) in self.there and rng.random() < 0.9:
                kind = MODIFY
        if kind != DELETE or rng.random() < 0.3:
            refs = [ref.id for ref in table.action_refs if ref.scope != p4i.ActionRef.DEFAULT_ONLY]
            action = entry.action.action
            action.action_id = rng.choice(refs)
            for param in self.actions[action.action_id].params:
                action.params.add(param_id=param.id, value=self.zeros() + octets(self.few(param.bitwidth)))
            if rng.random() < 0.1:
                action.params.sort(key=lambda param: -param.param_id)
        if rng.random() < 0.1:
            entry.match.sort(key=lambda field: -field.field_id)
            for field in entry.match:
                if field.HasField("exact"):
                    field.exact.value = self.zeros() + field.exact.value
        return p4r.Update(type=kind, entity=entity(entry))

    def zeros(self) -> bytes:
        """Bytes that may stand before a number."""
        return bytes(self.rng.choice((0, 0, 0, 1, 20)))


def key_of(entry: p4r.TableEntry) -> bytes:
    return p4r.TableEntry(table_id=entry.table_id, match=entry.match, priority=entry.priority).SerializeToString()


def in_order(rig: ServicerRig) -> list[bytes]:
    """All readable state as it is read."""
    code, _, found = rig.read(p4r.ReadRequest(device_id=1, entities=[entity(query) for query in WHOLE]))
    assert code == "OK"
    return [each.SerializeToString(deterministic=True) for each in found]


@pytest.fixture(params=list(CONFIGS))
def rigs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ServicerRig, ServicerRig]]:
    """A rig that writes in bulk whatever it can, and one that writes one update at a time."""
    monkeypatch.setattr(batch, "LEAST", 1)
    monkeypatch.setattr(bulk_writer, "LEAST", 0)
    bulk, single = ServicerRig(request.param), ServicerRig(request.param)
    monkeypatch.setattr(single.device, "write_plain", lambda _: False)
    yield bulk, single
    bulk.device.detach()
    single.device.detach()


WIDTHS = {"which": 8, "mac": 48, "vlan": 12, "pcp": 4, "ip": 32, "ip6": 128, "port": 16, "protocol": 8}
"""Fields of the header of `tables.p4`, in order."""


def is_tables(info: p4i.P4Info) -> bool:
    return any(table.preamble.name == "TablesIngress.exact_wide" for table in info.tables)


def frame(info: p4i.P4Info, entry: p4r.TableEntry) -> bytes:
    """A packet that an entry may answer: in `tables.p4` it does, elsewhere its values stand at the front."""
    index, table = next(item for item in enumerate(info.tables) if item[1].preamble.id == entry.table_id)
    names = {field.id: field.name.rpartition(".")[2] for field in table.match_fields}
    values = dict.fromkeys(WIDTHS, 0) | {"which": index}
    for field in entry.match:
        content = getattr(field, str(field.WhichOneof("field_match_type")))
        values[names[field.field_id]] = int.from_bytes(getattr(content, "value", b"") or content.low, "big")
    if not is_tables(info):
        return b"".join(octets(value) for value in list(values.values())[len(WIDTHS) :]).ljust(40, b"\0")
    bits = 0
    for name, width in WIDTHS.items():
        bits = bits << width | values[name]
    return bits.to_bytes(32, "big") + bytes(5)


@pytest.mark.parametrize("rounds", [120, pytest.param(6_000, marks=pytest.mark.long(minutes=10))])
def test_batches_do_what_single_updates_do(
    rigs: tuple[ServicerRig, ServicerRig], rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = seeded_random()
    bulk, single = rigs
    maker, ids, ways = Plain(bulk.info, rng), ids_of(bulk.info), Counter[bool]()
    hits = 0
    write_plain = bulk.device.write_plain

    def counted(given: batch.Batch) -> bool:
        done = write_plain(given)
        ways[done] += 1
        return done

    monkeypatch.setattr(bulk.device, "write_plain", counted)
    for number in range(rounds):
        updates = maker.batch()
        sent = [frame(bulk.info, update.entity.table_entry) for update in updates[:5]]
        if rng.random() < 0.1:
            updates.insert(rng.randrange(len(updates) + 1), maker.update())
        if rng.random() < 0.1:
            mutate(rng.choice(updates), rng, ids)
        request = bulk.request(*updates, atomicity=rng.choice((0, 0, 0, 1, 2)))
        content = damaged(request, rng) if rng.random() < 0.1 else request.SerializeToString()
        answers = [rig.write_bytes(content) for rig in rigs]
        assert answers[0] == answers[1], content
        for each in sent:
            port = rng.randrange(4)
            left = bulk.switch.forward(each, port)
            assert left == single.switch.forward(each, port)
            hits += len(left) == 1 and left[0][1][32:33] == b"\1"
        state = in_order(single)
        if number % 10 == 9:
            assert in_order(bulk) == state
        entries = [found.table_entry for found in map(p4r.Entity.FromString, state) if found.HasField("table_entry")]
        maker.there = {key_of(entry): entry for entry in entries}
    assert ways[True] > rounds // (120 if bulk.info is EXTERNS else 12), ways  # usual: rounds // 9 and rounds // 3
    assert ways[False] > rounds // 20, ways
    assert hits > rounds // 4 or not is_tables(bulk.info)
    for rig in rigs:
        assert rig.set_config(p4r.SetForwardingPipelineConfigRequest.RECONCILE_AND_COMMIT) == "OK"
    assert in_order(bulk) == in_order(single)
    for rig in rigs:
        rig.clear()
    assert in_order(bulk) == in_order(single)


def test_no_bytes_make_the_parser_leave_its_arrays() -> None:
    words = [sys.executable, "-X", "faulthandler", "-m", "weir.tests.emulator.p4runtime.bulk_bytes", "400"]
    subprocess.run(words, cwd=ROOT, check=True, timeout=200)


@pytest.mark.long(minutes=5)
def test_no_bytes_make_the_parser_leave_its_arrays_for_long() -> None:
    words = [sys.executable, "-X", "faulthandler", "-m", "weir.tests.emulator.p4runtime.bulk_bytes", "40000"]
    subprocess.run(words, cwd=ROOT, check=True, timeout=3000)
