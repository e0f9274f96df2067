"""Programs in a network namespace of their own: neither the machine's interfaces nor another fabric's are touched."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Final

from weir.tests.paths import ROOT

IN_ITS_OWN_NETWORK: Final = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable]
"""Python, with these words before its own; needs root and the command ip."""


def play(module: str, *words: str, timeout_s: float = 200) -> Any:
    """Run a module that ends well; the JSON value on the last line that it prints."""
    done = subprocess.run(
        [*IN_ITS_OWN_NETWORK, "-m", module, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
