"""Loading: a program's properties, refusals, and the cache of native code."""

from __future__ import annotations

import copy
import errno
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import pytest

from weir.emulator import program as program_module
from weir.emulator.program import KeyField, Program, UnsupportedProgram, key_of
from weir.machine_code import cache
from weir.tests.paths import PROGRAMS


def test_schemas_are_those_of_the_p4_program() -> None:
    program = Program.load(PROGRAMS / "tables.json")
    table = program.tables["TablesIngress.ternary6"]
    assert table.key == (
        KeyField("hdr.key.ip6", "ternary", 128),
        KeyField("hdr.key.port", "ternary", 16),
        KeyField("hdr.key.vlan", "exact", 12),
    )
    assert table.actions == ("TablesIngress.number", "TablesIngress.none")
    assert (table.size, table.default_action, table.const_default, table.const_entries) == (
        8192,
        "TablesIngress.none",
        False,
        False,
    )
    assert program.actions["TablesIngress.number"].params == (("n", 32),)
    assert program.tables["TablesIngress.exact_wide"].direct_counter == "TablesIngress.exact_hits"
    assert program.counters["TablesIngress.exact_hits"].table == "TablesIngress.exact_wide"
    assert program.tables["TablesIngress.constants"].const_entries
    assert program.phv_bytes % 64 == 0
    assert program.name == "tables"


def test_schemas_of_arrays_profiles_and_errors() -> None:
    program = Program.load(PROGRAMS / "constructs.json")
    assert {r.name: (r.size, r.width) for r in program.registers.values()} == {
        "ConstructsIngress.words": (16, 32),
        "ConstructsIngress.times": (16, 48),
        "ConstructsIngress.small": (10, 7),
    }
    assert program.counters["ConstructsIngress.counted"].size == 4
    assert program.errors["Unlucky"] == 7
    profile = Program.load(PROGRAMS / "selector.json").action_profiles["SelectorIngress.choose"]
    assert (profile.size, profile.selector, profile.tables) == (64, True, ("SelectorIngress.grouped",))
    assert profile.actions == ("NoAction", "SelectorIngress.drop", "SelectorIngress.to")


def test_switches_share_one_program() -> None:
    path = PROGRAMS / "tables.json"
    assert Program.load(path) is Program.load(str(path)) is Program.load(path.read_bytes())


def test_native_code_is_kept_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_CACHE", str(tmp_path))
    text = (PROGRAMS / "selector.json").read_bytes() + b"\n"
    first = Program.load(text)
    kept = sorted(tmp_path.iterdir())
    version = f"{sys.version_info.major}{sys.version_info.minor}"
    assert [file.name for file in kept] == [f"{key_of(text)}.{suffix}" for suffix in ("o", f"plan-{version}")]
    monkeypatch.setattr(Program, "_loaded", WeakValueDictionary())
    stamps = [file.stat().st_mtime_ns for file in kept]
    second = Program.load(text)
    assert second is not first
    assert (second._document, second._layout) == (first._document, first._layout)
    assert [file.stat().st_mtime_ns for file in kept] == stamps
    monkeypatch.setattr(Program, "_loaded", WeakValueDictionary())
    kept[1].write_bytes(kept[1].read_bytes()[:-1])  # damaged: made anew
    assert Program.load(text)._layout == first._layout
    assert kept[1].stat().st_mtime_ns > stamps[1]
    assert key_of(text) != key_of(text + b" ")


def test_programs_that_nobody_has_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last ones are kept, since a controller may push many. A program in use stays valid."""
    monkeypatch.setattr(program_module, "_KEPT", 2)
    monkeypatch.setattr(Program, "_recent", OrderedDict())
    text = (PROGRAMS / "selector.json").read_bytes()
    had = Program.load(text + b" ")
    others = [weakref.ref(Program.load(text + b" " * count)) for count in range(2, 6)]
    gc.collect()
    assert [other() is None for other in others] == [True, True, False, False]
    assert Program.load(text + b" ") is had
    assert Program.load(text + b" " * 2).entry_points.ingress
    gc.collect()
    had.new_state()
    assert Program.load(text + b" ").entry_points is had.entry_points


def test_a_cached_program_loads_without_the_compiler() -> None:
    path = PROGRAMS / "selector.json"
    Program.load(path)
    script = (
        "import sys; from weir.emulator.program import Program; Program.load(sys.argv[1]);"
        "print([m for m in sys.modules if m.startswith(('weir.emulator.compiler.module', 'numba', 'grpc'))])"
    )
    out = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_damaged_code_in_the_cache_is_compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_CACHE", str(tmp_path))
    text = (PROGRAMS / "selector.json").read_bytes() + b"\n\n"
    (tmp_path / f"{key_of(text)}.o").write_bytes(b"not an object file")
    assert Program.load(text).entry_points.ingress


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files, and nothing known yet of any cache."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    cache._make_folder.cache_clear()
    cache._warn.cache_clear()
    yield tmp_path
    cache._make_folder.cache_clear()
    cache._warn.cache_clear()


def own_folder(fresh: Path) -> Path:
    """Folder of code when the chosen folder is not used."""
    return fresh / "tmp" / f"weir-cache-{os.geteuid()}"


def test_a_full_disk_leaves_no_temporary_file_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: str, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cache, "_folders", lambda: [tmp_path])
    monkeypatch.setattr(cache, "_warn", lambda folder, reason: None)
    monkeypatch.setattr(os, "replace", full)
    cache.keep("key", b"code")
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_used_says_so_once_and_what_to_do(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, place in enumerate((fresh / "file", fresh / "file" / "below", Path("/proc/nowhere"))):
        (fresh / "file").write_text("")
        monkeypatch.setenv("WEIR_CACHE", str(place))
        text = (PROGRAMS / "selector.json").read_bytes() + b" " * (number + 1)
        assert Program.load(text).entry_points.ingress
        assert (own_folder(fresh) / f"{key_of(text)}.o").exists()
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"weir: {place} is not used for compiled programs: ")
        assert "set WEIR_CACHE to a directory of your own" in line


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="it takes root to give files to others")


@needs_root
@pytest.mark.parametrize(
    ("owner", "mode", "said"),
    [(1234, 0o700, "belongs to the user 1234"), (0, 0o770, "can be written to by other users"), (0, 0o755, None)],
)
def test_machine_code_comes_from_folders_safe_from_others(
    fresh: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    owner: int,
    mode: int,
    said: str | None,
) -> None:
    for folder in (fresh / "cache", fresh / "parent"):
        folder.mkdir()
        monkeypatch.setenv("WEIR_CACHE", str(folder if folder.name == "cache" else folder / "cache"))
        cache.keep("k", b"code")
        assert cache.fetch("k") == b"code"
        os.chown(folder, owner, 0)
        folder.chmod(mode)
        cache._make_folder.cache_clear()
        tightened = owner == 0 and folder.name == "cache"
        refused = said is not None and not tightened
        assert cache.fetch("k") == (None if refused else b"code")
        assert not tightened or folder.stat().st_mode & 0o022 == 0
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == refused
        assert all(line.startswith("weir: ") and f"{folder}"[-6:] in line and str(said) in line for line in lines)
        cache.keep("k", b"other")
        assert cache.fetch("k") == b"other"
        assert capsys.readouterr().err == ""
        shutil.rmtree(own_folder(fresh), ignore_errors=True)
        cache._make_folder.cache_clear()
        cache._warn.cache_clear()


@needs_root
def test_another_users_link_in_the_temporary_folder_is_kept(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root would write code into the folder that it leads to, and take rights of that folder's group away."""
    target = fresh / "mail"
    target.mkdir()
    target.chmod(0o775)
    own_folder(fresh).symlink_to(target)
    os.lchown(own_folder(fresh), 65534, 65534)
    monkeypatch.setattr(cache, "directory", lambda: own_folder(fresh))
    cache.keep("k", b"code")
    assert list(target.iterdir()) == []
    assert target.stat().st_mode & 0o777 == 0o775


@needs_root
def test_files_of_other_users_links_and_names_are_not_loaded(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other users may create files in a folder like /tmp, but not replace one's own."""
    folder = fresh / "cache"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setenv("WEIR_CACHE", str(folder))
    for key in ("mine", "theirs", "open", "linked"):
        cache.keep(key, b"code of " + key.encode())
    os.chown(folder / "theirs.o", 1234, 0)
    (folder / "open.o").chmod(0o666)
    (folder / "linked.o").rename(folder / "target")
    (folder / "linked.o").symlink_to(folder / "target")
    shutil.copy(folder / "mine.o", folder / "renamed.o")
    found = [cache.fetch(key) for key in ("mine", "theirs", "open", "linked", "renamed")]
    assert found == [b"code of mine", None, None, None, None]
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" is not used")[0] for line in lines] == [
        f"weir: {folder / name}.o" for name in ("theirs", "open", "linked")
    ]


Change = Callable[[dict[str, Any]], None]


def add(key: str, item: dict[str, Any]) -> Change:
    def change(root: dict[str, Any]) -> None:
        root[key].append({"source_info": {"filename": "x.p4", "line": 42}, **item})

    return change


def set_in_action(primitive: dict[str, Any]) -> Change:
    def change(root: dict[str, Any]) -> None:
        where = {"source_info": {"filename": "x.p4", "line": 42}}
        action = next(action for action in root["actions"] if action["name"] == "SelectorIngress.to")
        action["primitives"].append({**where, **primitive})

    return change


def set_algorithm(root: dict[str, Any]) -> None:
    root["pipelines"][0]["action_profiles"][0]["selector"]["algo"] = "round_robin"
    root["pipelines"][0]["action_profiles"][0]["source_info"] = {"filename": "x.p4", "line": 42}


NUMBER = {"type": "hexstr", "value": "0x1"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (add("extern_instances", {"name": "e", "id": 0}), "x.p4:42: extern instance e"),
        (
            add("header_types", {"name": "h", "fields": [["a", 4], ["options", "*"]], "max_length": 9}),
            "x.p4:42: varbit field h.options begins within a byte",
        ),
        (set_in_action({"op": "teleport", "parameters": [NUMBER]}), "x.p4:42: primitive 'teleport'"),
        (set_algorithm, "x.p4:42: hash algorithm 'round_robin'"),
    ],
)
def test_unsupported_constructs_are_refused_with_their_place(change: Change, problem: str) -> None:
    root = copy.deepcopy(json.loads((PROGRAMS / "selector.json").read_bytes()))
    change(root)
    with pytest.raises(UnsupportedProgram, match=problem):
        Program.load(json.dumps(root).encode())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "not a BMv2 JSON program"),
        (b"[1, 2]", "no 'pipelines'"),
        (b'{"pipelines": [], "__meta__": {"version": [3, 0]}}', "version 3.0"),
        (b'{"pipelines": [], "__meta__": {"version": [2, 23]}}', "malformed BMv2 JSON"),
        (b"\xff\xfe", "not a BMv2 JSON program"),
    ],
)
def test_a_file_that_is_no_program_is_refused(text: bytes, problem: str) -> None:
    with pytest.raises(UnsupportedProgram, match=problem):
        Program.load(text)
