"""Two switches with a P4 program of one's own, between two hosts, by the fixtures that come with Weir: `pytest`."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path

import pytest

from weir.emulator.entries import InvalidEntry
from weir.testing.plugin import MakeFabric, Received, RunStf, Send

HERE = Path(__file__).parent
INSIDE_TO_OUTSIDE = ("10.0.0.1", "198.51.100.7")


def packet(source: str, destination: str) -> bytes:
    """An IPv4 packet without options, in Ethernet. scapy's packets will do as well."""
    ethernet = bytes.fromhex("020000000002 020000000001 0800")
    return ethernet + bytes(12) + IPv4Address(source).packed + IPv4Address(destination).packed + b"payload"


def test_packets_that_both_switches_admit_pass(fabric: MakeFabric, send: Send, received: Received) -> None:
    network = fabric("two_firewalls.yaml", "firewall.json")
    for name in ("s1", "s2"):
        network.switch(name).add("allowed", {"hdr.ipv4.src_addr": "203.0.113.0/24"}, "admit")
    network.switch("s1").remove("allowed", {"hdr.ipv4.src_addr": "203.0.113.0/24"})

    send("h1", packet(*INSIDE_TO_OUTSIDE))
    assert received("h2") == [packet(*INSIDE_TO_OUTSIDE)]

    send("h2", packet("203.0.113.9", "10.0.0.1"))
    assert received("h1") == []  # s2 lets it in, s1 does not any more
    assert network.switch("s2").hits("allowed", {"src_addr": "203.0.113.0/24"}).packets == 1
    assert network.switch("s1").counter("refused").packets == 1

    network.switch("s1").load_entries(HERE / "s1-runtime.json")  # as p4lang/tutorials write them
    send("h2", packet("203.0.113.9", "10.0.0.1"))
    network.verify_packet(packet("203.0.113.9", "10.0.0.1"), "h1")  # as PTF's tests have it
    network.verify_no_other_packets()


def test_time_is_the_links_alone(fabric: MakeFabric, send: Send) -> None:
    network = fabric("two_firewalls.yaml", "firewall.json")
    frame = packet(*INSIDE_TO_OUTSIDE)
    send("h1", frame)
    [(arrived_ns, _)] = network.arrivals("h2")
    assert arrived_ns == 3 * (2_000 + 8 * len(frame))  # three links of 2 us and 1 Gbit/s, from the start of time


def test_a_link_that_is_down_carries_nothing(fabric: MakeFabric, send: Send, received: Received) -> None:
    network = fabric("two_firewalls.yaml", "firewall.json")
    network.set_link("s1-p2", up=False)
    send("h1", packet(*INSIDE_TO_OUTSIDE))
    assert received("h2") == []


def test_a_name_that_is_not_there_is_said(fabric: MakeFabric) -> None:
    switch = fabric(program="firewall.json", ports=2).switch()
    with pytest.raises(InvalidEntry, match=r'no action of FirewallIngress.allowed: admitt; .*did you mean "admit"'):
        switch.add("allowed", {"src_addr": "10.0.0.0/8"}, "admitt")


def test_p4cs_packet_tests(stf: RunStf) -> None:
    stf(
        "firewall.json",
        """
        add allowed hdr.ipv4.src_addr:0xcb007100/24 admit()
        packet 2 020000000002 020000000001 0800 000000000000000000000000 cb007109 0a000001
        expect 1 020000000002 020000000001 0800 000000000000000000000000 cb007109 0a000001$
        packet 2 020000000002 020000000001 0800 000000000000000000000000 c6336407 0a000001
        no_packet
        """,
    )
