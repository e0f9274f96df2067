"""Run files with a section `torchrun`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from weir.experiments.config.torchrun import TorchrunFile
from weir.experiments.errors import ExperimentError
from weir.tests.support.commands import weir


def written(folder: Path, **section: Any) -> Path:
    """A run file beside a script."""
    (folder / "script.py").write_text("raise SystemExit('was executed')")
    path = folder / "run.yaml"
    run = {"name": "tiny", "fabric": "live.yaml", "torchrun": {"script": "script.py", **section}}
    path.write_text(yaml.safe_dump(run))
    return path


def test_the_script_is_found_beside_the_file(tmp_path: Path) -> None:
    config = TorchrunFile.load(written(tmp_path, arguments=[2, "x", 0.5], mesh="2x2"))
    assert config.torchrun.script == str(tmp_path / "script.py")
    assert config.torchrun.arguments == [2, "x", 0.5]
    assert config.topology.name == "leaf-spine"


@pytest.mark.parametrize(
    ("section", "place"),
    [
        ({"mesh": "2x"}, "torchrun.mesh"),
        ({"mesh": "2x2", "ranks": 3}, "the mesh 2x2 has 4 ranks"),
        ({"ranks": -1}, "torchrun.ranks"),
        ({"arguments": "2 2"}, "torchrun.arguments"),
        ({"script": "missing.py"}, "missing.py: no such file"),
        ({"strategy": "widest"}, 'unknown key "strategy"'),
    ],
)
def test_what_no_run_can_be_is_refused(section: dict[str, Any], place: str, tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=place):
        TorchrunFile.load(written(tmp_path, **section))


def test_a_check_executes_no_script(tmp_path: Path) -> None:
    told = weir("run", written(tmp_path), "--check")
    assert told.status == 0
    assert str(tmp_path / "script.py") in told.out


@pytest.mark.parametrize("option", ["--json", "--strategy=widest", "--csv=figures.csv", "--fabric=mininet"])
def test_options_of_jobs_runs_are_refused(option: str, tmp_path: Path) -> None:
    told = weir("run", written(tmp_path), option)
    assert told.status == 2
    assert "is for runs of a job" in told.err
