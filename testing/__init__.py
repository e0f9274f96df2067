"""Emulated fabrics for tests of one's own P4 programs: `Network`, and the fixtures that bring it to pytest.

`plugin` is loaded by pytest itself where Weir is installed, and gives every test `fabric`, `send` and `received`
(docs/pytest.md). `Network` is the same without pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .network import Network
    from .switch import SwitchUnderTest
else:
    from ..extras import lazily

    __getattr__, __dir__ = lazily(__name__, {"network": ("Network",), "switch": ("SwitchUnderTest",)})

__all__ = ["Network", "SwitchUnderTest"]
