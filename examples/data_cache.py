"""Three epochs over a folder of images through DataCache: `python examples/data_cache.py`.

The folder stands for a network file system. What is printed is what each epoch has read from it and decoded.
"""

import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from weir.training.loading.data_cache import DataCache


def decode(path: Path) -> tuple[np.ndarray, int]:
    """The image, scaled to 0…1, and its label, which is in the file's name."""
    return np.load(path) / 16, int(path.name[0])


images, labels = load_digits(return_X_y=True)
with tempfile.TemporaryDirectory() as folder:
    remote = Path(folder, "remote")
    remote.mkdir()
    names = [f"{label}-{number}.npy" for number, label in enumerate(labels[:500])]
    for name, image in zip(names, images, strict=False):
        np.save(remote / name, image)
    cache = DataCache(remote, names, decode, Path(folder, "local"), disk_bytes=10 << 20, memory_bytes=10 << 20)
    for epoch in range(3):
        before = cache.counts.remote_bytes, cache.counts.decoded
        total = sum(cache[int(row)][0].sum() for row in np.random.default_rng(epoch).permutation(len(cache)))
        read, decoded = cache.counts.remote_bytes - before[0], cache.counts.decoded - before[1]
        print(f"epoch {epoch + 1}: {read} bytes from the folder, {decoded} samples decoded, sum {total:.1f}")
        if epoch == 0:
            cache.clear_memory()  # as on the next day: the copies on the disk are there, and nothing in memory
    cache.clear_memory()
