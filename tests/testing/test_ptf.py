"""p4lang's own PTF on an emulated switch: packets come out as the program requires, and wrong expectations fail."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from weir.emulator.entries import EmulatorError
from weir.testing import switch_under_test
from weir.tests.paths import ROOT
from weir.tests.ptf.fabric_tests import TESTS
from weir.tests.support.commands import WEIR, weir

pytestmark = pytest.mark.skipif(find_spec("ptf") is None, reason="ptf is not installed: pip install --no-deps ptf")

FIREWALL = ROOT / "examples" / "p4_program" / "firewall.json"
PATIENCE_S = 900
"""Time limit on a busy machine, in seconds."""

BY_P4RUNTIME = """
from finsy.proto import p4r
import ptf
import ptf.testutils as tu
from ptf.base_tests import BaseTest
from weir.tests.emulator.p4runtime.p4runtime_rig import Client, load_config

FRAME = bytes.fromhex("020000000002 020000000001 88b5") + bytes(9000)  # a jumbo frame


class PacketsOfTheController(BaseTest):
    def setUp(self):
        super().setUp()
        self.dataplane = ptf.dataplane_instance
        self.client = Client(tu.test_param_get("grpcaddr"), device_id=0)
        self.stream = self.client.primary()

    def tearDown(self):
        self.stream.close()
        self.client.channel.close()
        super().tearDown()

    def runTest(self):
        assert self.client.set_config(load_config()) == "OK"
        out = p4r.StreamMessageRequest()
        out.packet.payload = FRAME
        for number, value in ((1, 3), (2, 0), (3, 0)):
            out.packet.metadata.add(metadata_id=number, value=bytes([value]))
        self.stream.send(out)
        tu.verify_packets(self, FRAME, [3])
        tu.send_packet(self, 2, FRAME)
        came = self.stream.receive().packet
        assert came.payload == FRAME
        assert came.metadata[0].value == bytes([2])
        self.dataplane.port_down(0, 3)
        self.stream.send(out)
        tu.verify_no_other_packets(self, timeout=0.5)
        self.dataplane.port_up(0, 3)
"""

WRONG = """
import ptf
import ptf.testutils as tu
from ptf.base_tests import BaseTest


class ExpectsWhatIsRefused(BaseTest):
    def runTest(self):
        self.dataplane = ptf.dataplane_instance
        packet = tu.simple_udp_packet()
        tu.send_packet(self, 2, packet)
        tu.verify_packet(self, packet, 1, timeout=0.2)
"""


def run(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """`weir ptf` with these words, in a folder of the test's."""
    command = [str(WEIR), "ptf", "--grpc-addr", "127.0.0.1:0", *map(str, words)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_the_example_passes(tmp_path: Path) -> None:
    done = run(tmp_path, "--program", FIREWALL, "--test-dir", ROOT / "examples" / "ptf")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^firewall\.(\w+) \.\.\. (\w+)$", done.stderr, re.MULTILINE) == [
        ("WhoeverIsInsideReachesEverybody", "ok"),
        ("OnlyListedSourcesComeIn", "ok"),
    ]


def test_the_switch_program_passes(tmp_path: Path) -> None:
    """Its tests meet any switch: the real bmv2 in tests/bmv2."""
    program = ROOT / "p4src" / "build" / "fabric.json"
    done = run(tmp_path, "--program", program, "--ports", "1-4", "--test-dir", ROOT / "tests" / "ptf" / "fabric")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^(\w+\.\w+) \.\.\. (\w+)$", done.stderr, re.MULTILINE) == [(name, "ok") for name in TESTS]


def test_tests_set_the_program_and_speak_p4runtime(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "controller.py").write_text(BY_P4RUNTIME)
    done = run(tmp_path, "--test-dir", tmp_path / "tests")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Ran 1 test" in done.stderr


def test_a_test_that_does_not_hold_fails_the_command(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "wrong.py").write_text(WRONG)
    done = run(tmp_path, "--program", FIREWALL, "--ports", "1-2", "--test-dir", tmp_path / "tests")
    assert done.returncode == 1
    assert "FAIL: wrong.ExpectsWhatIsRefused" in done.stderr
    assert "Expected packet was not received" in done.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--ports", "7-0"), 'weir: --ports "7-0" is no range of ports; write it like 0-7\n'),
        (("--ports", "all"), 'weir: --ports "all" is no range of ports; write it like 0-7\n'),
        (("--program", "absent.json"), "weir: "),
        (("--grpc-addr", "192.0.2.1:1"), "weir: "),
    ],
)
def test_an_impossible_run_is_one_line(words: tuple[str, ...], complaint: str, tmp_path: Path) -> None:
    ended = weir("ptf", "--grpc-addr", "127.0.0.1:0", *words, "--test-dir", tmp_path, folder=tmp_path)
    assert ended.status == 2
    assert ended.err.startswith(complaint)
    assert ended.err.count("\n") == 1


def test_without_ptf_it_says_how_to_get_it(tmp_path: Path) -> None:
    code = "import shutil, sys; shutil.which = lambda *_, **__: None; sys.argv = ['weir', 'ptf', '--test-dir', '.']\n"
    code += "from weir.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "weir: weir ptf needs ptf, which is not installed: pip install --no-deps ptf scapy\n"


def test_outside_of_ptf_there_is_no_switch_under_test() -> None:
    with pytest.raises(EmulatorError, match="start the tests by weir ptf"):
        switch_under_test()
