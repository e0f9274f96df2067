"""Native code that reads a WriteRequest of plain table entries. Python calls `entry` alone.

Plain are INSERT, MODIFY and DELETE of entries with a direct action and nothing else, as every serialiser writes them:
fields in the order of their numbers, each once. Everything else, and everything that a table would refuse by itself, is
REFUSED as a whole; other code then finds out what it is. Nothing outside the message is read, whatever its bytes.

A place (`at`, `stop`) is an address; place 0 stands for an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.native import clear, copy, load, load_byte, native, store
from .layout import (
    EXACT,
    HEAD_OPERATION,
    LPM,
    OPTIONAL,
    RANGE,
    RECORD_HEAD,
    REFUSED,
    TERNARY,
    Action,
    Field,
    Job,
    Param,
    Table,
)

# plain numbers, as Numba wants them
DATA, SIZE, SCHEMA, RECORDS, STRIDE, CAPACITY = (int(word) for word in list(Job)[:6])
DEVICE, HAS_ELECTION, ELECTION_HIGH, ELECTION_LOW, ATOMICITY = (int(word) for word in list(Job)[6:])
TABLE_ID, WORDS, RANGES, PARAMS_AT, ROW_WORDS, NEEDS_PRIORITY, BY_PREFIX, NEEDED, FIELDS, ACTIONS = map(int, Table)
FIELD_ID, KIND, WIDTH, BIT = map(int, Field)
ACTION_ID, CODE, PARAMS = map(int, Action)
PARAM_ID, PARAM_WIDTH, PARAM_AT = map(int, Param)
TABLE_SIZE, FIELD_SIZE, ACTION_SIZE, PARAM_SIZE = len(Table), len(Field), len(Action), len(Param)

INSERT = 1
DELETE = 3
MAX_PRIORITY = (1 << 31) - 1
MAX_ID = (1 << 32) - 1


@native
def varint(at: Any, stop: Any) -> Any:
    """Return a number of up to 64 bits, and the place behind it."""
    value = 0
    shift = 0
    while at < stop and shift < 64:
        byte = load_byte(at)
        at += 1
        value |= (byte & 127) << shift
        if shift == 63 and byte > 1:
            return 0, 0
        if byte < 128:
            return value, at
        shift += 7
    return 0, 0


@native
def number(at: Any, stop: Any, tag: Any) -> Any:
    """Return the number of a field, and the place behind it; an error if another field, or none, stands there."""
    if at >= stop or load_byte(at) != tag:
        return 0, 0
    return varint(at + 1, stop)


@native
def field(at: Any, stop: Any, tag: Any) -> Any:
    """Return the places where a field's content begins and ends; an error if another field, or none, stands there."""
    if at >= stop or load_byte(at) != tag:
        return 0, 0
    size, at = varint(at + 1, stop)
    if at == 0 or size < 0 or size > stop - at:
        return 0, 0
    return at, at + size


@native
def number_of(at: Any, stop: Any, width: Any, target: Any, bit: Any) -> Any:
    """Put a byte string into the words at `target`, which are 0 there, `bit` bits above the lowest.

    Returns 0 if it does not fit `width` bits or is empty, 1 for the number 0, and 2 for another.
    """
    if at >= stop:
        return 0
    while at < stop and load_byte(at) == 0:
        at += 1
    size = stop - at
    if size == 0:
        return 1
    most = (width + 7) >> 3
    if size > most or (size == most and width & 7 != 0 and load_byte(at) >> (width & 7) != 0):
        return 0
    for index in range(size):
        place = bit + 8 * index
        byte = load_byte(stop - 1 - index)
        store(target, place >> 6, load(target, place >> 6) | byte << (place & 63))
    return 2


@native
def set_bits(target: Any, low: Any, high: Any) -> Any:
    """Set the bits `low` … `high` - 1 of the words at `target`."""
    while low < high:
        count = min(64 - (low & 63), high - low)
        ones = -1
        if count < 64:
            ones = (1 << count) - 1
        store(target, low >> 6, load(target, low >> 6) | ones << (low & 63))
        low += count


@native
def match_of(at: Any, stop: Any, place: Any, key: Any, mask: Any, bounds: Any) -> Any:
    """Read the match of one field into its words: key, mask, or bounds.

    Returns the length of the prefix, 0 for a match without one; REFUSED for a wrong one.
    """
    kind = load(place, KIND)
    width = load(place, WIDTH)
    bit = load(place, BIT)
    at, end = field(at, stop, kind)
    if at == 0 or end != stop:
        return REFUSED
    start, at = field(at, end, 0x0A)
    if start == 0:
        return REFUSED
    if kind in (EXACT, OPTIONAL):
        if at != end or number_of(start, at, width, key, bit) == 0:
            return REFUSED
        set_bits(mask, bit, bit + width)
    elif kind == LPM:
        if number_of(start, at, width, key, bit) == 0:
            return REFUSED
        length, at = number(at, end, 0x10)
        if at != end or length <= 0 or length > width:
            return REFUSED
        set_bits(mask, bit + width - length, bit + width)
        return length
    else:
        second, last = field(at, end, 0x12)
        if second == 0 or last != end:
            return REFUSED
        if kind == TERNARY:
            if number_of(start, at, width, key, bit) == 0 or number_of(second, last, width, mask, bit) != 2:
                return REFUSED
        else:
            pair = bounds + 16 * bit
            whole = -1
            if width < 64:
                whole = (1 << width) - 1
            store(pair, 1, 0)
            if number_of(start, at, width, pair, 0) == 0 or number_of(second, last, width, pair, 64) == 0:
                return REFUSED
            low, high = load(pair, 0), load(pair, 1)
            if np.uint64(low) > np.uint64(high) or (low == 0 and high == whole):
                return REFUSED
    return 0


@native
def key_of(at: Any, stop: Any, table: Any, identity: Any) -> Any:
    """Read the match fields from `at` on into an identity; return the place behind them and its order."""
    words = load(table, WORDS)
    mask = identity + 8 * words
    bounds = mask + 8 * words
    fields = load(table, FIELDS)
    first = table + 8 * TABLE_SIZE
    for index in range(fields):  # no range is every value
        place = first + 8 * FIELD_SIZE * index
        if load(place, KIND) == RANGE:
            set_bits(bounds, 128 * load(place, BIT) + 64, 128 * load(place, BIT) + 64 + load(place, WIDTH))
    seen = 0
    order = 0
    while at < stop and load_byte(at) == 0x12:
        inner, at = field(at, stop, 0x12)
        if inner == 0:
            return 0, 0
        field_id, inner = number(inner, at, 0x08)
        index = 0
        while index < fields and load(first, FIELD_SIZE * index + FIELD_ID) != field_id:
            index += 1
        if inner == 0 or index == fields or seen >> index & 1 != 0:
            return 0, 0
        seen |= 1 << index
        length = match_of(inner, at, first + 8 * FIELD_SIZE * index, identity, mask, bounds)
        if length < 0:
            return 0, 0
        order += length
    needed = load(table, NEEDED)
    if seen & needed != needed:
        return 0, 0
    for word in range(words):
        if load(identity, word) & ~load(mask, word) != 0:
            return 0, 0
    if load(table, BY_PREFIX) == 0:
        order = 0
    return at, order


@native
def action_of(at: Any, stop: Any, table: Any, row: Any) -> Any:
    """Read a TableAction, from `at` to `stop`, into a row; return False for a wrong one."""
    at, end = field(at, stop, 0x0A)
    if at == 0 or end != stop:
        return False
    action_id, at = number(at, stop, 0x08)
    if at == 0:
        return False
    action = table + 8 * (TABLE_SIZE + FIELD_SIZE * load(table, FIELDS))
    left = load(table, ACTIONS)
    while left > 0 and load(action, ACTION_ID) != action_id:
        action += 8 * (ACTION_SIZE + PARAM_SIZE * load(action, PARAMS))
        left -= 1
    if left == 0:
        return False
    params = load(action, PARAMS)
    first = action + 8 * ACTION_SIZE
    target = row + 8 * load(table, PARAMS_AT)
    seen = 0
    while at < stop:
        inner, at = field(at, stop, 0x22)
        if inner == 0:
            return False
        param_id, inner = number(inner, at, 0x10)
        if inner == 0:
            return False
        index = 0
        while index < params and load(first, PARAM_SIZE * index + PARAM_ID) != param_id:
            index += 1
        if index == params or seen >> index & 1 != 0:
            return False
        seen |= 1 << index
        value, end = field(inner, at, 0x1A)
        place = first + 8 * PARAM_SIZE * index
        if value == 0 or end != at:
            return False
        if number_of(value, end, load(place, PARAM_WIDTH), target, 64 * load(place, PARAM_AT)) == 0:
            return False
    store(row, 0, load(action, CODE))
    return seen == (1 << params) - 1


@native
def update_of(at: Any, stop: Any, schema: Any, record: Any) -> Any:
    """Read an Update, from `at` to `stop`, into a record; return False for one that is not plain or wrong."""
    kind, at = number(at, stop, 0x08)
    if at == 0 or kind < INSERT or kind > DELETE:
        return False
    at, end = field(at, stop, 0x12)
    if at == 0 or end != stop:
        return False
    at, end = field(at, stop, 0x12)
    if at == 0 or end != stop:
        return False
    table_id, at = number(at, stop, 0x08)
    tables = load(schema, 0)
    index = 0
    while index < tables and load(schema + 8 * load(schema, 1 + index), TABLE_ID) != table_id:
        index += 1
    if at == 0 or index == tables:
        return False
    table = schema + 8 * load(schema, 1 + index)
    words, ranges = load(table, WORDS), load(table, RANGES)
    size = 2 * words + 2 * ranges + 1
    identity = record + 8 * RECORD_HEAD
    row = identity + 8 * size
    clear(record, 8 * (RECORD_HEAD + size + load(table, ROW_WORDS)))
    store(record, 0, kind)
    store(record, 1, index)
    at, order = key_of(at, stop, table, identity)
    if at == 0:
        return False
    if at < stop and load_byte(at) == 0x1A:
        inner, at = field(at, stop, 0x1A)
        if inner == 0 or not action_of(inner, at, table, row):
            return False
    elif kind != DELETE:
        return False
    priority = 0
    if at < stop:
        priority, at = number(at, stop, 0x20)
        if at != stop:
            return False
    if load(table, NEEDS_PRIORITY) != 0:
        if priority <= 0 or priority > MAX_PRIORITY:
            return False
        order = priority
    elif priority != 0:
        return False
    store(identity, size - 1, order)
    store(row, 0, load(row, 0) | order << 32)
    compared = 8 * words
    if load(table, NEEDS_PRIORITY) != 0:  # rows have the masks and bounds, too
        compared = 8 * (size - 1)
    copy(row + 16, identity, compared)
    return True


@native
def election_of(at: Any, stop: Any, job: Any) -> Any:
    """Read the election id, from `at` to `stop`; return False for a wrong one."""
    store(job, HAS_ELECTION, 1)
    if at < stop and load_byte(at) == 0x08:
        high, at = number(at, stop, 0x08)
        store(job, ELECTION_HIGH, high)
        if at == 0:
            return False
    if at < stop:
        low, at = number(at, stop, 0x10)
        store(job, ELECTION_LOW, low)
    return at == stop


@native
def entry(job: Any, operation: Any) -> Any:
    """Read a WriteRequest; return the number of its updates, or REFUSED."""
    at = load(job, DATA)
    stop = at + load(job, SIZE)
    clear(job + 8 * DEVICE, 8 * (ATOMICITY + 1 - DEVICE))
    if at < stop and load_byte(at) == 0x08:
        device, at = number(at, stop, 0x08)
        store(job, DEVICE, device)
        if at == 0:
            return REFUSED
    if at < stop and load_byte(at) == 0x1A:
        start, at = field(at, stop, 0x1A)
        if start == 0 or not election_of(start, at, job):
            return REFUSED
    count = 0
    while at < stop and load_byte(at) == 0x22:
        start, at = field(at, stop, 0x22)
        if start == 0:
            return REFUSED
        if operation != HEAD_OPERATION:
            record = load(job, RECORDS) + 8 * load(job, STRIDE) * count
            if count == load(job, CAPACITY) or not update_of(start, at, load(job, SCHEMA), record):
                return REFUSED
        count += 1
    if at < stop:
        atomicity, at = number(at, stop, 0x28)
        store(job, ATOMICITY, atomicity)
        if at != stop:
            return REFUSED
    return count
