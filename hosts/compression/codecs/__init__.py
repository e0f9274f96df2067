"""Codecs by name. A new one is a module here that ends in its DESCRIPTION, and its test; or a file of the user's that
ends in one, whose path is its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any, Final

from ....imports import user_files
from ....imports.options import checked_options
from ....imports.registry import Registry
from ...errors import InvalidTensor
from ..codec import Codec, CodecDescription
from ..language.codec import ENDING, load, text_digest

__all__ = ["CODECS", "CodecDescription", "file_details", "make_codec"]

CODECS: Final = Registry(__name__, __path__, CodecDescription, "codec", InvalidTensor, first="packed")


def make_codec(name: str, **options: Any) -> Codec:
    """Create a codec by its name, or by the path of a Python or CompLL file, with its options.

    Raises:
        InvalidTensor: The codec, an option or its value is unknown.
        InvalidCodec: The text of a codec in CompLL does not fit the language.
    """
    if isinstance(name, str) and name.endswith(ENDING):
        return load(name, **options)
    description = CODECS.describe(name)
    return description.make(**checked_options(options, description.make, f"codec {description.name}", InvalidTensor))


def file_details(name: str, options: Mapping[str, Any]) -> str:
    """Return what the name of a codec may leave out that is written in Python: its options, and its file's digest.

    Args:
        name: Name or path that `make_codec` has created the codec by.
        options: Its options.
    """
    if not name.endswith(user_files.ENDING):
        return ""
    bound = signature(CODECS.describe(name).make).bind(**options)
    bound.apply_defaults()
    given = ", ".join(f"{option}={value!r}" for option, value in bound.arguments.items())
    return f"({given})#{text_digest(Path(name).read_text(encoding='utf-8'))}"
