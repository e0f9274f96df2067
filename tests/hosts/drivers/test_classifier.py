"""The client on a UDP socket, against an emulated switch behind a socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import numpy as np
import pytest

from weir.controller.inference.forest import LEAF, DecisionTree, Forest
from weir.experiments.classification import answer_to, loaded_switch
from weir.hosts import Classifier
from weir.hosts.errors import NoClass
from weir.wire.classification import CLASSIFICATION_PORT, MESSAGE_BYTES

ADDRESS = "127.87.73.1"
FOREST = Forest(
    ("no", "yes"), 1, (DecisionTree((0, LEAF, LEAF), (0, 0, 0), (1, 0, 0), (2, 0, 0), (0, 0, 1)),), edges=((0.5,),)
)


@contextmanager
def served(forest: Forest, address: str = ADDRESS) -> Iterator[None]:
    """A switch at an address of this machine, whose first answer is lost."""
    switch = loaded_switch(forest)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, CLASSIFICATION_PORT))

        def serve() -> None:
            lost = False
            while True:
                payload, sender = server.recvfrom(MESSAGE_BYTES + 1)
                if not payload:
                    return
                if lost and (answer := answer_to(switch, np.frombuffer(payload, np.uint8))) is not None:
                    server.sendto(answer, sender)
                lost = True

        thread = Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stop:
                stop.sendto(b"", (address, CLASSIFICATION_PORT))
            thread.join()


def test_samples_get_their_classes_by_name() -> None:
    values = np.linspace(0, 1, 21)[:, None]
    with (
        served(FOREST),
        Classifier(
            ADDRESS, classes=FOREST.classes, edges=FOREST.edges, model=FOREST.number, timeout_s=0.3, attempts=100
        ) as classifier,
    ):
        assert classifier.predict(values).tolist() == FOREST.predict(values).tolist()
        assert classifier.predict(values[::-1]).tolist() == FOREST.predict(values)[::-1].tolist()


def test_a_switch_without_the_model_gives_no_class() -> None:
    with served(FOREST), Classifier(ADDRESS, timeout_s=0.05, attempts=4) as classifier, pytest.raises(NoClass):
        classifier.predict([[1]])


def test_address_without_a_switch_gives_no_class() -> None:
    with Classifier("127.87.73.2", timeout_s=0.01, attempts=3) as classifier, pytest.raises(NoClass):
        classifier.predict([[1]])


@pytest.mark.parametrize("samples", [[[0.5]], [[300]], [1, 2]])
def test_values_that_cannot_be_sent_are_refused(samples: list[list[float]]) -> None:
    with Classifier(ADDRESS) as classifier, pytest.raises(NoClass):
        classifier.predict(samples)


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(NoClass):
        Classifier("s1")
