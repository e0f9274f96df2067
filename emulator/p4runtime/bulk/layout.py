"""Memory that the native parser reads and writes, all of it words of 64 bits.

`JOB` is the parser's argument; it writes HEAD behind it. A schema is the number of its tables, the word at which each
begins, and then the tables: TABLE words, FIELD words for each match field, and for each action ACTION words with PARAM
words for each parameter. A record, one per update, is::

    | type | table | identity (`emulator.tables.keys`) | row (`emulator.tables.rows`), without the address of its cell |
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

HEAD_OPERATION: Final = 0
"""Read what stands around the updates; the result is their number."""
UPDATES_OPERATION: Final = 1
"""Write the records; the result is their number."""
REFUSED: Final = -1
"""Result for a message that is not of the plain kind, or wrong."""

RECORD_HEAD: Final = 2
MAX_FIELDS: Final = 62
"""Match fields of a table, and parameters of an action: a bit of a word each."""


class Job(IntEnum):
    """Words of the parser's argument."""

    DATA = 0
    SIZE = 1
    SCHEMA = 2
    RECORDS = 3
    STRIDE = 4
    """Words from one record to the next."""
    CAPACITY = 5
    """Records that there is room for."""
    DEVICE = 6
    """First word of what HEAD_OPERATION writes."""
    HAS_ELECTION = 7
    ELECTION_HIGH = 8
    ELECTION_LOW = 9
    ATOMICITY = 10


class Table(IntEnum):
    """Words of a table in a schema."""

    ID = 0
    WORDS = 1
    """Words of the packed key."""
    RANGES = 2
    PARAMS_AT = 3
    """Word of a row at which its parameters begin."""
    ROW_WORDS = 4
    NEEDS_PRIORITY = 5
    BY_PREFIX = 6
    """1 if entries are ranked by the length of their prefix."""
    EXACT = 7
    """A bit for each field that must be given."""
    FIELDS = 8
    ACTIONS = 9
    """Number of actions; their words follow those of the fields."""


class Field(IntEnum):
    """Words of a match field."""

    ID = 0
    KIND = 1
    """Tag of the match in FieldMatch."""
    WIDTH = 2
    BIT = 3
    """Place in the packed key, or number among the ranges."""


class Action(IntEnum):
    """Words of an action."""

    ID = 0
    CODE = 1
    PARAMS = 2


class Param(IntEnum):
    """Words of a parameter."""

    ID = 0
    WIDTH = 1
    AT = 2
    """Word among those of the parameters."""


EXACT: Final = 0x12
TERNARY: Final = 0x1A
LPM: Final = 0x22
RANGE: Final = 0x32
OPTIONAL: Final = 0x3A
"""Tags of the fields of FieldMatch."""
