"""`python -m p4src.build`."""

from __future__ import annotations

import sys

from p4src.compile import main

sys.exit(main())
