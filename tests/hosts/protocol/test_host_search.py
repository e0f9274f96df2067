"""Every order of events of small jobs: no wrong sum, no two results of a round, nothing stuck; every mutant is caught.

docs/verification.md says what is searched, what is not, and how large the searches were.
"""

from __future__ import annotations

import pytest

from weir.tests.hosts.protocol.network_model import SERVER, worker_address
from weir.tests.hosts.protocol.search import Violation
from weir.tests.hosts.protocol.search_mutants import MUTANTS, Mutant, broken
from weir.tests.hosts.protocol.search_nodes import Setup
from weir.tests.hosts.protocol.search_past import searches

FIRST, LAST_OF_2, LAST_OF_3 = (worker_address(rank) for rank in (0, 1, 2))

QUICK = [
    *(Setup(kind, workers=workers, chunks=3) for kind in ("server", "root", "inner", "mixed") for workers in (2, 3)),
    *(Setup(kind, workers=3, chunks=2) for kind in ("tree", "tree-root")),
    *(Setup(kind, slots=4, window=2, chunks=3) for kind in ("server", "root", "inner")),
    Setup("root", workers=3, slots=4, window=2, chunks=3),
    *(Setup(kind, chunks=2, moves=1, lost=(FIRST, LAST_OF_2)) for kind in ("server", "root", "inner")),
    Setup("root", chunks=2, moves=1, restarts=1),
    Setup("inner", chunks=1, moves=1, restarts=1, lost=(LAST_OF_2,)),
    Setup("root", workers=3, chunks=2, moves=1, lost=(LAST_OF_3,)),
    Setup("root", workers=3, moves=1, lost=(FIRST,), ghosts=True),
    Setup("root", chunks=2, moves=1, next_kind="server"),
    Setup("server", chunks=2, moves=1, next_kind="root", lost=(SERVER,)),
    # a host dies whether it has answered Pause, has its Resume or has confirmed it, and whenever the controller sees it
    Setup("root", workers=3, moves=1, lost=(LAST_OF_3,), dies_in_moves=True),
    Setup("root", chunks=2, moves=1, lost=(FIRST, LAST_OF_2), dies_in_moves=True),
    Setup("inner", chunks=1, moves=1, lost=(FIRST,), dies_in_moves=True),
    Setup("inner", moves=1, next_kind="root", lost=(SERVER,), dies_in_moves=True),
    Setup("server", chunks=2, moves=1, next_kind="root", lost=(FIRST, SERVER), dies_in_moves=True),
    # a lost worker's rounds in the middle of a window: others fetch some, pass over some, and agree on exponents again
    Setup("root", slots=4, window=2, tensors=2, moves=1, lost=(FIRST,)),
    *(Setup(kind, tensors=2) for kind in ("server", "root", "inner", "tree")),
    Setup("root", slots=4, window=2, tensors=2),
    Setup("root", tensors=2, moves=1, lost=(LAST_OF_2,)),
    # one worker's numbers, for which the others send PRESENT
    *(Setup(kind, chunks=3, adds=(1,)) for kind in ("server", "root", "inner")),
    *(Setup(kind, workers=3, chunks=2, adds=(0,)) for kind in ("tree", "tree-root", "mixed")),
    Setup("tree-root", workers=3, chunks=2, adds=(0, 2)),
    Setup("root", slots=4, window=2, tensors=2, moves=1, lost=(FIRST,), adds=(1,)),
    Setup("inner", chunks=2, moves=1, lost=(FIRST,), adds=(0,)),
    # sums for one worker, or parts of them for each: the others get DONE
    *(Setup(kind, chunks=3, wants=(0,)) for kind in ("root", "tree-root")),
    *(Setup(kind, workers=3, chunks=2, scattered=True) for kind in ("root", "tree-root")),
    Setup("tree-root", workers=3, moves=1, wants=(1,)),
    *(
        Setup("root", chunks=2, moves=1, lost=(FIRST, LAST_OF_2), **how)
        for how in ({"wants": (0,)}, {"scattered": True})
    ),
    Setup("root", chunks=2, moves=1, lost=(FIRST,), adds=(0,), wants=(1,)),
    Setup("server", chunks=2, moves=1, next_kind="root", lost=(SERVER,), wants=(0,)),
    Setup("root", chunks=2, moves=1, next_kind="server", wants=(0,)),
    Setup("root", workers=3, moves=1, lost=(FIRST,), ghosts=True, wants=(1,)),
    Setup("root", slots=4, window=2, tensors=2, moves=1, wants=(0,)),
    Setup("root", chunks=2, moves=1, lost=(FIRST, LAST_OF_2), dies_in_moves=True, wants=(0,)),
    Setup("root", slots=4, window=2, tensors=2, moves=1, lost=(FIRST,), wants=(1,)),
    # another job had the number before, and left rounds in slots and messages under way
    *(Setup(kind, chunks=2, after="ended") for kind in ("server", "root", "inner", "tree")),
    *(Setup(kind, chunks=2, after="forgotten") for kind in ("root", "inner", "tree-root")),
    Setup("root", tensors=2, after="ended"),
    Setup("root", moves=1, lost=(LAST_OF_2,), after="ended"),
    Setup("root", moves=1, lost=(LAST_OF_2,), after="forgotten"),
    # setups that catch mutants are sound without them
    *(mutant.setup for mutant in MUTANTS if mutant.setup.window <= mutant.setup.slots // 2),
]

SLOW = {
    Setup("server", chunks=2, moves=1, next_kind="root", lost=(FIRST, SERVER), dies_in_moves=True),
    Setup("root", workers=3, moves=1, lost=(LAST_OF_3,), dies_in_moves=True),
    Setup("root", workers=3, chunks=2, moves=1, lost=(FIRST, LAST_OF_3)),
    Setup("root", workers=3, chunks=2, moves=1, lost=(LAST_OF_3,)),
    Setup("root", slots=4, window=2, tensors=2, moves=1, lost=(FIRST,), adds=(1,)),
    Setup("root", chunks=2, moves=1, lost=(FIRST, LAST_OF_2), dies_in_moves=True),
    Setup("server", workers=3, moves=1, lost=(LAST_OF_3,)),
    Setup("inner", chunks=2, moves=1, lost=(FIRST, LAST_OF_2)),
    Setup("root", slots=4, window=2, tensors=2, moves=1, lost=(FIRST,)),
    Setup("root", workers=3, moves=1, lost=(FIRST,)),
    Setup("root", moves=1, lost=(LAST_OF_2,), after="ended"),
    Setup("root", workers=3, slots=4, window=2, chunks=3),
    Setup("root", chunks=2, moves=1, lost=(FIRST, LAST_OF_2), dies_in_moves=True, wants=(0,)),
    Setup("root", slots=4, window=2, tensors=2, moves=1, lost=(FIRST,), wants=(1,)),
}
"""Setups of QUICK that take most of its time; a smaller one of the same events stays."""

LONG = [
    *(
        Setup(kind, workers=3, chunks=3, moves=1, lost=(FIRST, LAST_OF_3), scattered=True)
        for kind in ("root", "tree-root")
    ),
    Setup("root", chunks=2, moves=2, restarts=1, lost=(FIRST, LAST_OF_2), wants=(1,)),
    Setup("root", slots=4, window=2, chunks=3, moves=1, lost=(LAST_OF_2,), dies_in_moves=True, wants=(0,)),
    Setup("root", slots=4, window=2, chunks=3, moves=1, lost=(LAST_OF_2,), dies_in_moves=True, scattered=True),
    Setup("tree-root", workers=3, chunks=2, moves=1, lost=(FIRST,), adds=(1,), wants=(2,)),
    *(Setup(kind, workers=3, chunks=3, adds=(0,)) for kind in ("tree", "tree-root")),
    *(Setup(kind, workers=3, chunks=2, moves=1, lost=(FIRST, LAST_OF_3), adds=(0,)) for kind in ("inner", "tree-root")),
    Setup("inner", moves=1, restarts=1, after="forgotten"),
    Setup("tree", chunks=2, moves=1, after="ended"),
    *(Setup("root", slots=4, window=2, chunks=3, moves=1, after=how) for how in ("ended", "forgotten")),
    *(Setup(kind, workers=4, slots=4, window=2, chunks=2) for kind in ("root", "inner", "tree")),
    *(Setup(kind, slots=8, window=4, chunks=5) for kind in ("server", "root", "inner")),
    Setup("root", chunks=1, moves=2, lost=(FIRST,), restarts=1),
    *(Setup(kind, workers=3, chunks=3) for kind in ("tree", "tree-root")),
    *(
        Setup(kind, workers=3, slots=4, window=2, chunks=3)
        for kind in ("server", "inner", "tree", "tree-root", "mixed")
    ),
    *(
        Setup(kind, workers=3, chunks=3, moves=1, lost=(FIRST, LAST_OF_3))
        for kind in ("server", "root", "inner", "tree", "tree-root", "mixed")
    ),
    *(
        Setup(kind, workers=3, chunks=2, moves=1, restarts=1, lost=(LAST_OF_3,))
        for kind in ("root", "inner", "tree-root")
    ),
    *(
        Setup(kind, slots=4, window=2, chunks=3, moves=1, restarts=restarts, lost=(FIRST,))
        for kind, restarts in (("server", 0), ("root", 1), ("inner", 0))
    ),
    *(
        Setup(kind, workers=3, chunks=2, moves=1, lost=(FIRST, LAST_OF_3), dies_in_moves=True)
        for kind in ("server", "root")
    ),
    *(Setup(kind, workers=3, moves=2, lost=(FIRST, LAST_OF_3)) for kind in ("server", "root", "inner")),
    *(
        Setup(kind, workers=3, slots=4, window=2, chunks=2, moves=1, lost=(LAST_OF_3,))
        for kind in ("server", "root", "inner", "tree-root")
    ),
    *(Setup(kind, chunks=2, moves=2, restarts=1, lost=(FIRST, LAST_OF_2)) for kind in ("root", "inner")),
    *(Setup(kind, workers=3, chunks=2, moves=1, lost=(FIRST,), ghosts=True) for kind in ("server", "root", "inner")),
    *(
        Setup(kind, workers=3, chunks=2, moves=1, next_kind=next_kind, lost=(LAST_OF_3, SERVER))
        for kind, next_kind in (("server", "root"), ("inner", "tree-root"))
    ),
    *(
        Setup(kind, workers=3, chunks=2, moves=1, next_kind=next_kind, lost=(LAST_OF_3,))
        for kind, next_kind in (("root", "server"), ("tree-root", "inner"), ("inner", "tree"))
    ),
]


@pytest.mark.parametrize(
    "setup",
    [
        *(pytest.param(setup, marks=pytest.mark.long if setup in SLOW else ()) for setup in dict.fromkeys(QUICK)),
        *(pytest.param(setup, marks=[pytest.mark.long, pytest.mark.timeout(3600)]) for setup in LONG),
    ],
    ids=str,
)
def test_no_order_of_events_breaks_the_protocol(setup: Setup) -> None:
    for search in searches(setup):
        search.run()
        print(search)  # noqa: T201
        assert search.finished


def search_all(mutant: Mutant) -> None:
    for search in searches(mutant.setup, mutant.make_switch, resends=mutant.resends):
        search.run()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_protocol_is_found_out(mutant: Mutant) -> None:
    with broken(mutant.changes), pytest.raises(Violation) as found:
        search_all(mutant)
    print(f"{mutant.name}, {mutant.setup}:\n{found.value.trace}")  # noqa: T201
    assert mutant.finds in found.value.what
    assert found.value.steps == len(found.value.trace.splitlines()) - 1
