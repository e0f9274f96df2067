"""INT-MD: data pushed by a hop, reasons to push none, and the end of a probe."""

import struct

from weir.controller.p4runtime.session import SwitchSession
from weir.tests.ptf.rig import PATIENCE_S, FabricTest
from weir.wire.frames import FRAME_HEADER_BYTES
from weir.wire.int_md import INT_PORT, PROBE_PORT, Instruction, probe_frame

DISCARD, EXCEEDED = 0x08, 0x04
SHIM_LENGTH, FLAGS, REMAINING, STACK = 1, 4, 7, 16
"""Offsets behind the UDP header."""


class IntTest(FabricTest):
    def body(self, remaining: int = 8, discard: bool = False) -> bytearray:
        """UDP payload to INT's port: a header that requests the node's id and its ports, and eight bytes."""
        asked = Instruction.NODE_ID | Instruction.PORTS
        addresses = {"source": 0, "destination": 0, "source_mac": 0, "destination_mac": 0}
        frame = probe_frame(
            **addresses, instructions=asked, domain_instructions=0, remaining_hops=remaining, payload=b"INT-data"
        )
        body = bytearray(frame[FRAME_HEADER_BYTES:])
        body[FLAGS] = body[FLAGS] & ~DISCARD | DISCARD * discard
        return body

    def pushed(self, body: bytearray) -> bytearray:
        """The same behind the switch, on its way from h1 to h2."""
        item = struct.pack("!IHH", 1, self.ports["h1"], self.ports["h2"])
        grown = body[:STACK] + item + body[STACK:]
        grown[SHIM_LENGTH] += len(item) // 4
        grown[REMAINING] -= 1
        return grown

    def carrying(self, body: bytearray, *, left: bool) -> bytes:
        """The frame from h1 to h2, as it comes in or as it has left."""
        return self.frame(
            bytes(body), "h1", "h2", left=left, ttl=64 - left, source_port=PROBE_PORT, destination_port=INT_PORT
        )


class AHopPushesItsItems(IntTest):
    def runTest(self) -> None:
        self.hold(self.state())
        body = self.body()
        self.send("h1", self.carrying(body, left=False))
        self.expect(h2=self.carrying(self.pushed(body), left=True))


class BeyondTheHopLimitNothingIsPushed(IntTest):
    def runTest(self) -> None:
        self.hold(self.state())
        body = self.body(remaining=0)
        self.send("h1", self.carrying(body, left=False))
        body[FLAGS] |= EXCEEDED
        self.expect(h2=self.carrying(body, left=True))


class AFinishedProbeGoesToTheController(IntTest):
    """The finished probe has this hop's items, and does not reach the host."""

    def runTest(self) -> None:
        body = self.body(discard=True)

        async def probe(session: SwitchSession) -> None:
            self.send("h1", self.carrying(body, left=False))
            await session.drain(1, PATIENCE_S)
            [packet] = session.pop_packet_ins()
            assert packet.frame == self.carrying(self.pushed(body), left=True), packet.frame.hex()
            assert packet.ingress_port == self.ports["h1"]

        self.hold(self.state(), probe)
        self.expect_nothing()
