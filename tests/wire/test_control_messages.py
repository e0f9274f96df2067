"""The control service's messages: generated from the .proto as it stands, and carrying every value whole."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from weir.tests.paths import ROOT
from weir.wire import control_pb2 as pb
from weir.wire.control import Abort, Child, FinalRound, Held, Pause, Resume, Resumed, ServerPlan, WorkerPlan
from weir.wire.control_channel import check_address, is_local
from weir.wire.control_messages import Told, from_host, read_held, to_host, told
from weir.wire.errors import WireError

WORKER = WorkerPlan(65_535, 255, 31, 32, 0xFFFF_FFFF, 1 << 31, 1 << 15, 1 << 14, 64, (1, 0xFFFF_FFFF), "9f" * 32)
SERVER = ServerPlan(
    1, 2, 64, (Child(1, 0x0A000001), Child(1 << 31, 0xFFFF_FFFF, 1000)), 3, 1 << 40, 4, (0x0A000001,), "0e" * 32
)


@pytest.mark.skipif(importlib.util.find_spec("grpc_tools") is None, reason="grpcio-tools is not installed")
def test_the_code_is_generated_from_the_messages_as_they_stand(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    subprocess.run([*command, "wire/control.proto"], cwd=ROOT, check=True)
    for name in ("control_pb2.py", "control_pb2.pyi"):
        assert (tmp_path / "wire" / name).read_text() == (ROOT / "wire" / name).read_text(), "run make proto"


@pytest.mark.parametrize(
    "value",
    [
        WORKER,
        SERVER,
        ServerPlan(1, 2, 64, (), 3),
        Pause(7, 255),
        Resume(WORKER),
        Resume(SERVER, (FinalRound(0, 1), FinalRound(1 << 40, 0xFFFF_FFFF))),
        Abort(3, "h4 was silent for 2 s"),
    ],
)
def test_the_controllers_messages_arrive_whole(value: Told) -> None:
    assert told(pb.ToHost.FromString(to_host(value).SerializeToString())) == value


def test_a_hosts_answers_arrive_whole() -> None:
    held = Held(255, 1 << 40, frozenset({(1 << 40) + 1, (1 << 40) + 9}))
    assert read_held(pb.FromHost.FromString(from_host(held).SerializeToString()).held) == held
    message = from_host(Resumed(7, 255))
    assert (message.WhichOneof("content"), message.resumed.generation) == ("resumed", 255)


def test_all_else_that_a_host_is_told_is_no_value() -> None:
    assert told(pb.ToHost()) is None
    assert told(pb.ToHost(waiting=pb.Waiting(reason="x"))) is None


def test_addresses() -> None:
    here = ["unix:/run/weir.sock", "127.0.0.1:9561", "127.8.8.8:0", "[::1]:1", "localhost:65535"]
    elsewhere = ["0.0.0.0:1", "10.0.0.1:9561", "[::]:1", "example.org:80"]
    assert [is_local(check_address(address)) for address in [*here, *elsewhere]] == [True] * 5 + [False] * 4
    for none in ["", "unix:", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "a b:1", "http://x:1"]:
        with pytest.raises(WireError, match="is no address"):
            check_address(none)
