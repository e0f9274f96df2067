"""`weir model` against a control service and an emulated switch, and `weir infer`."""

from __future__ import annotations

import json
from pathlib import Path

import joblib  # type: ignore[import-untyped]
import numpy as np
import pytest
import skops.io

from weir.controller.inference.forest import Forest
from weir.tests.controller.inference.forests import digits, digits_model
from weir.tests.hosts.drivers.test_classifier import served
from weir.tests.support.commands import weir_beside
from weir.tests.support.control_rig import rig

ADDRESS = "127.87.73.3"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "digits.json"
    Forest.of(digits_model(trees=2, leaves=8)).save(path)
    return path


async def test_a_model_is_loaded_listed_and_unloaded(model: Path) -> None:
    forest = Forest.load(model)
    async with rig() as service:
        where = ("--control", service.service.address)
        status, out, _ = await weir_beside("model", "load", model, "--switch", "s1", *where, "--json")
        assert (status, json.loads(out)) == (
            0,
            [
                {
                    "switch": "s1",
                    "address": "10.255.0.1",
                    "model": forest.number,
                    "features": 64,
                    "kind": "bytes",
                    "classes": 10,
                    "trees": 2,
                    "leaves": 16,
                }
            ],
        )
        status, out, _ = await weir_beside("model", "list", *where)
        assert status == 0
        assert all(word in out for word in ("s1", "10.255.0.1", str(forest.number)))
        status, _, errors = await weir_beside("model", "load", model, "--switch", "s9", *where)
        assert (status, errors.count("\n")) == (2, 1)
        assert (await weir_beside("model", "unload", "--switch", "s1", *where, "--json"))[:2] == (0, "[]\n")


async def test_a_model_is_tested_and_a_pickle_refused(model: Path, tmp_path: Path) -> None:
    status, out, _ = await weir_beside("model", "test", model, "--json")
    outcome = json.loads(out)
    assert (status, outcome["samples"], outcome["wrong"], outcome["leaves"]) == (0, 1000, 0, 16)
    joblib.dump(digits_model(trees=2, leaves=8), tmp_path / "digits.joblib")
    status, _, errors = await weir_beside("model", "test", tmp_path / "digits.joblib")
    assert (status, errors.count("\n")) == (2, 1)
    assert "--trust" in errors
    status, out, _ = await weir_beside("model", "test", tmp_path / "digits.joblib", "--trust", "--json")
    assert (status, json.loads(out)) == (0, outcome)


async def test_a_classifier_becomes_a_model_file(model: Path, tmp_path: Path) -> None:
    skops.io.dump(digits_model(trees=2, leaves=8), tmp_path / "digits.skops")
    joblib.dump(digits_model(trees=2, leaves=8), tmp_path / "digits.joblib")
    for source, *trusted in (("digits.skops",), ("digits.joblib", "--trust")):
        status, *_ = await weir_beside("model", "convert", tmp_path / source, tmp_path / "made.json", *trusted)
        assert (status, (tmp_path / "made.json").read_text()) == (0, model.read_text())
    refused: list[tuple[Path | str, ...]] = [
        (model, tmp_path / "missing" / "made.json"),
        (model, tmp_path / "made.json", "--features", "numbers"),
        (tmp_path / "missing.skops", tmp_path / "made.json"),
    ]
    for words in refused:
        status, _, errors = await weir_beside("model", "convert", *words)
        assert (status, errors.count("\n")) == (2, 1)


async def test_samples_of_a_file_get_their_classes(model: Path, tmp_path: Path) -> None:
    forest = Forest.load(model)
    images = digits()[1][0][:20]
    np.savetxt(tmp_path / "samples.csv", images, delimiter=",")
    with served(forest, ADDRESS):
        words = ("infer", tmp_path / "samples.csv", "--switch", ADDRESS, "--timeout", "1")
        status, out, _ = await weir_beside(*words, "--model", model, "--json")
        assert (status, json.loads(out)) == (0, forest.predict(images).tolist())
        status, out, _ = await weir_beside(*words)
        assert (status, out.split()) == (0, [str(index) for index in forest.decide(images)])
    (tmp_path / "words.csv").write_text("a,b\n")
    status, _, errors = await weir_beside("infer", tmp_path / "words.csv", "--switch", ADDRESS)
    assert (status, errors.count("\n")) == (2, 1)
