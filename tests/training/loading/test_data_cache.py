"""DataCache: what each epoch reads and decodes, bounds, crashes, and PyTorch's DataLoader around it."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import shutil
import signal
import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weir.tests.support.errors import raises
from weir.training.errors import TrainingError
from weir.training.loading.bounded_folder import BoundedFolder
from weir.training.loading.data_cache import DataCache

SAMPLES, SIZE = 12, 400
LARGE = 1 << 20


def decode(path: Path) -> np.ndarray:
    return np.frombuffer(path.read_bytes(), np.uint8).astype(np.float32)


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    folder = tmp_path / "remote"
    (folder / "class").mkdir(parents=True)
    for number in range(SAMPLES):
        (folder / "class" / f"{number}.bin").write_bytes(bytes([number]) * SIZE)
    return folder


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    return tmp_path / "memory"


def cache_of(remote: Path, memory: Path, **options: Any) -> DataCache[np.ndarray]:
    names = [f"class/{number}.bin" for number in range(SAMPLES)]
    given = {"disk_bytes": LARGE, "memory_bytes": LARGE, "decode": decode, **options}
    return DataCache(remote, names, local=remote.parent / "local", memory=memory, **given)


def read_all(cache: DataCache[np.ndarray]) -> None:
    for number in range(len(cache)):
        assert cache[number].tolist() == [number] * SIZE


class _Evil:
    """A pickle that makes a file when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.skipif(os.geteuid() != 0, reason="files of another user take root")
@pytest.mark.parametrize("way", ["folder", "link", "open folder", "made when it was cleared"])
def test_samples_of_another_user_are_not_read(remote: Path, memory: Path, way: str) -> None:
    """The folder in /dev/shm has a known name, and samples are pickles, which execute code."""
    nobody, mark = 65534, memory.parent / "stranger was here"
    place = memory.parent / "elsewhere" if way == "link" else memory
    cache = cache_of(remote, memory) if way == "made when it was cleared" else None
    if cache is not None:
        cache.clear_memory()
    (place / "class").mkdir(parents=True)
    sample = place / "class" / "0.bin"
    sample.write_bytes(pickle.dumps(_Evil(mark)))
    if way == "link":
        memory.symlink_to(place)
        os.lchown(memory, nobody, nobody)
    else:
        os.chown(sample, nobody, nobody)
        place.chmod(0o777)
        if way != "open folder":
            os.chown(place, nobody, nobody)
    with raises(TrainingError, place="cache"):
        (cache or cache_of(remote, memory))[0]
    assert not mark.exists()


@pytest.mark.parametrize("mode", [0o770, 0o720, 0o702, 0o1777])
def test_a_folder_that_others_can_write_to_is_refused(remote: Path, memory: Path, mode: int) -> None:
    """Group or all, sticky or not: a file can be put there before the cache makes its own."""
    memory.mkdir()
    memory.chmod(mode)
    with raises(TrainingError, place="cache", value=mode & 0o022):
        cache_of(remote, memory)[0]
    memory.chmod(0o755)
    assert cache_of(remote, memory)[0].tolist() == [0] * SIZE


def test_later_epochs_read_nothing_remote_and_decode_nothing(remote: Path, memory: Path) -> None:
    cache = cache_of(remote, memory)
    read_all(cache)
    assert (cache.counts.remote_bytes, cache.counts.decoded) == (SAMPLES * SIZE, SAMPLES)
    cache.clear_memory()
    assert not memory.exists()
    read_all(cache)
    assert (cache.counts.remote_bytes, cache.counts.decoded) == (SAMPLES * SIZE, 2 * SAMPLES)
    cache.clear_memory()
    shutil.rmtree(remote)
    later = cache_of(remote, memory)  # as by another rank of the host, or after a restart
    read_all(later)
    assert (later.counts.remote_bytes, later.counts.decoded) == (0, SAMPLES)
    read_all(later)
    assert (later.counts.decoded, later.counts.from_memory) == (SAMPLES, SAMPLES)


def test_a_full_level_stores_no_more_and_samples_still_come(remote: Path, memory: Path) -> None:
    cache = cache_of(remote, memory, disk_bytes=5 * SIZE, memory_bytes=4000)
    for _ in range(3):
        read_all(cache)
    stored = [path.stat().st_size for path in (remote.parent / "local" / "class").iterdir()]
    assert sum(stored) == 5 * SIZE
    decoded = [path.stat().st_size for path in (memory / "class").iterdir()]
    assert 1600 < sum(decoded) <= 4000
    assert cache.counts.decoded == SAMPLES + 2 * (SAMPLES - len(decoded))


@pytest.mark.parametrize(("option", "value"), [("disk_bytes", 0), ("memory_bytes", -1)])
def test_bounds_below_one_byte_are_refused(remote: Path, memory: Path, option: str, value: int) -> None:
    with raises(TrainingError, place="cache", value=value):
        cache_of(remote, memory, **{option: value})


def test_the_remote_folder_as_local_one_is_refused(remote: Path, memory: Path) -> None:
    with raises(TrainingError, place="cache"):
        DataCache(remote, [], decode, remote, LARGE, LARGE, memory)


def test_a_file_that_changes_while_it_is_copied_is_refused(
    remote: Path, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(_: Path, path: Path) -> None:
        path.write_bytes(b"x" * (SIZE // 2))

    cache = cache_of(remote, memory)
    monkeypatch.setattr(shutil, "copyfile", half)
    with raises(TrainingError, place="cache", value=SIZE // 2):
        cache[0]
    monkeypatch.undo()
    read_all(cache)


@pytest.mark.parametrize("changed", ["local", "remote"])
def test_a_copy_of_another_size_than_its_source_is_refused(remote: Path, memory: Path, changed: str) -> None:
    cache = cache_of(remote, memory)
    read_all(cache)
    cache.clear_memory()
    copy = remote.parent / "local" / "class" / "3.bin"
    os.truncate(remote.parent / changed / "class" / "3.bin", SIZE - 1)
    with raises(TrainingError, place="cache", value=copy.stat().st_size):
        cache[3]
    assert cache[2].tolist() == [2] * SIZE
    if changed == "local":
        copy.unlink()
        read_all(cache)


@pytest.mark.parametrize("name", ["../outside.bin", "/etc/passwd", ".weir/total", "."])
def test_names_out_of_the_folder_are_refused(remote: Path, memory: Path, name: str) -> None:
    cache = cache_of(remote, memory)
    cache.names = [name]
    with raises(TrainingError, place="cache", value=name):
        cache[0]


def test_a_missing_file_is_named_in_the_error_and_not_stored(remote: Path, memory: Path) -> None:
    cache = cache_of(remote, memory)
    (remote / "class" / "3.bin").unlink()
    with raises(TrainingError, place="cache", value="class/3.bin"):
        cache[3]
    assert [*(remote.parent / "local").glob("**/*.bin")] == []


@pytest.mark.parametrize("name", ["a" * 300 + ".bin", "nul\0.bin", 3, ""])
def test_names_that_no_file_has_are_refused(remote: Path, memory: Path, name: Any) -> None:
    cache = cache_of(remote, memory)
    cache.names = [name]
    with raises(TrainingError, place="cache", value=name):
        cache[0]


def test_folders_may_be_relative_and_given_as_text(remote: Path, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(memory.parent)
    names = [f"class/{number}.bin" for number in range(SAMPLES)]
    cache = DataCache("remote", names, decode, "x/../local", LARGE, LARGE, "./memory")  # type: ignore[arg-type]
    monkeypatch.chdir("/")
    read_all(cache)
    read_all(cache)
    assert cache.counts.from_memory == SAMPLES


class _Full:
    """A call that fails as on a full disk."""

    def __init__(self, code: int) -> None:
        self.code = code

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise OSError(self.code, os.strerror(self.code))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("full", ["copies", "files", "memory", "renaming"])
def test_samples_still_come_when_a_disk_is_full(
    remote: Path, memory: Path, full: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = cache_of(remote, memory)
    owner, name = {
        "copies": (shutil, "copyfile"),
        "files": (tempfile, "mkstemp"),
        "memory": (Path, "write_bytes"),
        "renaming": (Path, "replace"),
    }[full]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, _Full(code))
        read_all(cache)
    assert cache.counts.decoded == SAMPLES
    left = [path for level in (memory, remote.parent / "local") for path in level.glob(".weir/made-*")]
    assert left == []
    read_all(cache)
    read_all(cache)
    assert cache.counts.from_memory >= SAMPLES


def test_other_errors_of_the_local_disk_name_the_file(
    remote: Path, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = cache_of(remote, memory)
    monkeypatch.setattr(shutil, "copyfile", _Full(errno.EIO))
    with raises(TrainingError, place="cache", value="class/0.bin"):
        cache[0]


@pytest.mark.parametrize(
    "sample", [None, "text", {"image": np.zeros(2), "label": 3}, (1, [2.5, b"x"]), np.array(["a", None], object)]
)
def test_samples_may_be_whatever_can_be_pickled(remote: Path, memory: Path, sample: Any) -> None:
    cache = cache_of(remote, memory, decode=lambda path: sample)
    for _ in range(2):
        assert repr(cache[0]) == repr(sample)
    assert (cache.counts.decoded, cache.counts.from_memory) == (1, 1)


def test_a_sample_that_cannot_be_pickled_is_an_error_with_its_type(remote: Path, memory: Path) -> None:
    cache = cache_of(remote, memory, decode=lambda path: (each for each in (1, 2)))
    with raises(TrainingError, place="cache", value="generator"):
        cache[0]
    assert [*memory.glob(".weir/made-*")] == []


def test_links_in_the_folders_are_replaced_and_not_read(remote: Path, memory: Path) -> None:
    cache = cache_of(remote, memory)
    for level in (memory, remote.parent / "local"):
        secret = level.parent / f"secret of {level.name}"
        secret.write_bytes(b"\xff" * SIZE)
        (level / "class").mkdir()
        (level / "class" / "0.bin").symlink_to(secret)
    read_all(cache)
    assert cache.counts.decoded == SAMPLES
    assert not (memory / "class" / "0.bin").is_symlink()
    assert (memory.parent / "secret of memory").read_bytes() == b"\xff" * SIZE


def _write(data: bytes, path: Path) -> None:
    path.write_bytes(data)


def _die_in_the_middle(folder: Path) -> None:
    def make(path: Path) -> None:
        path.write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)

    BoundedFolder(folder, LARGE).fill("sample", make)


def test_a_process_killed_in_between_leaves_no_file_or_lock(tmp_path: Path) -> None:
    process = multiprocessing.get_context("fork").Process(target=_die_in_the_middle, args=(tmp_path / "level",))
    process.start()
    process.join()
    level = BoundedFolder(tmp_path / "level", LARGE)
    assert level.find("sample") is None
    assert [*(tmp_path / "level" / ".weir").glob("made-*")] == []
    path, made = level.fill("sample", partial(_write, b"whole"))
    assert path is not None
    assert made
    assert (path.read_bytes(), level.used_bytes) == (b"whole", 5)


def _fill_all(folder: Path, answers: Any) -> None:
    level, made = BoundedFolder(folder, 10 * SIZE), 0
    for number in range(30):
        _, mine = level.fill(f"{number}", partial(_write, b"x" * SIZE))
        made += mine
    answers.put(level.used_bytes)


def test_processes_that_share_a_level_keep_its_bound_together(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    processes = [context.Process(target=_fill_all, args=(tmp_path, answers)) for _ in range(3)]
    for process in processes:
        process.start()
    assert [answers.get(timeout=60) for _ in processes] == [10 * SIZE] * 3
    for process in processes:
        process.join()
    assert len([path for path in tmp_path.iterdir() if path.is_file()]) == 10


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed (pip install 'weir-fabric[torch]')")
def test_a_data_loader_with_processes_finds_decoded_samples(remote: Path, memory: Path) -> None:
    from torch.utils.data import DataLoader

    def loaded(cache: Any) -> list[list[float]]:
        loader = DataLoader(cache, batch_size=5, num_workers=2, multiprocessing_context="fork")
        return [batch[:, 0].tolist() for batch in loader]

    expected = [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]
    assert loaded(cache_of(remote, memory)) == expected

    def decodes_no_more(path: Path) -> Any:
        raise AssertionError(path)

    assert loaded(cache_of(remote, memory, decode=decodes_no_more)) == expected
