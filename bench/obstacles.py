"""Packages that benchmarks need and that may be missing."""

from __future__ import annotations

import importlib.util


def pytorch_missing() -> str | None:
    """Return the reason why a benchmark with PyTorch cannot run here; None if it can."""
    return None if importlib.util.find_spec("torch") else "PyTorch is not installed: pip install 'weir-fabric[torch]'"
