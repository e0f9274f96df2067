"""DataCache: a data set of files in a slow folder, with a copy on the local disk and decoded samples in memory.

::

    sample ─ in memory? ─▶ decoded, from /dev/shm
               └─ on the local disk? ─▶ decode ─▶ into memory
                      └─ remote folder ─▶ copied whole ─▶ decode ─▶ into memory

Levels are folders, so all ranks of a host and all their loading processes share them, and a restarted job finds them.
The two levels are those of Shi et al., "Towards Scalable Distributed Training of Deep Learning on Public Cloud
Clusters", MLSys 2021, whose keys and eviction are not published.
"""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, TypeVar

from ..errors import TrainingError
from .bounded_folder import BoundedFolder, writing

Decoded = TypeVar("Decoded")

SHARED_MEMORY: Final = Path("/dev/shm")


@dataclass(slots=True)
class LoadCounts:
    """Bytes and samples that one process has loaded."""

    remote_bytes: int = 0
    """Bytes read from the remote folder."""
    decoded: int = 0
    """Samples that were decoded."""
    from_memory: int = 0
    """Samples that were found decoded."""


@dataclass(slots=True)
class DataCache(Generic[Decoded]):
    """A map-style data set: `len(cache)`, `cache[i]`. PyTorch's DataLoader takes it as it is, with any `num_workers`.

    Random augmentation belongs behind the cache: `decode` returns the same sample each time.
    """

    remote: Path
    """Folder with the samples' files."""
    names: Sequence[str]
    """Names of the files in it, one a sample."""
    decode: Callable[[Path], Decoded]
    """Makes a sample of a file; the sample can be pickled."""
    local: Path
    """Folder of the copies, for this data set alone."""
    disk_bytes: int
    """Bound of the copies."""
    memory_bytes: int
    """Bound of the decoded samples."""
    memory: Path | None = None
    """Folder of the decoded samples; by default one of this name in /dev/shm."""
    counts: LoadCounts = field(default_factory=LoadCounts)
    _disk_level: BoundedFolder = field(init=False)
    _memory_level: BoundedFolder = field(init=False)

    def __post_init__(self) -> None:
        """Open both levels.

        Raises:
            TrainingError: A bound is below 1, a folder cannot be had, or the remote folder is the local one.
        """
        self.remote, self.local = Path(self.remote).absolute(), Path(self.local).absolute()  # users give text, too
        if self.local.resolve() == self.remote.resolve():
            raise TrainingError(f"local folder {self.local} is the remote one", place="cache", value=str(self.local))
        if self.memory is None:
            self.memory = SHARED_MEMORY / f"weir-{str(self.local.resolve()).strip('/').replace('/', '-')}"
        self._disk_level = BoundedFolder(self.local, self.disk_bytes)
        self._memory_level = BoundedFolder(Path(self.memory), self.memory_bytes)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Decoded:
        """Return a sample.

        Raises:
            TrainingError: The file cannot be read, changes while it is copied, or has another size than its copy; or
                the sample cannot be pickled. Whatever `decode` raises passes through.
        """
        name = self.names[index]
        stored = self._memory_level.find(name)
        if stored is not None:
            self.counts.from_memory += 1
            return self._stored(stored)
        made: list[Decoded] = []

        def decode_into(path: Path) -> None:
            made.append(self.decode(self._file_of(name)))
            self.counts.decoded += 1
            data = _pickled(made[0], name)
            with writing():
                path.write_bytes(data)

        path, _ = self._memory_level.fill(name, decode_into)
        if made:
            return made[0]
        if path is None:  # the disk has no room for an empty file
            self.counts.decoded += 1
            return self.decode(self._file_of(name))
        self.counts.from_memory += 1
        return self._stored(path)

    def clear_memory(self) -> None:
        """Remove the decoded samples. Call it when no process of the host reads them any more."""
        shutil.rmtree(self._memory_level.folder, ignore_errors=True)

    @staticmethod
    def _stored(path: Path) -> Decoded:
        sample: Decoded = pickle.loads(path.read_bytes())
        return sample

    def _file_of(self, name: str) -> Path:
        """A local copy, or the remote file where the disk level has no room."""
        copy = self._disk_level.find(name)
        if copy is None:
            source = self.remote / name
            try:
                size = source.stat().st_size
            except OSError as error:
                raise _unreadable(source, name, error) from None
            if self._disk_level.has_room(size):
                copy, _ = self._disk_level.fill(name, lambda path: self._copy(name, path))
            if copy is None:
                self.counts.remote_bytes += size
                return source
        self._check_size(name, copy)
        return copy

    def _check_size(self, name: str, copy: Path) -> None:
        """Refuse a copy that was cut short, or of a file that has another size now. Without the remote folder it is
        taken as it is.
        """
        source = self.remote / name
        try:
            wanted = source.stat().st_size
        except OSError:
            return
        if (size := copy.stat().st_size) != wanted:
            raise TrainingError(
                f"{copy}: has {size} bytes, {source} has {wanted}; remove the copy",
                place="cache",
                value=size,
                allowed=(str(wanted),),
            )

    def _copy(self, name: str, path: Path) -> None:
        source = self.remote / name
        try:
            before = source.stat().st_size
            with writing():
                shutil.copyfile(source, path)
            copied, after = path.stat().st_size, source.stat().st_size
        except OSError as error:
            raise _unreadable(source, name, error) from None
        self.counts.remote_bytes += copied
        if not before == copied == after:
            raise TrainingError(
                f"{source}: has {after} bytes, of which {copied} were copied; it changes while it is read",
                place="cache",
                value=copied,
                allowed=(str(after),),
            )


def _pickled(sample: object, name: str) -> bytes:
    try:
        return pickle.dumps(sample, protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        kind = type(sample).__name__
        raise TrainingError(
            f"sample {name}: what decode makes of it cannot be pickled ({kind}: {error})", place="cache", value=kind
        ) from None


def _unreadable(source: Path, name: str, error: OSError) -> TrainingError:
    return TrainingError(f"{source}: cannot be read ({error.strerror})", place="cache", value=name)
