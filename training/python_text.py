"""Text that every CPython contains: the topics of its `help()`, in English. It differs between versions of Python."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache


@cache
def topics() -> Sequence[str]:
    """Return the topics' texts, in the order of their names."""
    from pydoc_data.topics import topics as by_name

    return [by_name[name] for name in sorted(by_name)]
