"""For every test: a run that is over ends."""

from __future__ import annotations

import faulthandler
import os
from typing import Final

import pytest

_LAST_S: Final = 60.0
"""How long threads and processes that tests left may take to end."""


def pytest_unconfigure(config: pytest.Config) -> None:
    """Python waits for the threads of every pool before it exits: one that never ends is shown, and the run fails."""
    faulthandler.dump_traceback_later(_LAST_S, exit=True, file=os.dup(2))
