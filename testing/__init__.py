"""Emulated fabrics for tests of one's own P4 programs: `Network`, and the fixtures that bring it to pytest.

`plugin` is loaded by pytest itself where Weir is installed, and gives every test `fabric`, `send` and `received`
(docs/pytest.md). `Network` is the same without pytest. `switch_under_test` is for PTF's tests (docs/ptf.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .network import Network
    from .ptf_switch import switch_under_test
    from .switch import SwitchUnderTest
else:
    from ..imports.extras import lazily

    __getattr__, __dir__ = lazily(
        __name__,
        {"network": ("Network",), "ptf_switch": ("switch_under_test",), "switch": ("SwitchUnderTest",)},
    )

__all__ = ["Network", "SwitchUnderTest", "switch_under_test"]
