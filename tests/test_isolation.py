"""Independence of tests: changes of logging by one are undone before the next."""

from __future__ import annotations

import logging

import pytest


@pytest.mark.parametrize("run", ["first", "second"])
def test_logging_is_reset_between_tests(run: str, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("weir.isolation")
    logger.warning(run)
    assert caplog.messages == [run]
    logging.disable(logging.CRITICAL)
    logging.getLogger().handlers.clear()
    logging.getLogger().setLevel(logging.CRITICAL)
    logger.setLevel(logging.CRITICAL)
