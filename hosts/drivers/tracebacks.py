"""Tracebacks of a rank's uncaught errors without the frames inside this package: four ranks print them at once."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType
from typing import Final

from ..errors import HostError

_PACKAGE: Final = str(Path(__file__).resolve().parents[2])


def shorten_tracebacks() -> None:
    """Print uncaught errors of `hosts` with the frames of the program alone, unless the program prints them itself."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _print


def _print(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, HostError):
        trace = _outside(trace) or trace
        error = error.with_traceback(trace)  # which is what is printed
    sys.__excepthook__(kind, error, trace)


def _outside(trace: TracebackType | None) -> TracebackType | None:
    """The frames up to the first one of this package."""
    if trace is None or trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        return None
    return TracebackType(_outside(trace.tb_next), trace.tb_frame, trace.tb_lasti, trace.tb_lineno)
