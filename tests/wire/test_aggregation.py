"""The aggregation message: layout, checksums and serial numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scapy.layers.inet import UDP
from scapy.utils import checksum as scapy_checksum

from weir.wire import aggregation
from weir.wire.aggregation import (
    CHUNKS,
    GENERATIONS,
    HEADER,
    HEADER_BYTES,
    LANES,
    MESSAGE,
    MESSAGE_BYTES,
    VERSION,
    MessageType,
)
from weir.wire.fields import REDUCED
from weir.wire.scapy_layers import Aggregation

headers = hnp.arrays(np.uint8, st.tuples(st.integers(1, 8), st.just(HEADER_BYTES)))
int32_lanes = hnp.arrays(np.int32, (3, LANES), elements=st.integers(-(2**31), 2**31 - 1))


@given(data=headers)
def test_checksum_is_scapys(data: NDArray[np.uint8]) -> None:
    data[:, 0] |= VERSION << 4  # a header that is all zeros is no header
    records = data.view(HEADER)[:, 0]
    zeroed = records.copy()
    zeroed["checksum"] = 0
    assert aggregation.checksum(records).tolist() == [scapy_checksum(record.tobytes()) for record in zeroed]


@given(data=headers, position=st.integers(0, HEADER_BYTES - 1), flip=st.integers(1, 255))
def test_checksum_detects_one_damaged_byte(data: NDArray[np.uint8], position: int, flip: int) -> None:
    records = data.copy().view(HEADER)[:, 0]
    aggregation.set_checksum(records)
    assert aggregation.has_valid_checksum(records).all()
    records.view(np.uint8).reshape(-1, HEADER_BYTES)[:, position] ^= flip
    assert not aggregation.has_valid_checksum(records).any()


def test_checksum_is_written_through_a_field_of_messages() -> None:
    messages = np.zeros(5, MESSAGE)
    messages["header"]["job"] = np.arange(5)
    aggregation.set_checksum(messages["header"])
    assert aggregation.has_valid_checksum(messages["header"]).all()
    assert len(set(messages["header"]["checksum"].tolist())) == 5


@given(
    job=st.integers(1, 0xFFFF),
    generation=st.integers(1, 255),
    chunk=st.integers(0, CHUNKS - 1),
    contributors=st.integers(0, 2**32 - 1),
    weight=st.integers(0, 2**32 - 1),
    lanes=hnp.arrays(np.int32, LANES, elements=st.integers(-(2**31), 2**31 - 1)),
)
def test_scapy_reads_what_numpy_writes(
    job: int, generation: int, chunk: int, contributors: int, weight: int, lanes: NDArray[np.int32]
) -> None:
    message = np.zeros(1, MESSAGE)
    header = message["header"]
    for field in REDUCED:  # scapy's defaults
        header[field.name] = field.neutral
    header["version_type"] = aggregation.version_type(MessageType.RESULT)
    header["flags"] = 3
    header["job"] = job
    header["tag"] = aggregation.make_tag(generation, chunk)
    header["contributors"] = contributors
    header["slot"] = chunk % 64
    header["window"] = 17
    header["exponent"] = 130
    header["weight"] = weight
    message["lanes"] = lanes
    header["check"] = aggregation.linear_check(message["lanes"], header["weight"])
    aggregation.set_checksum(header)
    built = Aggregation(
        type=MessageType.RESULT,
        flags="congestion+retransmission",
        job=job,
        generation=generation,
        chunk=chunk,
        contributors=contributors,
        slot=chunk % 64,
        window=17,
        exponent=130,
        weight=weight,
        check=int(header["check"][0]),
        lanes=lanes.tolist(),
    )
    assert bytes(built) == message.tobytes()
    dissected = UDP(bytes(UDP(sport=1, dport=aggregation.AGGREGATION_PORT) / built))[Aggregation]
    assert (dissected.chunk, dissected.lanes) == (chunk, lanes.tolist())


@given(lanes=int32_lanes, weights=hnp.arrays(np.uint32, 3))
def test_linear_check_by_definition(lanes: NDArray[np.int32], weights: NDArray[np.uint32]) -> None:
    def by_definition(values: list[int], weight: int) -> int:
        terms = [*values, weight]
        return sum(0x9E3779B1 * (2 * i + 1) * term for i, term in enumerate(terms)) % 2**32

    expected = [by_definition(row.tolist(), int(weight)) for row, weight in zip(lanes, weights, strict=True)]
    assert aggregation.linear_check(lanes, weights).tolist() == expected
    assert aggregation.linear_check(lanes.astype(">i4"), weights.astype(">u4")).tolist() == expected


@given(lanes=int32_lanes, weights=hnp.arrays(np.uint32, 3))
def test_check_of_a_wrapped_sum_is_the_sum_of_the_checks(lanes: NDArray[np.int32], weights: NDArray[np.uint32]) -> None:
    checks = aggregation.linear_check(lanes, weights)
    total = lanes.sum(axis=0, dtype=np.int32)[None]
    weight = weights.sum(dtype=np.uint32)[None]
    assert aggregation.linear_check(total, weight)[0] == checks.sum(dtype=np.uint32)


@given(lane=st.integers(0, LANES - 1), change=st.integers(1, 2**32 - 1))
def test_check_detects_any_change_of_one_lane(lane: int, change: int) -> None:
    lanes = np.zeros((2, LANES), np.uint32)
    lanes[1, lane] = change
    before, after = aggregation.linear_check(lanes, np.zeros(2, np.uint32))
    assert before != after


@pytest.mark.parametrize("kind", list(MessageType))
@pytest.mark.parametrize("size", [0, *(size + off for size in (HEADER_BYTES, MESSAGE_BYTES) for off in (-1, 0, 1))])
def test_well_formed_says_type_and_size_agree(kind: MessageType, size: int) -> None:
    lanes = kind in (MessageType.CONTRIBUTION, MessageType.RESULT, MessageType.FETCHED)
    record = np.zeros(3, HEADER)
    record["version_type"] = [0x10 | kind, 0x20 | kind, 0x1F]
    expected = size == (MESSAGE_BYTES if lanes else HEADER_BYTES)
    assert aggregation.is_well_formed(record, size).tolist() == [expected, False, False]


@given(generation=st.integers(1, 255), number=st.integers(0, 2**40))
def test_tag_round_trip(generation: int, number: int) -> None:
    tag = aggregation.make_tag(generation, number)
    assert 0 <= tag < 2**32
    assert aggregation.split_tag(tag) == (generation, number % CHUNKS)
    column = np.array([tag], ">u4").astype(np.int64)
    assert [part.tolist() for part in aggregation.split_tag(column)] == [[generation], [number % CHUNKS]]


@given(start=st.integers(0, CHUNKS - 1), step=st.integers(-(CHUNKS // 2), CHUNKS // 2 - 1))
def test_chunk_distance_across_the_wrap(start: int, step: int) -> None:
    ahead = (start + step) % CHUNKS
    assert aggregation.chunk_distance(ahead, start) == step
    assert aggregation.chunk_distance(np.array([ahead]), np.array([start])).tolist() == [step]


@given(start=st.integers(0, 255), step=st.integers(-(GENERATIONS // 2), GENERATIONS // 2 - 1))
def test_generation_distance_across_the_wrap(start: int, step: int) -> None:
    assert aggregation.generation_distance((start + step) % GENERATIONS, start) == step


@given(reference=st.integers(0, 2**40), step=st.integers(-1000, 1000))
def test_round_near_finds_the_round(reference: int, step: int) -> None:
    number = reference + step
    assert aggregation.round_near(number % CHUNKS, reference) == number


def test_generations_skip_zero_and_stay_newer() -> None:
    generation, seen = aggregation.FIRST_GENERATION, []
    for _ in range(255):
        seen.append(generation)
        following = aggregation.next_generation(generation)
        assert aggregation.generation_distance(following, generation) > 0
        generation = following
    assert seen == list(range(1, 256))
    assert generation == 1
