"""Assertions on errors by their type and attributes; their text is free to change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

Error = TypeVar("Error", bound=BaseException)


@contextmanager
def raises(kind: type[Error], **parts: object) -> Iterator[pytest.ExceptionInfo[Error]]:
    """Require that the block raises an error of this kind whose attributes have these values.

    Args:
        kind: The class that the error is an instance of.
        **parts: Attributes of the error, such as `place`, `value` and `allowed`, with their expected values.
    """
    with pytest.raises(kind) as caught:
        yield caught
    assert {name: getattr(caught.value, name) for name in parts} == parts, caught.value
