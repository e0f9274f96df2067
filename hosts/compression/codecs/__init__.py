"""Codecs by name. A new one is a module here that ends in its DESCRIPTION, and its test; or a file of the user's that
ends in one, whose path is its name.
"""

from __future__ import annotations

from typing import Any, Final

from ....imports.options import checked_options
from ....imports.registry import Registry
from ...errors import InvalidTensor
from ..codec import Codec, CodecDescription
from ..language.codec import ENDING, load

__all__ = ["CODECS", "CodecDescription", "make_codec"]

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
