"""The machine that figures come from, in one line."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class MachineDescription:
    """Description of the machine, for the interpretation of a figure."""

    processor: str
    cores: int
    memory_gb: float
    kernel: str
    python: str
    load: float
    """Average number of processes that wanted a core in the minute before the benchmarks began."""

    def __str__(self) -> str:
        return (
            f"{self.processor}, {self.cores} cores, {self.memory_gb:.0f} GB, Linux {self.kernel}, "
            f"Python {self.python}, load {self.load:.1f} before the start"
        )

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def this_machine() -> MachineDescription:
    """Read from /proc and the interpreter."""
    return MachineDescription(
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_gb=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9,
        kernel=platform.release(),
        python=platform.python_version(),
        load=os.getloadavg()[0],
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
