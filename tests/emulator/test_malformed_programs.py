"""Programs that no compiler writes are refused, whatever part of them is missing."""

from __future__ import annotations

import json

import pytest

from weir.emulator.bmv2.schema import UnsupportedProgram
from weir.emulator.switch import Switch
from weir.p4src import FABRIC_JSON


@pytest.mark.parametrize("place", [0, 1, -1])
def test_a_parser_operation_without_parameters_is_refused(place: int) -> None:
    document = json.loads(FABRIC_JSON.read_text())
    operations = [op for state in document["parsers"][0]["parse_states"] for op in state["parser_ops"]]
    operations[place]["parameters"] = []
    with pytest.raises(UnsupportedProgram):
        Switch(1).load(json.dumps(document).encode())
