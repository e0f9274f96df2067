"""Runtime files: entries that would lose a part of their contents are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from weir.tests.support.errors import raises
from weir.topologies import TopologyError
from weir.topologies.runtime_json import RuntimeFile


def test_a_default_action_with_a_match_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s1-runtime.json"
    match = {"hdr.ipv4.dstAddr": ["10.0.1.1", 32]}
    row = {"table": "MyIngress.ipv4_lpm", "default_action": True, "match": match, "action_name": "MyIngress.drop"}
    path.write_text(json.dumps({"table_entries": [row]}))
    with raises(TopologyError, place=str(path), value=match):
        RuntimeFile.read(path)


def test_an_empty_match_of_a_default_action_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "s1-runtime.json"
    row = {"table": "MyIngress.ipv4_lpm", "default_action": True, "match": {}, "action_name": "MyIngress.drop"}
    path.write_text(json.dumps({"table_entries": [row]}))
    assert RuntimeFile.read(path).rows[0].default


def test_a_key_that_is_there_twice_is_found_among_many(tmp_path: Path) -> None:
    """The time grows with the file; with its square it would be an hour."""
    path = tmp_path / "s1-runtime.json"
    match = ", ".join(f'"k{number}": 0' for number in [*range(500_000), 7])
    path.write_text(f'{{"table_entries": [{{"table": "t", "action_name": "a", "match": {{{match}}}}}]}}')
    with pytest.raises(TopologyError, match='"k7" is there twice'):
        RuntimeFile.read(path)
