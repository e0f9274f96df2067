"""Run file: its schema as pydantic models, one module per section; `run_config` joins them.

Names are loaded at first use: commands that read one section alone do not need what a whole run needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .heartbeats import HeartbeatConfig
    from .run_config import RunConfig
else:
    from ...imports.extras import lazily

    __getattr__, __dir__ = lazily(__name__, {"heartbeats": ("HeartbeatConfig",), "run_config": ("RunConfig",)})

__all__ = ["HeartbeatConfig", "RunConfig"]
