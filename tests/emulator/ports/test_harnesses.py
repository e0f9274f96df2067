"""Harnesses in docs/weir-switch.md: each row has existing tests, and its flags are accepted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from weir.emulator.ports.options import parse
from weir.tests.paths import ROOT

PAGE: Final = (ROOT / "docs" / "weir-switch.md").read_text()
COMMAND: Final = "tests/emulator/ports/test_command.py::"

TESTS: Final[Mapping[str, Sequence[str]]] = {
    "`-i 1@s1-eth1 …`, `--device-id`": [f"{COMMAND}test_the_command_line_of_mininet_harnesses"],
    "`--thrift-port 9090`": [
        f"{COMMAND}test_the_command_line_of_mininet_harnesses",
        "tests/emulator/ports/test_control.py::test_the_command_talks_to_a_running_switch",
    ],
    "`--nanolog": [f"{COMMAND}test_the_command_line_of_mininet_harnesses"],
    "`--pcap=FOLDER`": [
        f"{COMMAND}test_folders_for_captures_and_files_for_logs",
        "tests/emulator/ports/test_ports.py::test_captures_of_what_came_and_went",
    ],
    "`--log-console": [
        f"{COMMAND}test_folders_for_captures_and_files_for_logs",
        f"{COMMAND}test_a_log_file_has_lines_for_each_packet_and_its_tables",
    ],
    "SetForwardingPipelineConfig": [
        "tests/emulator/p4runtime/test_p4runtime_large.py::test_the_program_may_come_in_pis_message_around_it"
    ],
    "a program from which p4c has removed a table": [
        "tests/emulator/p4runtime/test_p4runtime_config.py::test_a_table_that_p4c_has_left_out_is_in_p4info_alone"
    ],
    "`PYTHONPATH`": [f"{COMMAND}test_packages_of_a_foreign_pythonpath_are_not_taken"],
    "SIGTERM, SIGINT": [f"{COMMAND}test_a_signal_ends_it_with_its_counters"],
}
"""Tests by the beginning of a row."""

VALUES: Final = {
    "-i": "1@s1-eth1",
    "--device-id": "3",
    "--grpc-server-addr": "0.0.0.0:50051",
    "--cpu-port": "255",
    "--thrift-port": "9090",
    "--nanolog": "ipc:///tmp/bm-0-log.ipc",
    "--notifications-addr": "ipc:///tmp/bm-0.ipc",
    "--log-file": "s1.log",
    "--log-level": "debug",
    "-L": "trace",
}


def rows() -> list[str]:
    """The first cells of the table."""
    section = PAGE[PAGE.index("### Compatibility with other harnesses") :]
    table = section[: section.index("## At run time")]
    return [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("|")][2:]


def test_every_row_has_its_tests_and_they_are_there() -> None:
    tests_of = {row: [found for start, found in TESTS.items() if row.startswith(start)] for row in rows()}
    assert {row: len(found) for row, found in tests_of.items()} == dict.fromkeys(tests_of, 1)
    assert len(tests_of) == len(TESTS)
    for found in TESTS.values():
        for path, _, name in (test.partition("::") for test in found):
            assert f"def {name}(" in (ROOT / path).read_text(), name


FLAGS: Final = sorted({flag for row in rows() for flag in re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", row)})


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_of_the_table_is_taken(flag: str) -> None:
    words = [flag, VALUES[flag]] if flag in VALUES else [flag]
    parse([*words, *([] if flag == "--no-p4" else ["program.json"])])


def test_flags_without_effect_say_so() -> None:
    (row,) = [each for each in rows() if each.startswith("`--nanolog")]
    for flag in re.findall(r"--[a-z-]+", row):
        words = [flag, VALUES[flag]] if flag in VALUES else [flag]
        (note,) = parse([*words, "program.json"]).notes
        assert note.startswith(f"{flag}: ignored: ")
