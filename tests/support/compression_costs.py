"""Costs of published clusters, for plans of compression."""

from __future__ import annotations

from weir.hosts.compression.selective import CommunicationCosts, Line


def hipress_costs(nodes: int) -> CommunicationCosts:
    """Costs that HiPress ships, of its cluster of 4, 8 or 16 nodes, for codes of a sixteenth."""
    gather, broadcast = {
        4: (Line(2.7156e-6, 0.41930, 0.15573), Line(2.7157e-6, 0.22156, 0.14820)),
        8: (Line(6.1167e-6, 0.80768, 0.28778), Line(6.1172e-6, 0.27285, 0.29666)),
        16: (Line(1.2937e-5, 1.4406, 0.59503), Line(1.2915e-5, 0.45538, 0.58353)),
    }[nodes]
    return CommunicationCosts(
        encode=Line(1.4133e-8, 5.8938e-2, 0.05408),
        decode=Line(6.2041e-9, 1.3956e-1, 0.07287),
        merge=Line(0.0, 0.0),
        ratio=1 / 16,
        gather=gather,
        broadcast=broadcast,
        send=Line(8.5005e-7, 0.20337, 0.09766),
    )
