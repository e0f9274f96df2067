"""Console of the commands for progress, apart from their results."""

from __future__ import annotations

from typing import Final

from rich.console import Console

NOTES: Final = Console(stderr=True, highlight=False, markup=False)
"""Standard error; `weir -q` silences it, and errors do not go this way."""
