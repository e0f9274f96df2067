"""Packet-in and packet-out: header codec, who may send, who receives, and the counts for a virtual-time driver."""

from __future__ import annotations

import pytest
from finsy.proto import p4i, p4r
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.emulator.p4runtime import P4RuntimeServer
from weir.emulator.p4runtime.entities.packet_io import PacketHeader
from weir.emulator.p4runtime.refusal import Refusal
from weir.tests.emulator.p4runtime.p4runtime_rig import (
    Client,
    RecordingDatapath,
    Stream,
    grpc_code,
    load_config,
    wait_until,
)


def header(*widths: int) -> PacketHeader:
    info = p4i.ControllerPacketMetadata()
    info.preamble.name = "packet_in"
    for number, width in enumerate(widths, 1):
        info.metadata.add(id=number * 3, name=f"f{number}", bitwidth=width)
    return PacketHeader(info)


def metadata(*values: tuple[int, bytes]) -> list[p4r.PacketMetadata]:
    return [p4r.PacketMetadata(metadata_id=number, value=value) for number, value in values]


def packet_out(payload: bytes, *values: tuple[int, bytes]) -> p4r.StreamMessageRequest:
    return p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=payload, metadata=metadata(*values)))


GOOD = ((1, b"\x01\x03"), (2, b"\x05"), (3, b"\x00"))
"""Metadata of `packet_out` in `every_entity.p4`: egress port 0x103, queue 5, padding."""
GOOD_HEADER = bytes.fromhex("81d0")


@settings(deadline=None)
@given(st.data())
def test_headers_of_any_widths_survive(data: st.DataObject) -> None:
    widths = data.draw(st.lists(st.integers(1, 130), min_size=1, max_size=8))
    values = [data.draw(st.integers(0, (1 << width) - 1)) for width in widths]
    payload = data.draw(st.binary(max_size=40))
    codec = header(*widths)
    sent = metadata(*((i * 3, value.to_bytes(20, "big")) for i, value in enumerate(values, 1)))
    frame = codec.compose(reversed(sent)) + payload
    bits = "".join(f"{value:0{width}b}" for value, width in zip(values, widths, strict=True))
    bits = bits.ljust(-(-len(bits) // 8) * 8, "0")
    assert frame == int(bits, 2).to_bytes(len(bits) // 8, "big") + payload
    found, rest = codec.parse(frame)
    assert rest == payload
    assert [int.from_bytes(item.value, "big") for item in found] == values
    assert [item.metadata_id for item in found] == [i * 3 for i in range(1, len(widths) + 1)]
    assert codec.compose(found) + rest == frame


@pytest.mark.parametrize(
    "values",
    [
        (),
        ((3, b"\x01"),),
        ((3, b"\x01"), (6, b"\x02"), (6, b"\x02")),
        ((3, b"\x01"), (6, b"\x02"), (9, b"\x02")),
        ((3, b"\x01"), (6, b"\x02\x00")),
        ((3, b"\x01"), (6, b"")),
    ],
)
def test_metadata_that_does_not_match_is_refused(values: tuple[tuple[int, bytes], ...]) -> None:
    codec = header(7, 9)
    assert codec.compose(metadata((3, b"\x01"), (6, b"\x01\xff"))) == b"\x03\xff"
    with pytest.raises(Refusal, match="packet_in"):
        codec.compose(metadata(*values))


def test_a_frame_shorter_than_its_header_is_refused() -> None:
    with pytest.raises(Refusal, match="shorter"):
        header(9, 7).parse(b"\x01")


def test_packet_outs_reach_the_switch_in_order(
    loaded: Client, stream: Stream, server: P4RuntimeServer, datapath: RecordingDatapath
) -> None:
    for number in range(100):
        stream.send(packet_out(bytes([number]) * 20, *GOOD))
    wait_until(lambda: server.packet_outs(1) == 100)
    assert datapath.sent == [GOOD_HEADER + bytes([number]) * 20 for number in range(100)]


def test_bad_packet_outs_are_stream_errors_and_are_counted(
    loaded: Client, stream: Stream, server: P4RuntimeServer, datapath: RecordingDatapath
) -> None:
    bad = packet_out(b"payload", (1, b"\x02\x00"), *GOOD[1:])
    stream.send(bad)
    answer = stream.receive().error
    assert grpc_code(answer.canonical_code) == "INVALID_ARGUMENT"
    assert answer.message == "packet_out.egress_port: value 0x0200 does not fit bit<9>"
    assert answer.packet_out.packet_out == bad.packet
    backup = loaded.stream()
    backup.arbitrate(0)
    assert backup.notice() == "ALREADY_EXISTS/1"
    backup.send(packet_out(b"payload", *GOOD))
    assert grpc_code(backup.receive().error.canonical_code) == "PERMISSION_DENIED"
    assert server.packet_outs(1) == 2
    assert datapath.sent == []


def test_stream_messages_that_this_switch_does_not_serve(loaded: Client, stream: Stream) -> None:
    stream.send(p4r.StreamMessageRequest(digest_ack=p4r.DigestListAck(digest_id=3)))
    answer = stream.receive().error
    assert (grpc_code(answer.canonical_code), answer.digest_list_ack.digest_list_ack.digest_id) == (
        "INVALID_ARGUMENT",
        3,
    )
    other = p4r.StreamMessageRequest()
    other.other.type_url = "example.com/x"
    stream.send(other)
    assert stream.receive().error.other.other.type_url == "example.com/x"
    stream.send(p4r.StreamMessageRequest())
    assert grpc_code(stream.receive().error.canonical_code) == "INVALID_ARGUMENT"
    stream.arbitrate(1)
    assert stream.notice() == "OK/1"


def test_packets_before_arbitration_and_before_a_pipeline(client: Client, server: P4RuntimeServer) -> None:
    nobody = client.stream()
    nobody.send(packet_out(b"x"))
    assert grpc_code(nobody.receive().error.canonical_code) == "PERMISSION_DENIED"
    primary = client.primary()
    primary.send(packet_out(b"x"))
    assert grpc_code(primary.receive().error.canonical_code) == "FAILED_PRECONDITION"
    assert server.packet_outs(1) == 1


def test_packet_ins_go_to_the_primary_alone(
    loaded: Client, stream: Stream, server: P4RuntimeServer, datapath: RecordingDatapath
) -> None:
    backup = loaded.stream()
    backup.arbitrate(0)
    assert backup.notice() == "ALREADY_EXISTS/1"
    assert datapath.on_packet_in is not None
    fields = (0x1FF << 71 | 1 << 70 | 5).to_bytes(10, "big")
    datapath.on_packet_in(fields + b"frame")
    datapath.on_packet_in(fields)
    datapath.on_packet_in(fields[:-1])
    first, second = stream.receive().packet, stream.receive().packet
    assert first == p4r.PacketIn(payload=b"frame", metadata=metadata((1, b"\x01\xff"), (2, b"\x01"), (3, b"\x05")))
    assert second == p4r.PacketIn(metadata=first.metadata)
    assert server.packet_ins(1) == 2
    backup.arbitrate(2)
    assert backup.notice() == "OK/2"
    datapath.on_packet_in(fields)
    assert backup.receive().packet == second
    assert stream.notice() == "ALREADY_EXISTS/2"
    assert server.packet_ins(1) == 3


def test_packet_ins_without_a_primary_are_dropped(
    client: Client, server: P4RuntimeServer, datapath: RecordingDatapath
) -> None:
    assert datapath.on_packet_in is not None
    datapath.on_packet_in(b"\x00" * 20)
    stream = client.primary()
    datapath.on_packet_in(b"\x00" * 20)
    assert client.set_config(load_config()) == "OK"
    datapath.on_packet_in(b"\x00" * 20)
    assert stream.receive().packet.payload == b"\x00" * 10
    stream.close()
    assert stream.ended() == "OK"
    datapath.on_packet_in(b"\x00" * 20)
    assert server.packet_ins(1) == 1


def test_a_program_without_controller_headers_has_bare_packets(
    client: Client, stream: Stream, server: P4RuntimeServer, datapath: RecordingDatapath
) -> None:
    config = load_config()
    del config.p4info.controller_packet_metadata[:]
    assert client.set_config(config) == "OK"
    stream.send(packet_out(b"as it is"))
    stream.send(packet_out(b"x", (1, b"\x01")))
    assert grpc_code(stream.receive().error.canonical_code) == "INVALID_ARGUMENT"
    assert datapath.sent == [b"as it is"]
    assert datapath.on_packet_in is not None
    datapath.on_packet_in(b"as it comes")
    assert stream.receive().packet == p4r.PacketIn(payload=b"as it comes")
