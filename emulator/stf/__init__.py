"""STF: packet tests as p4lang/p4c writes them, played on the emulated switch.

A test is a text file of entries to add, packets to send and packets to expect (`statements`, `reader`). `player` plays
it on a switch in memory; `suite` does so for a folder of tests with their programs. `docs/stf.md` is the user's page.
"""

from .player import PlayedScript, play
from .reader import read_test
from .statements import StfError, StfTest
from .suite import SuiteResult, Verdict, load_program, run_test, tests_in

__all__ = [
    "PlayedScript",
    "StfError",
    "StfTest",
    "SuiteResult",
    "Verdict",
    "load_program",
    "play",
    "read_test",
    "run_test",
    "tests_in",
]
