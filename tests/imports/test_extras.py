"""Hints on missing packages: commands that pip can take."""

from __future__ import annotations

import json
from importlib import metadata
from typing import Any

import pytest

from weir.imports.extras import MissingExtra, explained, install_command


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (
            {"url": "file:///home/me/a%20clone", "dir_info": {"editable": True}},
            "pip install -e '/home/me/a clone[runs]'",
        ),
        ({"url": "file:///home/me/weir", "dir_info": {}}, "pip install '/home/me/weir[runs]'"),
        (
            {"url": "https://example.org/weir.git", "vcs_info": {"vcs": "git", "commit_id": "1"}},
            "pip install 'weir-fabric[runs] @ git+https://example.org/weir.git'",
        ),
        ({"url": "file:///tmp/weir.whl", "archive_info": {}}, "pip install 'weir-fabric[runs] @ file:///tmp/weir.whl'"),
        (None, "pip install '.[runs]' in the clone"),
    ],
)
def test_the_command_installs_from_where_this_installation_came(
    origin: dict[str, Any] | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Distribution:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return None if origin is None else json.dumps(origin)

    monkeypatch.setattr(metadata, "distribution", lambda _: Distribution())
    assert install_command("runs") == command
    told = explained(ModuleNotFoundError(name="dask"), "weir run", "runs")
    assert isinstance(told, MissingExtra)
    assert str(told).endswith(command)
