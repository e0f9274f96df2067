"""STF text to statements, and errors for invalid text."""

from __future__ import annotations

from pathlib import Path

import pytest

from weir.emulator.stf import StfError, read_test
from weir.emulator.stf.reader import parse
from weir.emulator.stf.statements import (
    Add,
    Call,
    CheckCounter,
    CheckRegister,
    Expect,
    NoPacket,
    Packet,
    RemoveAll,
    SetDefault,
    SwitchCommand,
    Wait,
)


def test_frames() -> None:
    text = """
    # a comment, and an empty line

    packet 0 0102 0a0B   # data in any case and grouping
    EXPECT 3 01** *a0b$
    expect 12 0
    expect 2
    expect 2 $
    no_packet
    wait
    """
    assert parse(text, "t.stf") == (
        Packet(4, 0, bytes.fromhex("01020a0b")),
        Expect(5, 3, "01***A0B", True),
        Expect(6, 12, "0", False),
        Expect(7, 2, None, False),
        Expect(8, 2, "", True),
        NoPacket(9),
        Wait(10),
    )


def test_entries() -> None:
    text = """add c.t 0x10 h.a:0x0a/8 h.b$:0b1** "h.c"[1].valid:5 "my.act"(x:1, "y":0x2) = $label
    add t h.a:10..20 h.b:0x1&&&0xf a() | c.b(p:0o17)
    setdefault c.t act(v:7)
    remove ALL"""
    assert parse(text, "t.stf") == (
        Add(
            1,
            "c.t",
            16,
            (("h.a", "0x0a/8"), ("h.b$", "0b1**"), ("h.c[1].valid", "5")),
            (Call("my.act", (("x", 1), ("y", 2))),),
            "$label",
        ),
        Add(2, "t", None, (("h.a", "10..20"), ("h.b", "0x1&&&0xf")), (Call("a", ()), Call("c.b", (("p", 15),))), None),
        SetDefault(3, "c.t", Call("act", (("v", 7),))),
        RemoveAll(4),
    )


def test_checks_and_commands() -> None:
    text = """check_counter c(3)
    check_counter c($a) bytes >= 0x10
    check_register r(0) != 5
    mirroring_add 5 2
    mc_node_create 400 1 2 3
    counter_write a.c 1 2 3
    meter_set_rates m 2 0.000005:4 0.5:5
    register_reset r"""
    assert parse(text, "t.stf") == (
        CheckCounter(1, "c", 3, None, "==", 0),
        CheckCounter(2, "c", "$a", "bytes", ">=", 16),
        CheckRegister(3, "r", 0, "!=", 5),
        SwitchCommand(4, "mirroring_add", "", (5, 2), ()),
        SwitchCommand(5, "mc_node_create", "", (400, 1, 2, 3), ()),
        SwitchCommand(6, "counter_write", "a.c", (1, 2, 3), ()),
        SwitchCommand(7, "meter_set_rates", "m", (2,), ((0.000005, 4), (0.5, 5))),
        SwitchCommand(8, "register_reset", "r", (), ()),
    )


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("pakcet 0 00", "unknown command 'pakcet'; there are add, check_counter"),
        ("packet 0 012", "packet of 3 digits '012': give an even number of hex digits"),
        ("packet 0", "packet of 0 digits ''"),
        ("packet eth0 00", "packet takes a port number and hex digits, not 'eth0 00'"),
        ("packet 0 01**", "give an even number of hex digits"),
        ("expect 0 01$02", "expected frame '01$02': give hex digits"),
        ("add t h.a:1", "a key field or action is wanted where the end of the line stands"),
        ("add t h.a 1 act()", "':' is wanted where '1' stands"),
        ("add t h.a:1 act(x:0x*1)", "x 0x*1 is not a whole number"),
        ("add t h.a:1 act() act()", "'act' after the end of the statement"),
        ("add t h.a:1 act(x:1 y:2)", "',' is wanted where 'y' stands"),
        ("setdefault t act(", "a parameter is wanted where the end of the line stands"),
        ("remove t", "'all' is wanted where 't' stands"),
        ("check_counter c(1) seconds == 3", "'seconds' is not what a counter counts"),
        ("check_counter c(1) packets = 3", "'=' is not a comparison: == != < <= > >="),
        ("check_register r($a) == 3", "register cell '$a' is not a number"),
        ("mirroring_add 5", "mirroring_add takes SESSION PORT"),
        ("mirroring_add 5 6 7", "'7' after the end of the statement"),
        ("mc_node_create 1", "mc_node_create takes RID PORT..."),
        ("add t ; a()", "';' has no place in STF"),
        ("packet " + "9" * 5000 + " 00", "is not a whole number"),
        ("check_register r(0) == 0x" + "f" * 6000, "is not a whole number"),
        ("meter_set_rates m 0 0x1:5", "rate 0x1 is not a decimal number"),
        ("wait 3", "'3' after the end of the statement"),
    ],
)
def test_complaints_name_file_and_line(line: str, complaint: str) -> None:
    with pytest.raises(StfError) as error:
        parse(f"# first\n{line}\n", "name.stf")
    assert str(error.value).startswith("name.stf:2: ")
    assert complaint in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StfError, match=r"nothing\.stf: cannot be read"):
        read_test(tmp_path / "nothing.stf")
