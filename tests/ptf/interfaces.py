"""Interfaces for PTF and a switch, in the network namespace that the caller is in."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path


def make_pairs(ports: Sequence[int]) -> dict[int, tuple[str, str]]:
    """Make pairs of interfaces: for each port, the switch's and PTF's.

    Port i has veth<2i-2> and veth<2i-1>, which are up and send nothing by themselves. Raises CalledProcessError if one
    exists already.
    """
    ends = {port: (f"veth{2 * port - 2}", f"veth{2 * port - 1}") for port in ports}
    links = [
        line
        for ours, theirs in ends.values()
        for line in (f"link add {ours} type veth peer name {theirs}", f"link set {ours} up", f"link set {theirs} up")
    ]
    Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
    subprocess.run(["ip", "-batch", "-"], input="\n".join(("link set lo up", *links)), text=True, check=True)
    return ends
