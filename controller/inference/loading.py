"""Replacement of the model of a switch, without a moment at which it answers with a class that neither model gives.

The new model's rows go into the bank that is not in use. Then one batch changes the entries of `models`, each of which
leads to one bank. Then the old rows go, trees' first: a packet that is still among them gets fewer votes than trees,
and an answer without a class (`p4runtime/reconcile.py` has the order).
"""

from __future__ import annotations

from typing import Final

from ..p4runtime.entries import Entry, SwitchState
from ..p4runtime.reconcile import Diff, difference, write_difference
from ..p4runtime.session import SwitchSession
from ..p4runtime.tables import FEATURE, MODELS, TREE
from .forest import Forest
from .table_entries import BANKS, bank_in_use, model_state

_TABLES: Final = frozenset((MODELS, *FEATURE, *TREE))


async def load_model(session: SwitchSession, forest: Forest | None) -> Diff:
    """Have a switch serve a forest, in place of the one that it serves; None: no forest. Other tables stay as they are.

    Raises:
        ControllerError: The switch failed or refused. A repeated call continues from there.
    """
    held = of_models(await session.read())
    desired = SwitchState() if forest is None else model_state(forest, next_bank(held, forest))
    diff = difference(held, desired)
    await write_difference(session, diff)
    return diff


def of_models(state: SwitchState) -> SwitchState:
    """The part of a switch's contents that belongs to its model."""
    return SwitchState(
        {key: item for key, item in state.items.items() if isinstance(item, Entry) and item.table in _TABLES}
    )


def next_bank(held: SwitchState, forest: Forest) -> int:
    """Bank for a model: where it is, if the switch serves it, else the one that is not in use."""
    in_use = bank_in_use(held)
    if in_use is None:
        return BANKS[0]
    served = next(item for item in model_state(forest, in_use).items.values())
    return in_use if held.items.get(served.key) == served else BANKS[1 - in_use]
