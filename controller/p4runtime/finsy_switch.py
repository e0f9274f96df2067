"""finsy's Switch as a session uses it: it keeps why it failed, and its log does not repeat what the session says."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import nullcontext
from typing import Any, Final, TypeVar

import finsy as fy
from finsy.p4client import P4ClientError
from finsy.p4schema import P4SchemaCache

from ..errors import SwitchError, SwitchUnreachable

_SCHEMAS: Final = P4SchemaCache()  # type: ignore[no-untyped-call]
_T = TypeVar("_T")


class FinsySwitch(fy.Switch):  # type: ignore[misc]  # final, but nothing else tells why it failed
    """When one of its tasks fails, finsy cancels whatever waits for the switch."""

    failure: BaseException | None = None
    """What the first of its tasks to fail raised; None: none has."""

    def create_task(
        self, coro: Coroutine[Any, Any, _T], *, background: bool = False, name: str | None = None
    ) -> asyncio.Task[_T]:
        task = super().create_task(coro, background=background, name=name)
        task.add_done_callback(self._note)
        return task

    def _note(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and self.failure is None:
            self.failure = task.exception()


def new_switch(name: str, address: str, options: fy.SwitchOptions) -> FinsySwitch:
    """One that is not open yet. All share the schemas of their programs."""
    logging.getLogger("finsy").addFilter(_SPOKEN_FOR)
    with nullcontext() if P4SchemaCache.current() else _SCHEMAS:
        return FinsySwitch(name, address, options)


def switch_error(error: BaseException | None, switch: str, address: str, asked: str) -> SwitchError:
    """What stopped finsy, as an error of ours; None: its stream broke."""
    what = (switch, address, asked)
    match error:
        case None:
            return SwitchUnreachable(*what, "the stream broke; is the switch still running?")
        case RuntimeError():
            return SwitchUnreachable(*what, f"the stream broke: {error}")
        case P4ClientError(code=fy.GRPCStatusCode.UNAVAILABLE):
            return SwitchUnreachable(*what, "nobody answers there; check address and port, and that the switch runs")
        case P4ClientError(code=fy.GRPCStatusCode.DEADLINE_EXCEEDED):
            return SwitchUnreachable(*what, "no answer in time")
        case P4ClientError():
            return SwitchError(*what, error.message, error.code.name)
        case _:
            return SwitchError(*what, str(error) or type(error).__name__)


class _SpokenFor(logging.Filter):
    """Drops what finsy logs beside what it does: tracebacks of errors that the session words, and that a switch has no
    gNMI, which nobody asked for.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        traceback = record.levelno >= logging.CRITICAL and record.exc_info
        return not (traceback or str(record.msg).endswith("gNMI is not implemented"))


_SPOKEN_FOR: Final = _SpokenFor()
