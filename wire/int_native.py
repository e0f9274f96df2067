"""Finished INT-MD probes taken apart (native code, by Numba): one pass over a batch's bytes, whatever their layouts."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from .native_code import allocating, native

_IP: Final = 14
_UDP: Final = 34
_SHIM: Final = 42
_MD: Final = 46
_STACK: Final = 58
_MD_WORDS: Final = 3
_WORDS: Final = (1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1)
"""That each bit of the instruction bitmap asks for, the specification's bit 0 first."""


def _big_endian(kind: Any) -> Any:
    """An intrinsic `load(data, at)`: the integer of this kind that begins at a place of an array of bytes. One load: of
    bytes put together LLVM makes vectors, which take ten times as many instructions.
    """

    @intrinsic
    def load(typing_context: Any, data: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            place = builder.gep(array.data, [arguments[1]])
            pointer = builder.bitcast(place, context.get_value_type(kind).as_pointer())
            number = builder.load(pointer, align=1)
            number = number if kind.bitwidth == 8 else builder.bswap(number)
            return context.cast(builder, number, kind, types.int64)

        return types.int64(data, types.int64), generate

    return load


_load_8, _load_16, _load_32, _load_64 = map(_big_endian, (types.uint8, types.uint16, types.uint32, types.uint64))


@native
def byte_at(data: NDArray[np.uint8], at: int) -> np.int64:
    """Read 8 bits, all ones included. A place is never one from the array's end."""
    return np.int64(_load_8(data, at))


@native
def plain_at(data: NDArray[np.uint8], at: int) -> np.int64:
    """Read 16 bits, all ones included."""
    return np.int64(_load_16(data, at))


@native
def word_at(data: NDArray[np.uint8], at: int) -> np.int64:
    """Read 32 bits, all ones included."""
    return np.int64(_load_32(data, at))


@native
def long_at(data: NDArray[np.uint8], at: int) -> np.int64:
    """Read 64 bits, as a number with a sign: all ones are −1."""
    return np.int64(_load_64(data, at))


@native
def number_at(data: NDArray[np.uint8], start: int, width: int) -> np.int64:
    """Return a big-endian integer of 1…8 bytes; −1 where they are all ones."""
    if width == 4:
        word = word_at(data, start)
        return np.int64(-1) if word == 0xFFFF_FFFF else word
    if width == 8:
        return np.int64(long_at(data, start))
    if width == 2:
        short = plain_at(data, start)
        return np.int64(-1) if short == 0xFFFF else short
    value = np.int64(0)
    for i in range(start, start + width):
        value = value << 8 | byte_at(data, i)
    return np.int64(-1) if value == (np.int64(1) << 8 * width) - 1 else value


@native
def _sound(data: NDArray[np.uint8], start: int, end: int, int_port: int) -> bool:
    """Return True if a frame is IPv4/UDP to the INT port, with correct lengths and header checksum."""
    ip, udp = start + _IP, start + _UDP
    if end - start < _STACK or plain_at(data, start + 12) != 0x0800 or data[ip] != 0x45:
        return False
    total = 0
    for at in range(ip, udp, 2):
        total += plain_at(data, at)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    if total != 0xFFFF or plain_at(data, ip + 10) == 0xFFFF or plain_at(data, ip + 6) & 0x3FFF or data[ip + 9] != 17:
        return False
    if plain_at(data, ip + 2) != end - ip or plain_at(data, udp + 4) != end - udp:
        return False
    return bool(plain_at(data, udp + 2) == int_port)


@native
def stack_layout(data: NDArray[np.uint8], md: int, our_domain: int, offsets: NDArray[np.int64]) -> bool:
    """Write the offsets of the known items within one hop of an INT-MD stack.

    Args:
        data: Bytes of the frames, uint8.
        md: Place of the MD header in `data`.
        our_domain: Domain whose instructions are known.
        offsets: Receives an offset in bytes for each known item, int64; −1: the hop lacks the item.

    Returns:
        True if the header's hop ML fits its instructions.
    """
    words = np.int64(data[md + 2]) & 0x1F
    instructions, domain = plain_at(data, md + 4), plain_at(data, md + 6)
    domain_instructions = plain_at(data, md + 8) if domain == our_domain else 0
    asked = 0
    for bit in range(16):
        there = instructions >> (15 - bit) & 1
        if bit < 6:
            offsets[bit] = 4 * asked if there else -1
        if bit < 15:
            asked += there * _WORDS[bit]
    offsets[6] = 4 * asked if domain_instructions >> 15 else -1
    asked += instructions & 1
    for bit in range(16):
        asked += domain_instructions >> bit & 1
    asked += domain_instructions >> 15
    # a domain that is not ours may push items of its own behind the baseline ones
    return bool(asked <= words and (domain != our_domain or asked == words))


@native
def read_hop(data: NDArray[np.uint8], base: int, offsets: NDArray[np.int64], record: Any) -> None:
    """Read the words of one hop.

    Args:
        data: Bytes of the frames, uint8.
        base: Place of the hop's first word in `data`.
        offsets: Offsets of its items in bytes, as `stack_layout` writes them.
        record: Record of type HOP that receives the items; −1: the hop lacks the item.
    """
    record.node_id = number_at(data, base + offsets[0], 4) if offsets[0] >= 0 else -1
    record.ingress_port = number_at(data, base + offsets[1], 2) if offsets[1] >= 0 else -1
    record.egress_port = number_at(data, base + offsets[1] + 2, 2) if offsets[1] >= 0 else -1
    record.latency_us = number_at(data, base + offsets[2], 4) if offsets[2] >= 0 else -1
    record.queue_id = number_at(data, base + offsets[3], 1) if offsets[3] >= 0 else -1
    record.queue_packets = number_at(data, base + offsets[3] + 1, 3) if offsets[3] >= 0 else -1
    record.ingress_ns = number_at(data, base + offsets[4], 8) if offsets[4] >= 0 else -1
    record.egress_ns = number_at(data, base + offsets[5], 8) if offsets[5] >= 0 else -1
    record.bytes_sent = number_at(data, base + offsets[6], 8) if offsets[6] >= 0 else -1


@native
def decode_probes(
    data: NDArray[np.uint8],
    ends: NDArray[np.int64],
    int_port: int,
    our_domain: int,
    layout: NDArray[np.int64],
    probes: NDArray[np.void],
    hops: NDArray[np.void],
) -> tuple[int, int]:
    """Decode the probes among frames; other frames are skipped.

    Args:
        data: Bytes of the frames, one after the other, uint8.
        ends: End of each frame in `data`, int64 (frames,).
        int_port: UDP destination port of probes.
        our_domain: Domain whose instructions are known.
        layout: Room for the offsets of one stack, int64 (KEPT_ITEMS,).
        probes: Receives the probes; at least as many places as frames.
        hops: Receives their hops, those of each probe in the order of its path; room for all is required.

    Returns:
        Numbers of probes and of hops that were written.
    """
    taken = filled = 0
    start = 0
    for end in ends:
        first, start = start, end
        if not _sound(data, first, end, int_port):
            continue
        shim, md = first + _SHIM, first + _MD
        words = np.int64(data[md + 2]) & 0x1F
        stack_words = np.int64(data[shim + 1]) - _MD_WORDS
        # type MD, next protocol type "original UDP port", version 2
        if data[shim] & 0xFC != 0x14 or data[md] >> 4 != 2:
            continue
        if stack_words < 0 or first + _STACK + 4 * stack_words > end:
            continue
        if stack_words > 0 and (words == 0 or stack_words % words):
            continue
        if not stack_layout(data, md, our_domain, layout):
            continue

        probe = probes[taken]
        probe.source = np.uint32(plain_at(data, first + _IP + 12) << 16 | plain_at(data, first + _IP + 14))
        probe.source_port = plain_at(data, first + _UDP)
        probe.original_port = plain_at(data, shim + 2)
        probe.hop_limit_exceeded = data[md] & 0x04 != 0
        probe.mtu_exceeded = data[md] & 0x02 != 0
        probe.remaining_hops = data[md + 3]
        probe.first_hop = filled
        probe.hops = stack_words // words if words else 0
        probe.payload_at = first + _STACK + 4 * stack_words
        probe.payload_end = end
        taken += 1
        for hop in range(probe.hops - 1, -1, -1):  # the newest comes first on the wire
            base = first + _STACK + 4 * words * hop
            read_hop(data, base, layout, hops[filled])
            filled += 1
    return taken, filled


@allocating
def decoded(  # type: ignore[no-untyped-def]
    data, ends, int_port, our_domain, kept_items, probes, hops
):
    """Call `decode_probes` from Python."""
    return decode_probes(data, ends, int_port, our_domain, np.empty(kept_items, np.int64), probes, hops)
