"""`python -m weir.p4src.build`."""

from __future__ import annotations

import sys

from ..compile import main

sys.exit(main())
