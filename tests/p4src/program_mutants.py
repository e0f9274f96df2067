"""Rules of the switch program broken on purpose: its compiled form with one primitive changed.

Constant entries are broken in `tests.schedules.mutants`, without compiling again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from weir.p4src import FABRIC_JSON
from weir.tests.p4src.emulated_node import AGGREGATION
from weir.topologies.targets import TOFINO
from weir.wire.aggregation import AGGREGATION_PORT
from weir.wire.frames import ETHERNET_BYTES
from weir.wire.int_md import MD_WORDS

STACK_INNER_BYTES: Final = TOFINO.stack_clone_bytes - ETHERNET_BYTES
"""Maximum bytes of a packet in the report of its stack: p4src/tofino's."""
SAME: Final = 1
"""Member of the switch's `Freshness`."""
Rewrite = Callable[[Any], None]
"""Changes the compiled program, BMv2 JSON as Python has it."""


def rewritten(rewrite: Rewrite, compiled: Path = FABRIC_JSON) -> bytes:
    """The switch program after it, as BMv2 JSON."""
    program = json.loads(compiled.read_text())
    rewrite(program)
    return json.dumps(program).encode()


def take_a_later_chunk_for_the_same(program: Any) -> None:
    """`claim` says SAME where it should say NEWER."""
    [*_, verdict] = (primitive for primitive in _primitives(program, "claim", "assign") if primitive[1] == _NEWER)
    verdict[1] = {"type": "hexstr", "value": f"0x{SAME:02x}"}


def let_an_older_round_take_the_slot(program: Any) -> None:
    """`claim` never keeps what the slot holds."""
    [*_, test] = _primitives(program, "claim", "_jump_if_zero")
    test[0] = _condition(True)


def let_any_later_round_take_the_slot(program: Any) -> None:
    """`claim` says NEWER where it should say AHEAD."""
    [verdict] = (primitive for primitive in _primitives(program, "claim", "assign") if primitive[1] == _AHEAD)
    verdict[1] = _NEWER


def keep_what_does_not_fit_out(program: Any) -> None:
    """`fill_virtual_queue` adds nothing to a virtual queue that is at its backlog with it."""
    congestion = "FabricEgress.congestion"
    [(drained, *_)] = _primitives(program, "fill_virtual_queue", "register_read", congestion)
    [write] = _primitives(program, "fill_virtual_queue", "register_write", congestion)
    left = {"type": "field", "value": ["scalars", "congestion_virtual_left"]}
    full = _operation("==", left, {"type": "hexstr", "value": "0x0"})
    write[2] = {"type": "expression", "value": _operation("?", drained, write[2], cond=full)}


def tell_latency_in_nanoseconds(program: Any) -> None:
    """Make `push_latency` write a unit other than microseconds."""
    [latency] = _primitives(program, "push_latency", "assign", "FabricEgress.telemetry")
    thousand, bits = {"type": "hexstr", "value": "0x3e8"}, {"type": "hexstr", "value": "0xffffffff"}
    latency[1] = {"type": "expression", "value": _operation("&", _operation("*", latency[1], thousand), bits)}


def report_latency_in_nanoseconds(program: Any) -> None:
    """Make `capture` write a unit other than microseconds."""
    [latency] = _assigned(program, "capture", "metadata_t.report_latency")
    thousand, bits = {"type": "hexstr", "value": "0x3e8"}, {"type": "hexstr", "value": "0xffffffff"}
    latency[1] = {"type": "expression", "value": _operation("&", _operation("*", latency[1], thousand), bits)}


def report_no_names(program: Any) -> None:
    """`capture` leaves out names, utilisation, and all that the domain may ask for."""
    [baseline] = _assigned(program, "capture", "telemetry_report_bits")
    [domain] = _assigned(program, "capture", "telemetry_report_domain_bits")
    asked = {"type": "field", "value": ["scalars", "metadata_t.instructions"]}
    ports_to_timestamps = {"type": "hexstr", "value": "0x7c00"}
    baseline[1] = {"type": "expression", "value": _operation("&", asked, ports_to_timestamps)}
    domain[1] = {"type": "hexstr", "value": "0x0000"}


def push_nothing_where_ones_are_asked_for(program: Any) -> None:
    """`compare` finds a mismatch where any of the instructions 8 to 15 is set."""
    [mismatch] = _assigned(program, "compare", "telemetry_mismatch")
    low, zero = {"type": "hexstr", "value": "0x00ff"}, {"type": "hexstr", "value": "0x0"}
    asked = _operation("&", {"type": "field", "value": ["int_md", "instructions"]}, low)
    one = {"type": "hexstr", "value": "0x01"}
    none = _operation("==", asked, zero)
    mismatch[1] = {"type": "expression", "value": _operation("?", mismatch[1], one, cond=none)}


def put_no_int_into_messages(program: Any) -> None:
    """They are watched as packets on a host's link are: this node reports them alone."""
    [egress] = (pipeline for pipeline in program["pipelines"] if pipeline["name"] == "egress")
    [test] = (conditional for conditional in egress["conditionals"] if "int_source_to_host" in json.dumps(conditional))
    message = {"type": "field", "value": ["aggregation", "$valid$"]}
    is_message = {"type": "expression", "value": {"op": "d2b", "left": None, "right": message}}
    test["expression"] = _operation("or", test["expression"], is_message)


def wrap_no_segments(program: Any) -> None:
    """A TCP segment is not wrapped in UDP: where INT is marked by its port, it goes without."""
    [egress] = (pipeline for pipeline in program["pipelines"] if pipeline["name"] == "egress")
    [table] = (each for each in egress["tables"] if each["name"] == "FabricEgress.int_source.encapsulations")
    [wraps] = (entry for entry in table["entries"] if entry["source_info"]["source_fragment"].endswith("wrap()"))
    table["entries"].remove(wraps)


def end_int_as_a_chip_does(program: Any) -> None:
    """A sink leaves what comes from the control plane, and stacks of more words than the chip's parser has depth for.
    It reports INT-MX that has nothing behind its header once, by itself. A packet's number is when it came, and the
    report of a stack is cut where the longest may end.
    """
    [ingress, egress] = program["pipelines"]
    [at_sinks] = (
        conditional for conditional in ingress["conditionals"] if "metadata_t.discards" in json.dumps(conditional)
    )

    def holds(op: str, header: str, name: str, value: int) -> Any:
        return _operation(op, {"type": "field", "value": [header, name]}, {"type": "hexstr", "value": hex(value)})

    behind_udp = _operation("and", holds("==", "udp", "$valid$", 1), holds("!=", "scalars", "metadata_t.mark", 3))
    no_longer = _operation("and", behind_udp, holds("<=", "int_shim", "length", MD_WORDS + TOFINO.max_stack_words))
    short = _operation("or", no_longer, holds("<=", "int_shim", "length", MD_WORDS + TOFINO.max_deep_stack_words))
    for is_so in (short, holds("==", "packet_out", "$valid$", 0)):
        at_sinks["expression"] = _operation("and", at_sinks["expression"], is_so)

    def is_reported(stack: str) -> Any:
        return _operation("or", holds("==", "scalars", "metadata_t.stacks", 1), holds("==", stack, "$valid$", 1))

    [stack] = (action for action in program["actions"] if action["name"] == "FabricIngress.int_sink.report_stack")
    clone = stack["primitives"].pop()
    assert clone["op"] == "clone_ingress_pkt_to_egress"
    behind = {"type": "hexstr", "value": hex(len(stack["primitives"]) + 2)}
    jump = {"op": "_jump_if_zero", "parameters": [_jump_unless(is_reported("int_stack")), behind]}
    stack["primitives"] += [jump, clone]
    [inner_bytes] = (
        primitive["parameters"]
        for primitive in stack["primitives"]
        if primitive["parameters"][0]["value"] == ["scalars", "metadata_t.report_inner_bytes"]
    )
    inner_bytes[1] = {"type": "hexstr", "value": hex(STACK_INNER_BYTES)}
    [numbered] = (
        conditional for conditional in egress["conditionals"] if "at_sink == 1 && meta.due" in json.dumps(conditional)
    )
    numbered["expression"] = _operation("and", numbered["expression"], is_reported("gone_stack"))

    [number] = (action for action in program["actions"] if action["name"] == "FabricIngress.int_sink.number_packet")
    microseconds = {"type": "field", "value": ["standard_metadata", "ingress_global_timestamp"]}
    thousand, bits = {"type": "hexstr", "value": "0x3e8"}, {"type": "hexstr", "value": "0xffffffff"}
    came = _operation("&", _operation("*", microseconds, thousand), bits)
    field = {"type": "field", "value": ["scalars", "metadata_t.report_number"]}
    number["primitives"].append({"op": "assign", "parameters": [field, {"type": "expression", "value": came}]})


def send_no_done(program: Any) -> None:
    """A result has its lanes for every child, as a chip sends it."""
    [egress] = (pipeline for pipeline in program["pipelines"] if pipeline["name"] == "egress")
    [table] = (each for each in egress["tables"] if each["name"] == "FabricEgress.pruning.prunes")
    table["entries"].clear()


def keep_who_wanted_the_former_round(program: Any) -> None:
    """`gather_wanting` starts a newer round with the children that wanted the one before."""
    [joined] = (each for each in _primitives(program, "gather_wanting", "assign") if '"?"' in json.dumps(each))
    choice = joined[1]["value"]["value"]["left"]["value"]
    choice["right"] = choice["left"]


def tell_no_utilisation(program: Any) -> None:
    """Make `push_utilisation` push nothing."""
    [bytes_in_window] = _primitives(program, "push_utilisation", "assign", "FabricEgress.telemetry")
    bytes_in_window[1] = {"type": "hexstr", "value": "0xffffffff"}


def give_bulk_the_lowest_class(program: Any) -> None:
    """Bulk traffic has class 0, as on a chip, where no class is lower."""
    ingress, egress = program["pipelines"]
    [table] = (table for table in ingress["tables"] if table["name"] == "FabricIngress.traffic_class")
    table["default_entry"]["action_data"] = ["0x0"]
    unused, lower_effort = ({"type": "hexstr", "value": value} for value in ("0x06", "0x00"))
    [bounded] = (each for each in egress["conditionals"] if '"priority"' in json.dumps(each["expression"]))
    comparison = bounded["expression"]["value"]["left"]["value"]
    assert (comparison["op"], comparison["right"]) == ("!=", lower_effort), "marking was compiled in another way"
    comparison["right"] = unused


def keep_the_children_of_the_former_round(program: Any) -> None:
    """`gather` starts a newer round with the bitmap of the one before."""
    [(held, *_)] = _primitives(program, "gather", "register_read")
    [nobody] = (primitive for primitive in _primitives(program, "gather", "assign") if primitive[1] == _NOBODY)
    nobody[1] = held


def join_jobs_in_a_slot(program: Any) -> None:
    """`claim` does not ask whose round the slot holds."""
    [other, *_] = _primitives(program, "claim", "_jump_if_zero")
    text = json.dumps(other[0])
    assert text.count('"!="') == 1, f"claim was compiled in another way: it tests {text}"
    other[0] = _condition(False)


def add_weights_in_31_bits(program: Any) -> None:
    """`add` loses the highest bit of the summed weight."""
    sums = _primitives(program, "add", "assign", f"{AGGREGATION}.header_sums")
    [text] = (json.dumps(primitive) for primitive in sums if primitive[0]["value"] == ["aggregation", "weight"])
    [total] = (primitive for primitive in sums if primitive[0]["value"] == ["aggregation", "weight"])
    assert text.count('"0xffffffff"') == 1, f"weights are added in another way: {text}"
    total[:] = json.loads(text.replace('"0xffffffff"', '"0x7fffffff"'))


def take_messages_from_any_port(program: Any) -> None:
    """The UDP source port is not asked for."""
    [ingress] = (pipeline for pipeline in program["pipelines"] if pipeline["name"] == "ingress")
    port = {"type": "hexstr", "value": f"0x{AGGREGATION_PORT:04x}"}
    [test] = (
        conditional["expression"]["value"]
        for conditional in ingress["conditionals"]
        if conditional["expression"]["value"]["right"] == port
    )
    test["left"] = port


def let_a_host_send_in_anothers_name(program: Any) -> None:
    """`admit` finds no difference between the host's address and the packet's."""
    [difference, _] = _primitives(program, "admit", "assign", "FabricIngress.admission")
    difference[1] = {"type": "hexstr", "value": "0x00000000"}


def let_a_host_send_any_message(program: Any) -> None:
    """`admit` bars no type."""
    [_, barred] = _primitives(program, "admit", "assign", "FabricIngress.admission")
    barred[1] = {"type": "hexstr", "value": "0x00"}


def _assigned(program: Any, action: str, field: str) -> list[list[Any]]:
    """The assignments to a field of `scalars` in an action of egress's telemetry."""
    assigned = _primitives(program, action, "assign", "FabricEgress.telemetry")
    return [primitive for primitive in assigned if primitive[0]["value"] == ["scalars", field]]


def _operation(op: str, left: Any, right: Any, **more: Any) -> Any:
    return {"type": "expression", "value": {"op": op, "left": left, "right": right, **more}}


def _condition(value: bool) -> Any:
    """Condition of a jump in an action."""
    return _jump_unless({"type": "bool", "value": value})


def _jump_unless(condition: Any) -> Any:
    """Jump in an action that is taken if the condition does not hold."""
    number = {"op": "b2d", "left": None, "right": condition}
    return {"type": "expression", "value": {"type": "expression", "value": number}}


_NEWER: Final = {"type": "hexstr", "value": "0x00"}
_AHEAD: Final = {"type": "hexstr", "value": "0x03"}
_NOBODY: Final = {"type": "hexstr", "value": "0x00000000"}


def _primitives(program: Any, action: str, op: str, control: str = AGGREGATION) -> list[list[Any]]:
    """The operands of those primitives of an action, to be changed."""
    [body] = (entry["primitives"] for entry in program["actions"] if entry["name"] == f"{control}.{action}")
    return [primitive["parameters"] for primitive in body if primitive["op"] == op]


REWRITES: Final[tuple[Rewrite, ...]] = (
    take_a_later_chunk_for_the_same,
    let_an_older_round_take_the_slot,
    keep_the_children_of_the_former_round,
    keep_who_wanted_the_former_round,
    send_no_done,
    join_jobs_in_a_slot,
    let_any_later_round_take_the_slot,
    take_messages_from_any_port,
    let_a_host_send_in_anothers_name,
    let_a_host_send_any_message,
)
