"""PTF tests of a P4 program of one's own; docs/ptf.md has the command that runs them.

The program is the one of examples/p4_program: port 1 is inside, port 2 outside.
"""

import ptf
import ptf.testutils as tu
from ptf.base_tests import BaseTest

from weir.testing import switch_under_test

INSIDE, OUTSIDE, LISTED = 1, 2, {"hdr.ipv4.src_addr": "203.0.113.0/24"}


class FirewallTest(BaseTest):
    """Lets 203.0.113.0/24 in."""

    def setUp(self) -> None:
        super().setUp()
        self.dataplane = ptf.dataplane_instance
        self.dataplane.flush()
        self.switch = switch_under_test()
        self.switch.add("allowed", LISTED, "admit")

    def tearDown(self) -> None:
        self.switch.remove("allowed", LISTED)
        super().tearDown()


class WhoeverIsInsideReachesEverybody(FirewallTest):
    def runTest(self) -> None:
        packet = tu.simple_tcp_packet(ip_src="10.0.0.1", ip_dst="198.51.100.7")
        tu.send_packet(self, INSIDE, packet)
        tu.verify_packets(self, packet, [OUTSIDE])


class OnlyListedSourcesComeIn(FirewallTest):
    def runTest(self) -> None:
        listed = tu.simple_udp_packet(ip_src="203.0.113.9", ip_dst="10.0.0.1")
        refused = self.switch.counter("refused").packets
        tu.send_packet(self, OUTSIDE, tu.simple_udp_packet(ip_src="198.51.100.7", ip_dst="10.0.0.1"))
        tu.send_packet(self, OUTSIDE, listed)
        tu.verify_packets(self, listed, [INSIDE])
        assert self.switch.counter("refused").packets == refused + 1
        assert self.switch.hits("allowed", LISTED).packets == 1
