"""Guard the arrays of every Python process: PYTHONPATH=tests/support/guarded_processes WEIR_GUARD=behind COMMAND.

The other side is WEIR_GUARD=before. With WEIR_GUARDED=FOLDER each process leaves its command in a file of its number
there, so that a test can assert which processes were guarded.
"""

import faulthandler
import os
import sys
from pathlib import Path

if (side := os.environ.get("WEIR_GUARD")) is not None:
    from weir.tests.support.guarded_memory import install

    install(before=side == "before")
    faulthandler.enable()
    if folder := os.environ.get("WEIR_GUARDED"):
        Path(folder, str(os.getpid())).write_text(" ".join(sys.orig_argv))
