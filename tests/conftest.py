"""For every test: a run that is over ends, and a slow machine is no failure."""

from __future__ import annotations

import faulthandler
import os
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("any machine")

_LAST_S: Final = 60.0
"""How long threads and processes that tests left may take to end."""


def pytest_unconfigure(config: pytest.Config) -> None:
    """Python waits for the threads of every pool before it exits: one that never ends is shown, and the run fails."""
    faulthandler.dump_traceback_later(_LAST_S, exit=True, file=os.dup(2))
