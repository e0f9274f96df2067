"""Rules of the switch program broken on purpose: its compiled form with one primitive changed.

What a constant entry says is broken in `tests.schedules.mutants`, without compiling anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from weir.p4src import FABRIC_JSON
from weir.tests.p4src.emulated_node import AGGREGATION

SAME: Final = 1
"""Of the switch's `Freshness`."""
Rewrite = Callable[[Any], None]
"""Changes the compiled program, BMv2 JSON as Python has it."""


def rewritten(rewrite: Rewrite) -> bytes:
    """The switch program after it, as BMv2 JSON."""
    program = json.loads(FABRIC_JSON.read_text())
    rewrite(program)
    return json.dumps(program).encode()


def take_a_later_chunk_for_the_same(program: Any) -> None:
    """`claim` says SAME where it should say NEWER."""
    [*_, verdict] = (each for each in _primitives(program, "claim", "assign") if each[1] == _NEWER)
    verdict[1] = {"type": "hexstr", "value": f"0x{SAME:02x}"}


def let_an_older_round_take_the_slot(program: Any) -> None:
    """`claim` never keeps what the slot holds."""
    [*_, test] = _primitives(program, "claim", "_jump_if_zero")
    text = json.dumps(test[0])
    assert text.count('"0x02"') == 1, f"claim was compiled in another way: it tests {text}"
    test[0] = json.loads(text.replace('"0x02"', '"0x03"'))


def keep_the_children_of_the_former_round(program: Any) -> None:
    """`gather` starts a newer round with the bitmap of the one before."""
    [(held, *_)] = _primitives(program, "gather", "register_read")
    [nobody] = (each for each in _primitives(program, "gather", "assign") if each[1] == _NOBODY)
    nobody[1] = held


def join_jobs_in_a_slot(program: Any) -> None:
    """`claim` does not ask whose round the slot holds."""
    [other, *_] = _primitives(program, "claim", "_jump_if_zero")
    text = json.dumps(other[0])
    assert text.count('"!="') == 1, f"claim was compiled in another way: it tests {text}"
    other[0] = {"type": "expression", "value": {"type": "expression", "value": _NEVER}}


_NEVER: Final = {"op": "b2d", "left": None, "right": {"type": "bool", "value": False}}
_NEWER: Final = {"type": "hexstr", "value": "0x00"}
_NOBODY: Final = {"type": "hexstr", "value": "0x00000000"}


def _primitives(program: Any, action: str, op: str) -> list[list[Any]]:
    """The operands of those primitives of an action, to be changed."""
    [body] = (each["primitives"] for each in program["actions"] if each["name"] == f"{AGGREGATION}.{action}")
    return [each["parameters"] for each in body if each["op"] == op]


REWRITES: Final[tuple[Rewrite, ...]] = (
    take_a_later_chunk_for_the_same,
    let_an_older_round_take_the_slot,
    keep_the_children_of_the_former_round,
    join_jobs_in_a_slot,
)
