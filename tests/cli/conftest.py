"""Fixtures that commands share with runs."""

from __future__ import annotations

from weir.tests.experiments.conftest import demo, short

__all__ = ["demo", "short"]
