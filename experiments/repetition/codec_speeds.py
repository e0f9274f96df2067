"""Speed of CompLL's generated encoders beside the same ones in NumPy and PyTorch, on one core."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...hosts.compression.language.program import CodecProgram
from ...hosts.numerics.draws import Draws
from ...hosts.numerics.quantization import Float32Array
from ...imports.extras import install_command
from ..errors import ExperimentError
from .compressed_steps import processor_seconds
from .paper import Paper, Quantity, Sample
from .plain_codecs import PLAIN

ENCODE: Final = Quantity("encoding", "GB/s", less_is_better=False)
MEBIBYTES: Final = (64,)
"""Sizes of the float32 arrays."""
FOLDER: Final = Path(__file__).parents[2] / "examples" / "codecs"
"""Codecs in CompLL, by the names of `PLAIN`."""

Encoder = Callable[[], Any]
"""Encodes an array."""


def generated(name: str, values: Float32Array) -> Encoder:
    """Return the native encoder that CompLL makes of a codec's text.

    Args:
        name: Name of the codec.
        values: Numbers to encode, (n,).
    """
    program = CodecProgram((FOLDER / f"{name}.compll").read_text(), name, native=True)
    return partial(program.encode, values, Draws(1, 0))


def plain(name: str, values: Float32Array) -> Encoder:
    """Return the encoder in plain NumPy."""
    return partial(PLAIN[name][0], values, np.random.default_rng(2))


def by_torch(name: str, values: Float32Array, *, compiled: bool) -> Encoder:
    """Return the encoder in PyTorch, on one core.

    Args:
        name: Name of the codec.
        values: Numbers to encode, (n,).
        compiled: By `torch.compile`; else operator by operator.
    """
    import torch

    from .torch_codecs import TORCH

    torch.set_num_threads(1)
    encode = TORCH[name]
    return partial(torch.compile(encode, dynamic=True) if compiled else encode, torch.from_numpy(values))


ENCODERS: Final[dict[str, Callable[[str, Float32Array], Encoder]]] = {
    "compll": generated,
    "numpy": plain,
    "torch": partial(by_torch, compiled=False),
    "torch-compile": partial(by_torch, compiled=True),
}
"""Encoders by the names of the contenders."""


def codec_speeds(paper: Paper) -> Iterator[Sample]:
    """Measure `ENCODE` of all contenders: bytes of float32 by processor time. The first call compiles.

    Raises:
        ExperimentError: PyTorch, Numba or a C++ compiler is not here.
    """
    for module, extra in (("torch", "torch"), ("numba", "codecs"), ("lark", "codecs")):
        if find_spec(module) is None:
            raise ExperimentError(f"{paper.name}: needs {module}: {install_command(extra)}")
    if not (shutil.which("g++") or shutil.which("clang++")):
        raise ExperimentError(f"{paper.name}: torch.compile needs a C++ compiler: install g++")
    for mebibytes in MEBIBYTES:
        values = np.random.default_rng(1).standard_normal(mebibytes << 18, dtype=np.float32)
        values *= np.float32(0.01)
        for codec in PLAIN:
            encoders = {name: encoder(codec, values) for name, encoder in ENCODERS.items()}
            for encode in encoders.values():
                encode()
            for turn in range(1, 1 + paper.seeds):
                for name, encode in encoders.items():
                    rate = values.nbytes / processor_seconds(encode, runs=3)
                    yield Sample(ENCODE.name, f"{codec}, {mebibytes} MiB", name, turn, 1e-9 * rate)
