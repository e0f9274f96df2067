"""Mutants of the switch program's constant tables, in its compiled form."""

from __future__ import annotations

import json
import random
from typing import Any, Final

from weir.p4src import FABRIC_JSON
from weir.tests.mutation.mutants import Mutant
from weir.tests.paths import ROOT

_WIDE: Final = 16
"""Maximum number of drawn entries per table: the tables of 256 would dominate the mutants."""


def program_mutants(rng: random.Random) -> list[Mutant]:
    """Entries left out, with another entry's action, or with other data: one of these for each that is drawn."""
    program = json.loads(FABRIC_JSON.read_text())
    found = []
    for pipeline, entry in enumerate(program["pipelines"]):
        for number, table in enumerate(entry["tables"]):
            entries = table.get("entries", [])
            for at in rng.sample(range(len(entries)), min(len(entries), _WIDE)):
                if (mutant := _mutant(program, (pipeline, number, at), rng)) is not None:
                    found.append(mutant)
    rng.shuffle(found)
    return found


def _mutant(program: Any, where: tuple[int, int, int], rng: random.Random) -> Mutant | None:
    pipeline, number, at = where
    entries = program["pipelines"][pipeline]["tables"][number]["entries"]
    action = entries[at]["action_entry"]
    changes: list[Any] = [None]
    changes += [other["action_entry"] for other in entries if other["action_entry"] != action]
    if action["action_data"]:
        data = [hex(int(word, 16) ^ 1) for word in action["action_data"]]
        changes.append({**action, "action_data": data})
    change = rng.choice(changes)
    entry = [] if change is None else [{**entries[at], "action_entry": change}]
    table = program["pipelines"][pipeline]["tables"][number]
    table["entries"] = [*entries[:at], *entry, *entries[at + 1 :]]
    broken = json.dumps(program)
    table["entries"] = entries
    path = str(FABRIC_JSON.relative_to(ROOT))
    return Mutant(path, at, f"{table['name']} {action}", str(change), broken)
