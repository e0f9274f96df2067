"""Classes of digits by a switch: requests per second through veth pairs, compared with scikit-learn on the host.

`fabric.p4` has a forest of nine trees of 64 leaves and all its other tables. It answers requests of 80 bytes. The peers
are bmv2 with the same entries, a C program that moves the same frames unread, and scikit-learn's `predict` of the same
forest in this process, for one sample a call and for 450.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from weir.bench.devices import P4Files, obstacle
from weir.bench.measure import RUNS, Figure, seconds
from weir.bench.ports import Job, measure
from weir.bench.traffic import fabric_entries, model_entries, requests
from weir.controller.inference.forest import Forest
from weir.p4src import FABRIC_JSON

__all__ = ["figures", "obstacle"]

PACKETS: Final = 50_000
CALLS: Final = {1: 200, 450: 20}
"""Calls of one run, by samples of a call."""


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module against the peers that are here."""
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import train_test_split

    images, digits = load_digits(return_X_y=True)
    learned, held_out, known, _ = train_test_split(images, digits, test_size=450, random_state=0)
    model = RandomForestClassifier(9, max_leaf_nodes=64, random_state=0).fit(learned, known)
    forest = Forest.of(model)
    job = Job("fabric.p4, digits classified", requests(forest.encode(held_out)), {})
    entries = [*fabric_entries(), *model_entries(forest)]
    rates: tuple[float, ...] = ()
    for figure in measure(P4Files.at(FABRIC_JSON), entries, (job,), packets=PACKETS):
        yield figure
        rates = rates or figure.values
    for samples, calls in CALLS.items():
        some = held_out[:samples]
        host = [calls * samples / seconds(lambda: [model.predict(some) for _ in range(calls)]) for _ in range(RUNS)]  # noqa: B023
        name = "scikit-learn, one sample a call" if samples == 1 else f"scikit-learn, {samples} samples a call"
        yield Figure("digits classified", "samples/s", rates, name, tuple(host))
