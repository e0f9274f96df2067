"""Routing between hosts, and why a packet is dropped."""

from weir.tests.ptf.rig import FabricTest


class PacketsAreRouted(FabricTest):
    """They leave with the addresses of the next hop, and one hop less to live."""

    def runTest(self) -> None:
        self.hold(self.state())
        for source, destination in (("h1", "h2"), ("h4", "h3")):
            self.send(source, self.frame(b"payload", source, destination, destination_port=9))
            left = self.frame(b"payload", source, destination, left=True, destination_port=9, ttl=63)
            self.expect(**{destination: left})


class DropsAreCountedByReason(FabricTest):
    def runTest(self) -> None:
        self.hold(self.state())
        sound = self.frame(bytes(40), "h1", "h2", destination_port=9)
        wrong = {
            "ttl_expired": self.frame(b"", "h1", "h2", destination_port=9, ttl=1),
            "no_route": self.frame(b"", "h1", 0xC6336407, destination_port=9),
            "foreign_source": self.frame(b"", "h3", "h2", destination_port=9),
            "not_ipv4": sound[:12] + bytes.fromhex("0806") + sound[14:],
            "bad_checksum": sound[:24] + bytes([sound[24] ^ 1]) + sound[25:],
            "no_service": self.frame(b"", "h1", "s1", destination_port=9),
        }
        before = self.drops()
        for frame in wrong.values():
            self.send("h1", frame)
        self.expect_nothing()
        counted = {reason: count - before[reason] for reason, count in self.drops().items()}
        assert {reason: count for reason, count in counted.items() if count} == dict.fromkeys(wrong, 1), counted
