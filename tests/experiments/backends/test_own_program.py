"""Which program and P4Info each switch of a fabric gets, where they are the user's own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from weir.experiments.backends.own_program import OwnProgram, own_programs
from weir.experiments.errors import ExperimentError
from weir.tests.paths import ROOT
from weir.topologies.runtime_json import RuntimeFile

BUILD = ROOT / "examples" / "exercise" / "build"


def test_the_command_line_goes_before_what_a_switchs_own_files_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples" / "exercise")
    file = RuntimeFile.read(Path("pod/s1-runtime.json"))
    firewall = ROOT / "examples" / "p4_program" / "firewall.json"
    info = firewall.with_name("firewall.p4info.txtpb")
    by_file = OwnProgram(Path("build/router.json"), Path("build/router.p4info.txtpb"), [file])
    assert own_programs(["s1"], None, None, {"s1": [file]}, {}) == {"s1": by_file}
    assert own_programs(["s1"], firewall, None, {"s1": [file]}, {}) == {"s1": OwnProgram(firewall, info, [file])}
    assert own_programs(["s1"], firewall, by_file.p4info, {}, {}) == {"s1": OwnProgram(firewall, by_file.p4info)}


def test_what_is_not_there_is_said_before_a_fabric_is_built(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"^s2: no program; give --program FILE\.json, or a runtime JSON"):
        own_programs(["s1", "s2"], None, None, {}, {"s1": BUILD / "router.json"})
    with pytest.raises(ExperimentError, match=r"^s1: mine\.json: there is no such file; p4c writes both"):
        own_programs(["s1"], Path("mine.json"), None, {}, {})
    alone = tmp_path / "alone.json"
    alone.write_bytes((BUILD / "router.json").read_bytes())
    absent = re.escape(str(tmp_path / "alone.p4info.txtpb"))
    with pytest.raises(ExperimentError, match=f"^s1: {absent}: there is no such file; p4c writes both"):
        own_programs(["s1"], alone, None, {}, {})
