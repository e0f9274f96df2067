"""The journal survives crashes at any byte, stays small, and belongs to one process."""

from __future__ import annotations

import errno
import json
import os
import random
import secrets
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from weir.controller.jobs.journal import Journal
from weir.controller.jobs.journal_file import JournalError, JournalFile, JournalInUse, change_line, read_changes
from weir.controller.jobs.journal_records import JobRecord
from weir.controller.placement import Placement
from weir.controller.placement.strategies import strategy
from weir.controller.planning.generations import LONGEST_ABSENCE, GenerationHistory, previous_generation
from weir.controller.planning.memory import Allotment
from weir.controller.planning.plan import FailurePolicy, JobSpec
from weir.controller.planning.planner import Planner
from weir.tests.support.errors import raises
from weir.topologies import Routes, Topology
from weir.topologies.generators import leaf_spine
from weir.wire.aggregation import next_generation
from weir.wire.control import FinalRound


@pytest.mark.parametrize("drawn", [0, 1, (1 << 40) - 2])
def test_a_journal_keeps_one_owner_for_its_lifetime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: int
) -> None:
    """A number of 1 to 2⁴⁰ − 1."""
    topology = leaf_spine(2, 1, 1)
    planner = Planner(topology, Routes(topology), strategy("widest"), 1)

    def below(limit: int) -> int:
        assert limit == (1 << 40) - 1
        return drawn

    monkeypatch.setattr(secrets, "randbelow", below)
    without = Journal(None, topology, planner)
    assert (without.owner, without.is_new) == (1 + drawn, True)
    for is_new in (True, False):
        with JournalFile(tmp_path / "journal") as file:
            journal = Journal(file, topology, planner)
            assert (journal.owner, journal.is_new) == (1 + drawn, is_new)
        monkeypatch.setattr(secrets, "randbelow", lambda _: 12345)


def kinds(journal: JournalFile) -> dict[str, dict[str, Any]]:
    return {kind: dict(journal.all(kind)) for kind in ("job", "number")}


def test_a_journal_belongs_to_the_fabric_that_it_was_begun_for(tmp_path: Path) -> None:
    path, first, other = tmp_path / "journal", leaf_spine(2, 1, 1), leaf_spine(2, 2, 1)

    def begun(topology: Topology) -> Journal:
        with JournalFile(path) as journal:
            return Journal(journal, topology, Planner(topology, Routes(topology), strategy("widest"), 1))

    begun(replace(first, name="here"))
    assert not begun(replace(first, name="here")).is_new
    with raises(JournalError, value="here"):
        begun(replace(other, name="there"))
    with raises(JournalError, value="here"):
        begun(replace(other, name="elsewhere"))


def test_entries_survive_a_restart_and_deletions_do_too(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with JournalFile(path) as journal:
        journal.put("job", "1", {"slots": 64})
        journal.put("job", "2", {"note": "für später"})
        journal.put("number", "7", 3)
        journal.put("job", "1", {"slots": 32})
        journal.put("job", "2", None)
        expected = kinds(journal)
    assert expected == {"job": {"1": {"slots": 32}}, "number": {"7": 3}}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "für später" in path.read_text(), "as people wrote it"
    with JournalFile(path) as journal:
        assert kinds(journal) == expected
        before = path.stat().st_size
        journal.put("job", "1", {"slots": 32})  # nothing new
        assert path.stat().st_size == before


def test_entries_are_on_disk_after_a_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When `put` returns, a machine that loses its power there has the change: it has been synced, not only written."""
    path = tmp_path / "journal"
    on_disk: dict[int, bytes] = {}
    fsync = os.fsync

    def note(file: int) -> None:
        fsync(file)
        status = os.fstat(file)
        if stat.S_ISDIR(status.st_mode):
            on_disk[status.st_ino] = str(path.stat().st_ino).encode()  # which file has the journal's name there
        else:
            on_disk[status.st_ino] = os.pread(file, status.st_size, 0)

    monkeypatch.setattr(os, "fsync", note)
    with JournalFile(path) as journal:
        first = path.stat().st_ino
        for number in range(400):  # anew once: a second time might take the first file's number again
            journal.put("job", str(number % 3), number)
            assert on_disk[path.stat().st_ino] == path.read_bytes()
        assert path.stat().st_ino != first, "it was never written anew"
        assert on_disk[tmp_path.stat().st_ino] == str(path.stat().st_ino).encode()


def test_a_crash_at_any_byte_loses_only_the_change_in_progress(tmp_path: Path) -> None:
    rng = random.Random(1)
    path = tmp_path / "journal"
    states: list[dict[str, dict[str, Any]]] = [{"job": {}, "number": {}}]
    ends = [0]
    with JournalFile(path) as journal:
        for _ in range(8):
            kind, key = rng.choice(["job", "number"]), str(rng.randrange(4))
            journal.put(kind, key, rng.choice([None, {"text": "é" * rng.randrange(9)}, rng.randrange(99)]))
            if path.stat().st_size > ends[-1]:
                ends.append(path.stat().st_size)
                states.append(kinds(journal))
    whole = path.read_bytes()
    for size in range(len(whole) + 1):
        torn = tmp_path / "torn"
        torn.write_bytes(whole[:size])
        with JournalFile(torn) as journal:
            assert kinds(journal) == states[max(n for n, end in enumerate(ends) if end <= size)]
            journal.put("job", "after", 1)
        with JournalFile(torn) as journal:
            assert journal.all("job")["after"] == 1


def test_it_is_written_anew_when_most_of_it_is_out_of_date(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with JournalFile(path) as journal:
        for turn in range(700):
            journal.put("job", str(turn % 3), {"turn": turn})
        assert path.read_bytes().count(b"\n") < 400
        with pytest.raises(JournalInUse):
            JournalFile(path)
    with JournalFile(path) as journal:
        assert journal.all("job") == {str(turn % 3): {"turn": turn} for turn in (697, 698, 699)}
    assert [file.name for file in tmp_path.iterdir()] == ["journal"]


def test_stale_lines_are_limited_to_the_live_ones_plus_256(tmp_path: Path) -> None:
    path = tmp_path / "journal"

    def lines() -> int:
        return path.read_bytes().count(b"\n")

    with JournalFile(path) as journal:
        for key in range(40):
            journal.put("job", str(key), 0)
        for turn in range(1, 256 + 40 + 1):
            journal.put("job", "0", turn)
        assert lines() == 40 + 40 + 256
    with JournalFile(path) as journal:
        journal.put("job", "0", 0)
        assert lines() == 40
        assert journal.all("job") == dict.fromkeys(map(str, range(40)), 0)


def test_no_descriptor_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under any fault; and no journal is locked for others while it is closed."""
    path, open_file = tmp_path / "journal", os.open

    def note(file: Path, flags: int, mode: int = 0o777) -> int:
        assert mode & 0o077 == 0 or not flags & os.O_CREAT
        return open_file(file, flags, mode)

    monkeypatch.setattr(os, "open", note)
    before = len(os.listdir("/proc/self/fd"))
    with JournalFile(path) as journal:
        with pytest.raises(JournalInUse):
            JournalFile(path)
        put_often(journal)
        (tmp_path / "journal.new").mkdir()
        put_often(journal)
        (tmp_path / "journal.new").rmdir()
        with monkeypatch.context() as refused:
            refused.setattr(Path, "replace", lambda new, old: new.rmdir())  # which a file refuses
            put_often(journal)
        assert len(os.listdir("/proc/self/fd")) == before + 1
    path.write_bytes(b"no journal\n")
    with raises(JournalError, place=f"journal {path}: line 1", value=b"no journal"):
        JournalFile(path)
    assert len(os.listdir("/proc/self/fd")) == before


def put_often(journal: JournalFile) -> None:
    for turn in range(700):
        journal.put("job", "1", turn)


def test_a_folder_that_cannot_be_synced_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Some file systems behave so; in another case no descriptors are left just after a journal was rewritten."""
    sync, open_file = os.fsync, os.open

    def no_folders(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        sync(file)

    def too_many(path: Path, flags: int, mode: int = 0o777) -> int:
        if Path(path) == tmp_path:
            raise OSError(errno.EMFILE, "Too many open files")
        return open_file(path, flags, mode)

    for name, stands in (("fsync", no_folders), ("open", too_many)):
        path = tmp_path / name
        with JournalFile(path) as journal, monkeypatch.context() as patched:
            patched.setattr(os, name, stands)
            put_often(journal)
        assert path.read_bytes().count(b"\n") < 400
        with JournalFile(path) as journal:
            assert journal.all("job") == {"1": 699}
    assert "its folder cannot be synced (Invalid argument)" in caplog.text
    assert "its folder cannot be synced (Too many open files)" in caplog.text


def test_a_disk_that_is_full_for_a_while_leaves_no_half_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, write = tmp_path / "journal", os.write

    def half(file: int, data: bytes) -> int:
        if len(data) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[: len(data) // 2])

    with JournalFile(path) as journal:
        journal.put("job", "1", 1)
        with monkeypatch.context() as full:
            full.setattr(os, "write", half)
            with raises(JournalError, value=errno.ENOSPC):
                journal.put("job", "2", 2)
        journal.put("job", "3", 3)
        assert journal.all("job") == {"1": 1, "3": 3}
    with JournalFile(path) as journal:
        assert journal.all("job") == {"1": 1, "3": 3}
        (tmp_path / "journal.new").mkdir()  # in the way of the one that is to be written anew
        put_often(journal)
        assert caplog.text.count("cannot be written anew as") == 2, "after 259 lines, and after 518"
        assert path.read_bytes().count(b"\n") == 702, "every change is in it"
        (tmp_path / "journal.new").rmdir()
        put_often(journal)
        assert path.read_bytes().count(b"\n") < 400
    with JournalFile(path) as journal:
        assert journal.all("job") == {"1": 699, "3": 3}


def test_others_may_not_read_a_journal_that_is_there_already(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.touch()
    for mode in (0o644, 0o640, 0o604, 0o601, 0o610):
        path.chmod(mode)
        with JournalFile(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    os.mkfifo(tmp_path / "pipe")
    with raises(JournalError, place=f"journal {tmp_path / 'pipe'}"):
        JournalFile(tmp_path / "pipe")


def flip_and_cut(damages: int) -> None:
    """No differing bit is read as another journal; truncation is read as a crash at that byte."""
    seed = int(os.environ.get("WEIR_SEED") or random.randrange(1 << 32))
    sys.stdout.write(f"WEIR_SEED={seed}\n")
    rng = random.Random(seed)
    while damages > 0:
        lines = [
            change_line(
                number, rng.choice(["job", "kept"]), str(rng.randrange(9)), rng.choice([None, rng.random(), ["é" * 9]])
            )
            for number in range(1, rng.randrange(2, 12))
        ]
        data = b"".join(lines)
        changes, _ = read_changes(data, "it")
        for bit in range(8 * len(data)):
            damaged = bytearray(data)
            damaged[bit // 8] ^= 1 << bit % 8
            with pytest.raises(JournalError, match="is damaged"):
                read_changes(bytes(damaged), "it")
        for size in range(len(data)):
            whole = data[:size].count(b"\n")
            assert read_changes(data[:size], "it") == (changes[:whole], sum(map(len, lines[:whole])))
        damages -= 9 * len(data)


def test_no_damaged_bit_is_read_as_something_else() -> None:
    flip_and_cut(5_000)


@pytest.mark.long
def test_no_damaged_bit_of_a_million_is_read_as_something_else() -> None:
    flip_and_cut(1_000_000)


def test_damage_and_what_cannot_be_opened_are_named(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with JournalFile(path) as journal:
        journal.put("job", "1", 2)
    first = path.read_bytes()
    path.write_bytes(first + b"no json\n" + first)
    with raises(JournalError, place=f"journal {path}: line 2", value=b"no json"):
        JournalFile(path)
    longer = change_line(2, "job", "1", 3)[:-1] + b"}"  # longer than its writer meant it to be
    path.write_bytes(first + longer)
    with raises(JournalError, place=f"journal {path}: line 2", value=longer):
        JournalFile(path)
    path.write_bytes(first + first)  # a line that is sound, and not the second
    with raises(JournalError, place=f"journal {path}: line 2", value=first.rstrip(b"\n")):
        JournalFile(path)
    with raises(JournalError, value=errno.ENOENT):
        JournalFile(tmp_path / "gone" / "journal")


def test_a_record_of_a_job_comes_back_as_it_was() -> None:
    spec = JobSpec(3, ("h1", "h2"), "h3", 16, 8, 999, FailurePolicy.WAIT, 2, ("h4",), priority=2)
    record = JobRecord(
        spec=spec,
        placement=Placement({"h1": "s1", "h2": "s1"}, {"s1": "h3"}, "h3"),
        generation=4,
        allotments={"s1": Allotment(64, 16, 3, 33)},
        history=GenerationHistory(4, {"s1": 4, "s2": 2}),
        gap_ns=700,
        note="less",
        gone={"h2": "silent"},
        left=("h1",),
        joined=("h1", "h2"),
        moving="h2 is silent",
        finals={"h1": (FinalRound(5, 0x0A000102),), "h2": ()},
        newcomer="h3",
        first_round=9,
        again=(6, 1 << 40),
    )
    assert JobRecord.from_json(json.loads(json.dumps(record.as_json()))) == record
    of_before = record.as_json()
    assert of_before["spec"].pop("priority") == record.spec.priority > 0
    assert JobRecord.from_json(of_before).spec == replace(record.spec, priority=0), "jobs had none then"
    assert of_before.pop("again")
    assert JobRecord.from_json(of_before).again == ()
    with pytest.raises(ValueError, match="invalid literal"):
        JobRecord.from_json(of_before | {"again": ["six"]})


def test_a_switch_with_content_that_passes_as_new_is_not_reused() -> None:
    history, generation = GenerationHistory(), GenerationHistory().next()
    history.go(generation, ["s1"])
    for absent in range(1, 400):
        assert previous_generation(next_generation(generation)) == generation
        generation = next_generation(generation)
        history.go(generation, ["s2"])
        assert history.count == absent + 1
        if history.may_use("s1"):
            assert next_generation(generation) != 1
        assert history.may_use("s1") == (absent < LONGEST_ABSENCE)
        assert history.may_use("s2")
        assert history.may_use("s3")
