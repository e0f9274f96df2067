"""Explicit windows beside window laws that react to marks, in-band telemetry, delay and loss."""

from __future__ import annotations

from typing import Final

from ..repetition.measures import LONGEST_QUEUE, RESENDS, SUMMED, congestion
from ..repetition.paper import Contender, Paper

DESCRIPTION: Final = Paper(
    name="congestion-control",
    title="Explicit congestion control",
    published="the project's own scheme (congestion.md), compared with DCTCP (SIGCOMM 2010) and HPCC (SIGCOMM 2019)",
    headline="every queue stays within a bound that is known beforehand, and links stay busy",
    system=Contender("explicit", "explicit windows"),
    baselines=(
        Contender("dctcp", "DCTCP, marks by depth", strong=True),
        Contender("hpcc", "HPCC", strong=True),
        Contender("delay", "delay target"),
    ),
    figures=(LONGEST_QUEUE, SUMMED, RESENDS),
    regime="compiled P4 in the packet fabric, virtual time; an incast of 16 workers, jobs that come and go on one link "
    "of 1 Gbit/s, and flows that yield beside a job",
    run_files=("queues/incast-16.yaml", "queues/joins.yaml", "queues/yielding.yaml"),
    seeds=1,
    findings="Only explicit windows have a bound before the run. HPCC often has the shorter queue and then sums less; "
    "explicit windows trade queue, up to their bound, for throughput. Each run file is one deterministic draw, so "
    "intervals are absent; [congestion.md](congestion.md) has more runs and all schemes.",
    measure=congestion,
)
