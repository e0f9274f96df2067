"""Numbers to int32 lanes and back: data types, block exponents, encodings, and a tensor's rounds. Pure."""

from . import native_types as native_types  # noqa: I001 - data types are registered, and named to users, in this order
from . import bfloat16 as bfloat16
from . import packed as packed
