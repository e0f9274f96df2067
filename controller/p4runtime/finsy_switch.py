"""finsy's Switch as a session uses it: it keeps the reason of a failure, reloads the program if another controller's
rounds may be in the switch (`loading`), and filters log lines that repeat the session's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import nullcontext
from typing import Any, Final, TypeVar, cast

import finsy as fy
from finsy import p4client
from finsy.p4client import P4ClientError
from finsy.p4entity import P4Entity, encode_entities
from finsy.p4schema import P4SchemaCache
from finsy.proto import p4r

from ...errors.texts import printable
from ..errors import SwitchError, SwitchUnreachable
from .loading import Loading, runs
from .tables import JOBS

_SCHEMAS: Final = P4SchemaCache()  # type: ignore[no-untyped-call]
_T = TypeVar("_T")

p4client._DEFAULT_RPC_TIMEOUT = 3600.0  # sessions bound what they ask themselves: loading a program may take a minute


class FinsySwitch(fy.Switch):  # type: ignore[misc]  # final, but nothing else tells why it failed
    """When one of its tasks fails, finsy cancels whatever waits for the switch."""

    loading: Loading
    """Program that is loaded into the switch, and the conditions for loading."""
    failure: BaseException | None = None
    """Exception of the first task that failed, or None."""

    async def close(self) -> None:
        """End its stream and tasks; nothing to do for one that is not open."""
        if self._p4client is not None:
            await self.__aexit__(None, None, None)

    async def load_program(self) -> None:
        """See that the switch runs the program, and has no other owner's rounds in its registers. For primaries."""
        program = self.p4info.p4cookie
        try:
            reply = await self._get_pipeline_config_request()
            cookie = reply.config.cookie.cookie
            if self.loading.accepts(cookie, program):
                return
            await self._leave_nothing(cookie, program)
        except P4ClientError as error:
            if not error.is_pipeline_missing:
                raise
        config = self.p4info.get_pipeline_config()
        config.cookie.cookie = self.loading.cookie(program)
        await self._set_pipeline_config_request(config=config)
        self.loading.loads += 1

    async def read_encoded(self, wanted: Sequence[P4Entity]) -> AsyncIterator[p4r.Entity]:
        """Read entities as `read` does, but yield them as P4Runtime encodes them."""
        assert self._p4client is not None
        entities = encode_entities(wanted, self.p4info)
        async for reply in self._p4client.request_iter(p4r.ReadRequest(device_id=self.device_id, entities=entities)):
            for entity in reply.entities:
                yield entity

    async def _leave_nothing(self, cookie: int, program: int) -> None:
        """Prepare for loading a program again: note the owners of ending entries, and delete replication entries, which
        some switches keep.
        """
        kept = self.read([fy.P4MulticastGroupEntry(), fy.P4CloneSessionEntry()])
        await self.delete([entity async for entity in cast(AsyncIterator[P4Entity], kept)])
        if runs(cookie, program):
            async for entry in cast(AsyncIterator[fy.P4TableEntry], self.read(fy.P4TableEntry(JOBS))):
                if entry.match:
                    self.loading.left.add((int(entry.match["job"]), int(entry.match["generation"])))

    async def _set_pipeline(self) -> None:
        """Replacement of finsy's method, whose cookie names no owner."""
        await self.load_program()

    def create_task(
        self, coro: Coroutine[Any, Any, _T], *, background: bool = False, name: str | None = None
    ) -> asyncio.Task[_T]:
        """Create a task whose failure is noted for those that wait for the switch. Arguments are those of finsy."""
        task = super().create_task(coro, background=background, name=name)
        task.add_done_callback(self._note)
        return task

    def _note(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and self.failure is None:
            self.failure = task.exception()


def new_switch(name: str, address: str, options: fy.SwitchOptions, loading: Loading) -> FinsySwitch:
    """Create a switch that is not open yet. All switches share the schemas of their programs.

    Args:
        name: Name of the switch.
        address: Address of its P4Runtime server.
        options: finsy's options of the session.
        loading: Program that the session loads, with its owner.
    """
    quiet_finsy()
    with nullcontext() if P4SchemaCache.current() else _SCHEMAS:
        switch = FinsySwitch(name, address, options)
    switch.loading = loading
    return switch


def quiet_finsy() -> None:
    """Keep finsy's log from repeating what errors already say."""
    logging.getLogger("finsy").addFilter(_SPOKEN_FOR)


def switch_error(error: BaseException | None, switch: str, address: str, asked: str) -> SwitchError:
    """Return the error that stopped finsy, as one of this package's.

    Args:
        error: finsy's error; None: its stream broke.
        switch: Name of the switch.
        address: Address of its P4Runtime server.
        asked: Requested operation, such as "connect" or "write".
    """
    context = (switch, address, asked)
    match error:
        case None:
            return SwitchUnreachable(*context, "the stream broke; is the switch still running?")
        case RuntimeError():
            return SwitchUnreachable(*context, f"the stream broke: {printable(str(error))}")
        case P4ClientError(code=fy.GRPCStatusCode.UNAVAILABLE):
            return SwitchUnreachable(*context, "nobody answers there; check address and port, and that the switch runs")
        case P4ClientError(code=fy.GRPCStatusCode.DEADLINE_EXCEEDED):
            return SwitchUnreachable(*context, "no answer in time")
        case P4ClientError():
            return SwitchError(*context, printable(error.message), error.code.name)
        case _:
            return SwitchError(*context, printable(str(error)) or type(error).__name__)


class _SpokenFor(logging.Filter):
    """Log filter that drops finsy's tracebacks of errors that the session reports, and its remark that a switch has no
    gNMI.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        traceback = record.levelno >= logging.CRITICAL and record.exc_info
        return not (traceback or str(record.msg).endswith("gNMI is not implemented"))


_SPOKEN_FOR: Final = _SpokenFor()
