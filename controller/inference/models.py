"""The model of each switch: which one, in which bank, and what that adds to the switch's target state.

A model that replaces another has the bank that is not in use. So no packet gets a class that neither model gives:

1. The new model's rows go into its bank.
2. One batch changes the entries of `models`, each of which leads to one bank.
3. The old rows go, trees' first: a packet that is still among them gets fewer votes than trees, and an answer without a
   class.

`p4runtime/reconcile.py` has the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...topologies.model import Topology
from ..jobs.journal import Journal
from ..p4runtime.entries import SwitchState
from .errors import ModelError
from .forest import Forest
from .table_entries import BANKS, model_state


@dataclass(frozen=True, slots=True)
class Loaded:
    """A switch's model."""

    forest: Forest
    bank: int


class Models:
    """Models by switch, kept in the controller's journal."""

    def __init__(self, topology: Topology, journal: Journal) -> None:
        """Raises JournalError if the journal's models cannot be read."""
        self._topology = topology
        self._journal = journal
        self.held: Mapping[str, Loaded] = {}
        """The present models; another object after each change."""
        self.restore({name: Loaded(Forest.from_json(text), bank) for name, (text, bank) in journal.models().items()})

    def place(self, switches: Iterable[str], forest: Forest | None) -> None:
        """Give switches a model in place of theirs, or none.

        Raises:
            TopologyError: The fabric has no such switch.
            ModelError: The program of a switch has no tables for models.
        """
        held = dict(self.held)
        for name in switches:
            target = self._topology.switch(name).target
            if not target.classifies:
                raise ModelError(
                    f"target {target.name} has no room for a model beside sums", place=name, value=target.name
                )
            before = held.pop(name, None)
            if forest is not None and before is not None and before.forest == forest:
                held[name] = before
            elif forest is not None:
                held[name] = Loaded(forest, BANKS[0] if before is None else BANKS[1 - before.bank])
        self.restore(held)

    def restore(self, held: Mapping[str, Loaded]) -> None:
        """Return to models that were `held` before."""
        self._states = {name: model_state(loaded.forest, loaded.bank) for name, loaded in held.items()}
        self.held = held

    def keep(self) -> None:
        """Write the models to the journal. Raises JournalError."""
        self._journal.write_models({name: (model.forest.as_json(), model.bank) for name, model in self.held.items()})

    def added_to(self, states: Mapping[str, SwitchState]) -> Mapping[str, SwitchState]:
        """Return the target states with the models' entries."""
        if not self.held:
            return states
        return {
            name: SwitchState({**state.items, **self._states[name].items}) if name in self._states else state
            for name, state in states.items()
        }
