"""The native runtime as such: how it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_START = """
import sys
from weir.emulator.runtime.engine import Engine
engine = Engine()
host = engine.add_host()
engine.set_timer(host, 5)
assert engine.run(10) == [(host, 0, 0, True)] and engine.now_ns == 5, engine.now_ns
print("numba" in sys.modules)
"""


def _start(cache: Path) -> str:
    environment = {**os.environ, "WEIR_CACHE": str(cache)}
    done = subprocess.run([sys.executable, "-c", _START], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.long
def test_the_second_start_needs_no_compiler(tmp_path: Path) -> None:
    assert _start(tmp_path) == "True"
    (code,) = tmp_path.iterdir()
    assert code.suffix == ".o"
    assert _start(tmp_path) == "False"
    assert list(tmp_path.iterdir()) == [code]


_DAYS = """
import signal
import numpy as np
from weir.tests.emulator.runtime.runtime_program import frame, switch
from weir.emulator.entries import CloneSession, Replica
s = switch()
s.replication.set_session(1, CloneSession((Replica(3),)))
def stop(signum, frame):
    raise TimeoutError
signal.signal(signal.SIGALRM, stop)
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    sent = np.frombuffer(frame(3, egress_clone=1, drop_in_egress=1, endless=1), np.uint8)
    s.process(sent[np.newaxis], repeat=1 << 40)
except TimeoutError:
    print("interrupted after", s.counters.egress_packets > 1000, s._engine.pool_packets < 1000)
"""


def test_a_run_of_days_can_be_interrupted() -> None:
    """Frames without end, each of which clones its clones until it may no more."""
    done = subprocess.run([sys.executable, "-c", _DAYS], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "interrupted after True True"


_MANY = """
from weir.emulator.runtime.engine import Engine
import numpy as np
engine = Engine()
frame = np.zeros(60, np.uint8)
port = engine.add_port(1, engine.add_host(), 0)
for number in range(3000):
    engine.set_timer(engine.add_host(), 1 + number % 7)
    engine.add_flow(port, frame, 0, 1000.0, 1 + number % 11, 12, 0.0, number)
    engine.add_trace(port, None, 1000)
hosts = [due.host for _ in range(7) for due in engine.run(100) if due.timer]
engine.run(100)
sent = engine.flows.data["sent_packets"][:3000]
samples = [len(engine.trace(number)[0]) for number in range(3000)]
print(sorted(hosts) == list(range(1, 3001)), sent.min(), sent.max(), min(samples), max(samples))
"""


def test_events_beyond_the_heap_s_first_capacity_grow_it() -> None:
    """The test runs in a process of its own: a write beyond the heap would end it."""
    done = subprocess.run([sys.executable, "-c", _MANY], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "1", "1", "1", "1"]
