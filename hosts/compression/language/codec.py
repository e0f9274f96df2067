"""Codecs written in CompLL, as any other codec: summed by switches if that follows from their text, else gathered."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...array_types import IntArray
from ...errors import InvalidCodec
from ...numerics.draws import Draws, UintArray
from ...numerics.lane_codes import LARGEST_SCALE, LaneCode, LaneLayout, LaneType, fixed_levels
from ...numerics.quantization import Float32Array
from ..codec import Codec, Context, GatheredCodec, LaneCodec, number_text
from .homomorphism import Derived, derive
from .program import CodecProgram
from .syntax import LONGEST_TEXT

ENDING: Final = ".compll"
_DIGITS: Final = 12
"""Digits of a text's digest in names."""


def load(path: str, *, native: bool | None = None, **params: float) -> Codec:
    """Load a codec from the file of its text.

    Args:
        path: Path of the file.
        native: Run it as native code; None: if Numba is installed. Bits are the same.
        **params: Values of its parameters.

    Raises:
        InvalidCodec: There is no such file, or it is no codec.
        MissingExtra: lark is not installed, or Numba where it is asked for.
    """
    text = _text_of(path)
    native = find_spec("numba") is not None if native is None else native
    program = CodecProgram(text, path, native=native, params=params)
    derived = derive(program.checked)
    options = ", ".join(f"{name}={number_text(value)}" for name, value in program.params.items())
    name = f"{Path(path).stem}{ENDING}({options})#{text_digest(text)}"
    if derived.homomorphic:
        return LaneCodec(LaneType(ProgramLanes(name, program, derived)))
    return ProgramCodec(name, program)


def text_digest(text: str) -> str:
    """Return digits that tell a codec's text from others: files of one name may differ between workers."""
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _text_of(path: str) -> str:
    """Return a file's text. Raises InvalidCodec for what is no file of text, and for more than a codec may have."""
    try:
        if Path(path).exists() and not Path(path).is_file():  # a device, say, that has no end
            raise InvalidCodec("cannot be read: no plain file", place=path, value=path)
        with Path(path).open(encoding="utf-8") as file:
            return file.read(LONGEST_TEXT + 1)
    except OSError as error:
        raise InvalidCodec(f"cannot be read: {error.strerror}", place=path, value=path) from None
    except UnicodeDecodeError:
        raise InvalidCodec("cannot be read: no UTF-8 text", place=path, value=path) from None


def reason(path: str) -> str:
    """Return why switches cannot sum the codes of a codec's file; empty if they can."""
    return derive(CodecProgram(_text_of(path), path, native=False).checked).reason


def same_bits(path: str) -> bool:
    """Return whether both back ends make the same codes and numbers, bit for bit, for arrays of several sizes."""
    text = _text_of(path)
    programs = [CodecProgram(text, path, native=native) for native in (False, True)]
    for size in (1, 33, 5000):
        values = np.random.default_rng(size).standard_normal(size).astype(np.float32)
        codes = [program.encode(values, Draws(5, 1)) for program in programs]
        numbers = [program.decode(codes[0], size) for program in programs]
        if codes[0].tobytes() != codes[1].tobytes() or numbers[0].tobytes() != numbers[1].tobytes():
            return False
    return True


class ProgramLanes(LaneCode):
    """A homomorphic codec as fields of a lane, its common scalar as the scale of a chunk."""

    def __init__(self, name: str, program: CodecProgram, derived: Derived) -> None:
        assert derived.quantise is not None
        assert derived.restore is not None
        self.name = name
        self._program = program
        self._derived = derived
        self._quantise = program.kernel(derived.quantise)
        self._restore = program.kernel(derived.restore)

    def layout(self, workers: int) -> LaneLayout:
        return fixed_levels(1 << self._derived.bits, workers)

    def scale(self, chunks: Float32Array, levels: int, sizes: IntArray) -> NDArray[np.float64]:
        if not self._derived.scale:
            largest: NDArray[np.float64] = np.abs(chunks).max(axis=1).astype(np.float64)
            return np.minimum(largest, LARGEST_SCALE)
        scales = [
            self._program.scalar(self._derived.scale, chunk[:size]) for chunk, size in zip(chunks, sizes, strict=True)
        ]
        return np.array(scales, np.float64)

    def quantise(
        self, chunks: Float32Array, scales: NDArray[np.float64], levels: int, uniform: Float32Array
    ) -> UintArray:
        codes = np.empty(chunks.shape, np.uint32)
        for row, (chunk, scale) in enumerate(zip(chunks, scales, strict=True)):
            values = self._values(self._quantise.captures, np.float32(scale))
            codes[row] = self._quantise.run(chunk, values, uniform[row : row + 1])
        return codes

    def restore(
        self, sums: IntArray, scales: NDArray[np.float64], levels: int, contributors: NDArray[np.int64]
    ) -> Float32Array:
        """Return slope · Σ code + contributors · offset, with both from the function's values at 0 and 1."""
        ends, none = np.array([0, 1], np.uint8), np.zeros((0, 2), np.float32)
        lines = [
            self._restore.run(ends, self._values(self._restore.captures, np.float32(scale)), none) for scale in scales
        ]
        offset, scale = np.array(lines, np.float64).reshape(-1, 2).T
        total: Float32Array = (sums * (scale - offset)[:, None] + (contributors * offset)[:, None]).astype(np.float32)
        return total

    def _values(self, captures: Any, scale: np.float32) -> list[Any]:
        common = (self._derived.scale, self._derived.scale_name)
        return [scale if name in common else self._program.params[name] for name in captures]


class ProgramCodec(GatheredCodec):
    """A codec whose codes are gathered; shorter ones are filled with zeros to the length of the longest.

    What is summed first are the lengths of all workers' codes, each in its own place.
    """

    def __init__(self, name: str, program: CodecProgram) -> None:
        self.name = name
        self._program = program
        self._last: tuple[Float32Array, NDArray[np.uint8]] | None = None
        """Numbers and their code, between `presum` and `encode`."""

    def presum(self, values: Float32Array, context: Context) -> Float32Array:
        code = self._program.encode(values, context.draws)
        self._last = values, code
        lengths = np.zeros(context.workers, np.float32)
        lengths[context.draws.rank] = code.size
        return lengths

    def encode(self, values: Float32Array, context: Context) -> NDArray[Any]:
        assert context.agreed is not None
        last, self._last = self._last, None
        code = last[1] if last is not None and last[0] is values else self._program.encode(values, context.draws)
        filled = np.zeros(max(int(np.rint(context.agreed.max())), code.size), np.uint8)
        filled[: code.size] = code
        return filled

    def decode(self, code: NDArray[Any], context: Context) -> Float32Array:
        return self._program.decode(code, context.size)

    def code_bytes(self, size: int) -> int:
        """Return bytes of the code of as many normal numbers."""
        values = np.random.default_rng(0).standard_normal(size).astype(np.float32)
        return self._program.encode(values, Draws()).size
