"""Player of STF tests: accepted, resolved and reported statements, on the programs of `test_stf_programs`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from weir.emulator.bmv2.schema import KeyField
from weir.emulator.entries import Exact, Lpm, Match, Range, Ternary
from weir.emulator.program import Program
from weir.emulator.stf import PlayedScript, StfError, StfTest, play
from weir.emulator.stf.names import matches, resolve
from weir.emulator.stf.player import difference
from weir.emulator.stf.reader import parse
from weir.emulator.stf.statements import Expect
from weir.tests.paths import STF as FOLDER


def run(program: str, text: str) -> PlayedScript:
    return play(Program.load(FOLDER / f"{program}.json"), StfTest(Path("t.stf"), parse(text, "t.stf")))


@pytest.mark.parametrize(
    ("pattern", "whole", "frame", "reason"),
    [
        ("0102", False, "010203", None),
        ("0102", True, "010203", "is 3 bytes, longer than expected: 010203, expected 0102$"),
        ("0102", True, "0102", None),
        ("0102", False, "01", "is 1 bytes, shorter than expected: 01, expected 0102"),
        ("*1*2", True, "f1e2", None),
        (
            "00" * 20 + "AA" + "11" * 20,
            False,
            "00" * 20 + "ab" + "11" * 20,
            f"differs at byte 20: …{'00' * 8}[AB]{'11' * 8}…, expected …{'00' * 8}[AA]{'11' * 8}…",
        ),
        ("AA" * 20, False, "ab" + "aa" * 19, f"differs at byte 0: [AB]{'AA' * 8}…, expected [AA]{'AA' * 8}…"),
        ("*1*3", True, "f1e2", "differs at byte 1: F1E2, expected *1*3"),
        ("AB*", False, "abcd", None),
        (None, False, "abcd", None),
        ("", True, "", None),
    ],
)
def test_comparing_frames(pattern: str | None, whole: bool, frame: str, reason: str | None) -> None:
    assert difference(Expect(1, 0, pattern, whole), bytes.fromhex(frame)) == reason


@pytest.mark.parametrize(
    ("table", "key", "expected"),
    [
        ("by_exact", "0x7", Exact(7)),
        ("by_exact", None, Exact(0)),
        ("by_prefix", "0x0a01****", Lpm(0x0A010000, 16)),
        ("by_prefix", "0x0a01", Lpm(0x0A01, 16)),
        ("by_prefix", "0b1***", Lpm(8, 1)),
        ("by_prefix", "10", Lpm(10, 32)),
        ("by_prefix", "0x0a/8", Lpm(10, 8)),
        ("by_prefix", None, Lpm(0, 0)),
        ("by_ternary", "0x7", Ternary(7, 0xF)),
        ("by_ternary", "0x1*3", Ternary(0x103, 0xF0F)),
        ("by_ternary", "0b1*0", Ternary(4, 5)),
        ("by_ternary", "7", Ternary(7, 0xFFFFFFFF)),
        ("by_ternary", "8&&&12", Ternary(8, 12)),
        ("by_ternary", None, Ternary(0, 0)),
        ("by_range", "3..0x10", Range(3, 16)),
        ("by_range", "5", Range(5, 5)),
        ("by_range", None, Range(0, 0xFFFF)),
    ],
)
def test_values_of_keys(table: str, key: str | None, expected: Match) -> None:
    schema = Program.load(FOLDER / "tables.json").tables[f"Forward.{table}"]
    given = [] if key is None else [(schema.key[0].name, key)]
    assert matches(schema, given)[0] == expected


@pytest.mark.parametrize("name", ["a.labels[1].$valid$", "a.labels$1", "labels[1].valid", "labels$1.valid"])
def test_names_of_key_fields(name: str) -> None:
    key = (KeyField("a.labels[0].$valid$", "exact", 1), KeyField("a.labels[1].$valid$", "exact", 1))
    schema = replace(Program.load(FOLDER / "tables.json").tables["Forward.by_exact"], key=key)
    assert matches(schema, [(name, "1")]) == (Exact(0), Exact(1))


def test_short_names() -> None:
    names = ["In.set", "In.reset", "Out.get", "Out.t", "set_all"]
    assert resolve("table", "In.set", names) == "In.set"
    assert resolve("table", "set", names) == "In.set"
    assert resolve("table", "eset", names) == "In.reset"
    with pytest.raises(ValueError, match=r"table et may be any of In\.set, Out\.get"):
        resolve("table", "et", ["In.set", "Out.get"])
    with pytest.raises(ValueError, match="no table put; there are none"):
        resolve("table", "put", [])


FRAME = "00 0000000d 0000 00"
MISS = "00 0000000d 0000 03"


@pytest.mark.parametrize("size", [2049, 9018, 16_384])
def test_jumbo_frames_pass(size: int) -> None:
    frame = "050012340000" + "ab" * (size - 6)
    assert run("payload", f"packet 0 {frame}\nexpect 1 {frame}$").failures == ()


def test_frames_are_compared_in_order_on_each_port() -> None:
    outcome = run("tables", f"packet 0 {FRAME}\npacket 0 {FRAME} 77\nexpect 1 {MISS}77\nexpect 1 {MISS}$")
    assert [failure.split(" is ")[0] for failure in outcome.failures] == [
        "t.stf:3: port 1: packet 1",
        "t.stf:4: port 1: packet 2",
    ]


def test_unexpected_and_missing_frames_are_reported() -> None:
    outcome = run("tables", f"packet 1 {FRAME}\npacket 0 {FRAME}\nexpect 1 {MISS}$\nexpect 2\n")
    assert outcome.failures == (
        "t.stf: port 1: packet 2 was not expected: 000000000d000003",
        "t.stf:4: port 2: packet 1 was expected and did not come",
    )
    assert (outcome.packets, outcome.checks) == (2, 2)


def test_frames_to_unmentioned_ports_are_ignored() -> None:
    text = f"add by_exact key:13 answer_at(result:1, port:9)\npacket 0 {FRAME}"
    assert run("tables", text).failures == ()
    assert run("tables", f"{text}\nexpect 9 00 0000000d 0001 02$").failures == ()
    assert run("tables", f"{text}\nno_packet").failures == (
        "t.stf:3: no packet was expected, but one left port 9: 000000000d000102",
    )


def test_egress_runs_for_ports_that_the_test_does_not_mention() -> None:
    """The frame leaves through port 1 unseen; its clone from egress is seen at port 2."""
    text = "mirroring_add 5 2\npacket 0 04 00 00 00 00 00 0000\nexpect 2 04 42 00 00 02 01 0002$"
    assert run("passes", text).failures == ()


def test_no_packet_is_about_every_port() -> None:
    text = f"add by_exact key:13 answer_at(result:1, port:0)\npacket 0 {FRAME}\nexpect 0\nno_packet"
    assert run("tables", text).failures == ("t.stf:4: no packet was expected, but one left port 0: 000000000d000102",)


def test_reads_are_noted_and_checks_fail() -> None:
    outcome = run("arrays", "register_write wide 2 5\nregister_read Forward.wide 2\ncheck_register wide(2) > 5")
    assert outcome.notes == ("t.stf:2: Forward.wide[2]: 5",)
    assert outcome.failures == ("t.stf:3: wide(2) is 5, expected > 5",)
    text = "meter_get_rates octets 1\nmeter_set_rates octets 1 0.5:9 2:10\nmeter_get_rates octets 1"
    assert run("meters", text).notes == (
        "t.stf:1: octets[1]: no rates",
        "t.stf:3: octets[1]: 500000/s in bursts of 9, peak 2e+06/s in bursts of 10",
    )
    text = "counter_write seen 1 3 40\ncheck_counter seen(1)\ncheck_counter seen(1) bytes < 40"
    assert run("arrays", text).failures == (
        "t.stf:2: seen(1) packets is 3, expected == 0",
        "t.stf:2: seen(1) bytes is 40, expected == 0",
        "t.stf:3: seen(1) bytes is 40, expected < 40",
    )


@pytest.mark.parametrize(
    ("program", "text", "complaint"),
    [
        ("tables", "add by_nothing key:1 drop()", "no table by_nothing; there are Forward.by_exact, "),
        ("tables", "add by_ key:1 drop()", "no table by_; there are"),
        ("tables", "add by_exact hdr.key:1 drop()", "no key field hdr.key in Forward.by_exact; there are"),
        ("tables", "add by_exact key:1 key:2 drop()", "key field hdr.probe.key of Forward.by_exact is given twice"),
        ("tables", "add by_exact key:1 dropp()", "no action of Forward.by_exact: dropp; there are"),
        ("tables", "add by_exact key:1 answer(port:1)", "action Forward.answer takes (result), not (port)"),
        ("tables", "add by_exact key:1 answer(result:0x10000)", "result of Forward.answer is 65536, which does not"),
        ("tables", "add by_exact key:0x1* drop()", "key field hdr.probe.key (exact): '0x1*' is not a value for it"),
        ("tables", "add by_range 1 low_half:9..3 NoAction()", "9…3 is no range of 16 bits"),
        ("tables", "add by_prefix address:0/40 drop()", "prefix length 40 of 32 bits"),
        ("tables", "add by_ternary key:0x1 drop()", "needs a priority between its name and the key; the largest wins"),
        ("tables", "add constant 1 drop()", "its entries are constant"),
        ("tables", "setdefault by_ternary drop()", "its default action is constant"),
        ("tables", "add by_exact key:1 drop()\nadd by_exact key:1 drop()", "exists"),
        ("tables", "add by_exact key:1 drop() | NoAction()", "2 actions for one entry of table Forward.by_exact"),
        ("tables", "packet 600 00", "port 600 is not one of 0 … 511"),
        ("tables", "expect 511 00", "port 511 is not one of 0 … 510"),
        ("tables", f"packet 0 {'00' * 16_385}", "at most 16384 bytes"),
        ("tables", "no_packet", "no_packet is about the packet before it, and there is none"),
        ("tables", "register_read wide 0", "no register wide; there are none"),
        ("arrays", "register_read wide 4", "the register has 4 cells"),
        ("arrays", "register_write narrow 0 32", "does not fit 5 bits"),
        ("arrays", f"counter_write seen 0 {1 << 64} 1", "a count of 18446744073709551616 does not fit 64 bits"),
        ("arrays", "check_counter seen(4)", "the counter has 4 cells"),
        ("arrays", "check_counter hits($a)", "no entry has the label $a; there are none"),
        ("meters", "meter_set_rates frames 4 1:1 2:2", "the meter has 4 cells"),
        ("meters", "meter_set_rates frames 0 1:1", "takes two rates, the committed and the peak one, not 1"),
        ("meters", "meter_array_set_rates frames 2:1 1:1", "the committed rate is larger than the peak rate"),
        ("arrays", "mc_node_associate 1 0", "group 1 or node 0 is not there: create both before"),
        ("arrays", "mc_node_create 1 2\nmc_node_update 3 2", "node 3 is not there; the nodes are 0 … 0"),
        ("arrays", "mirroring_delete 5", "clone session 5 does not exist"),
        ("validity", "add shape first.valid:1 $valid$:1 copy()", "may be any of hdr.first.$valid$, hdr.second.$valid$"),
    ],
)
def test_statements_that_do_not_fit_the_program(program: str, text: str, complaint: str) -> None:
    with pytest.raises(StfError) as error:
        run(program, text)
    assert str(error.value).startswith(f"t.stf:{len(text.splitlines())}: ")
    assert complaint in str(error.value)
