"""The commands of `weir codec`."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from weir.cli.app import app
from weir.hosts.compression.codecs import CODECS
from weir.tests.paths import ROOT
from weir.tests.support.seeds import few_of


def printed(*words: str) -> object:
    done = CliRunner().invoke(app, ["codec", *words, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_codecs_are_listed() -> None:
    rows = printed("list")
    assert isinstance(rows, list)
    assert {row["name"]: row["way"] for row in rows}.keys() == set(CODECS)
    assert CliRunner().invoke(app, ["codec", "list"]).exit_code == 0


@pytest.mark.parametrize(("name", "homomorphic"), few_of([("tbq", True), ("onebit", False)], 1))
def test_a_file_is_checked(name: str, homomorphic: bool) -> None:
    facts = printed("check", str(ROOT / "examples" / "codecs" / f"{name}.compll"))
    assert isinstance(facts, dict)
    assert facts["homomorphic"] is homomorphic
    assert facts["back_ends_agree"] is True
    assert bool(facts["reason"]) is not homomorphic


def test_a_codec_is_measured() -> None:
    rows = printed("bench", "vote", "--megabytes", "1")
    assert isinstance(rows, list)
    row = rows[0]
    assert row["encode_gb_s"] > 0
    assert row["decode_gb_s"] > 0
