"""Training that ranks come back to, in one process."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

pytest.importorskip("torch")

import torch.distributed as dist

from weir.hosts.errors import HostError
from weir.hosts.torch import elastic_restart
from weir.hosts.torch.elastic_restart import rejoining


class Model:
    """Stand-in for a DistributedDataParallel, whose hooks act as long as it exists."""


def test_nothing_of_a_failed_training_is_there_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that its group keeps has a traceback, and its frames have the locals of the training."""
    if dist.is_initialized():
        dist.destroy_process_group()
    initialise = dist.init_process_group
    monkeypatch.setattr(dist, "init_process_group", lambda _, **words: initialise("gloo", **words))
    kept: list[Exception] = []
    models: list[weakref.ref[Model]] = []

    def fails() -> None:
        raise HostError("a rank was lost")

    def train(_: Any) -> list[Model | None]:
        found = [each() for each in models]
        model = Model()
        models.append(weakref.ref(model))
        if len(models) == 1:
            try:
                fails()
            except HostError as error:
                kept.append(error)
            raise RuntimeError("backward has failed")
        return found

    monkeypatch.setattr(elastic_restart, "failures", lambda: list(kept))
    try:
        assert rejoining(train, {}, store=dist.HashStore(), rank=0, size=1) == [None]
    finally:
        dist.destroy_process_group()
