"""The package as a whole."""

from __future__ import annotations

import subprocess
import sys


def test_the_codecs_do_not_import_scapy() -> None:
    program = (
        "import sys, weir.wire.aggregation, weir.wire.control, weir.wire.frames, weir.wire.int_md; "
        "sys.exit('scapy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
