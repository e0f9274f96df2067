"""A compiled switch program as a session hands it to a switch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import cast

from finsy.proto import p4i
from google.protobuf import text_format

from ..errors import ControllerError


@dataclass(frozen=True, slots=True)
class CompiledPipeline:
    """A compiled P4 program: P4Info in text format, and the file that the switch loads: BMv2 JSON, or the format of a
    chip's P4Runtime server.
    """

    p4info: Path
    blob: Path

    def check(self) -> None:
        """Check that the files of the pipeline exist.

        Raises:
            ControllerError: A file is missing.
        """
        for path in (self.p4info, self.blob):
            if not path.is_file():
                raise ControllerError(f"no file {path}; compile the switch program first", place="pipeline", value=path)

    @property
    def parsed(self) -> Path:
        """The P4Info as finsy takes it: a message, though its options say Path. It would parse a path's text, which
        takes long, for every switch.
        """
        return cast(Path, _parse(self.p4info, self.p4info.stat().st_mtime_ns))


@lru_cache(maxsize=8)
def _parse(p4info: Path, modified_ns: int) -> p4i.P4Info:
    return text_format.Parse(p4info.read_text("utf-8"), p4i.P4Info())
