"""The control service's messages: generated from the .proto as it stands, and carrying every value whole."""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from weir.tests.paths import ROOT
from weir.tests.support.errors import raises
from weir.wire import control_pb2 as pb
from weir.wire.control import (
    MAX_COUNT,
    MAX_STAGE,
    Abort,
    Child,
    FinalRound,
    Held,
    JobReport,
    Pause,
    Resume,
    Resumed,
    ServerPlan,
    TrafficClass,
    WorkerPlan,
)
from weir.wire.control_channel import check_address, default_address, is_private
from weir.wire.control_messages import (
    ToHostMessage,
    from_host,
    read_held,
    read_report,
    read_to_host,
    report_message,
    to_host,
)
from weir.wire.errors import WireError
from weir.wire.frames import BULK_PRIORITY, JOB_CLASSES

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
        TrafficClass(65_535, 5),
        Pause(7, 255),
        Resume(WORKER),
        Resume(SERVER, (FinalRound(0, 1), FinalRound(1 << 40, 0xFFFF_FFFF))),
        Resume(WORKER, (FinalRound(1, 1),), (0, 2, 1 << 40)),
        Abort(3, "h4 was silent for 2 s"),
    ],
)
def test_the_controllers_messages_arrive_whole(value: ToHostMessage) -> None:
    assert read_to_host(pb.ToHost.FromString(to_host(value).SerializeToString())) == value


@pytest.mark.parametrize("plan", [WORKER, SERVER])
def test_plans_keep_their_traffic_class(plan: WorkerPlan | ServerPlan) -> None:
    """Equal plans may differ in it, so it is compared apart; a controller that names none means bulk."""
    for priority in JOB_CLASSES:
        message = pb.ToHost.FromString(to_host(replace(plan, traffic_class=priority)).SerializeToString())
        read = read_to_host(message)
        assert isinstance(read, WorkerPlan | ServerPlan)
        assert read.traffic_class == priority
    message.Clear()
    message.worker_plan.job = 1
    unnamed = read_to_host(message)
    assert isinstance(unnamed, WorkerPlan)
    assert unnamed.traffic_class == BULK_PRIORITY


def test_a_hosts_answers_arrive_whole() -> None:
    beyond = frozenset({(1 << 40) + 1, (1 << 40) + 9})
    held = Held(255, 1 << 40, beyond, frozenset({(1 << 40) - 3, (1 << 40) + 9}))
    assert read_held(pb.FromHost.FromString(from_host(held).SerializeToString()).held) == held
    message = from_host(Resumed(7, 255))
    assert (message.WhichOneof("content"), message.resumed.generation) == ("resumed", 255)


@pytest.mark.parametrize(
    "report",
    [
        JobReport(0),
        JobReport(7, 0, "", 0.0, 0.0),
        JobReport(MAX_COUNT, MAX_COUNT, "s" * MAX_STAGE, math.inf, 0.5, 3, 1, 2, MAX_COUNT, 4),
    ],
)
def test_a_report_arrives_whole(report: JobReport) -> None:
    message = pb.FromHost(report=report_message(report))
    assert read_report(pb.FromHost.FromString(message.SerializeToString()).report) == report


@pytest.mark.parametrize(
    ("values", "value"),
    [
        ({"step": -1}, -1),
        ({"step": MAX_COUNT + 1}, MAX_COUNT + 1),
        ({"step": True}, True),
        ({"step": 1, "steps_left": -2}, -2),
        ({"step": 1, "steps": 0}, 0),
        ({"step": 1, "loss": "low"}, "low"),
        ({"step": 1, "stage": "s" * (MAX_STAGE + 1)}, "s" * (MAX_STAGE + 1)),
        ({"step": 1, "stage": "\ud800"}, "\ud800"),
        ({"step": 1, "stage": "a\x1b[31m"}, "a\x1b[31m"),
    ],
)
def test_a_report_out_of_range_is_an_error(values: dict[str, Any], value: object) -> None:
    with raises(WireError, place="report", value=value):
        JobReport(**values)


def test_merged_reports_keep_the_newest_step_and_sum_the_rest() -> None:
    before = JobReport(6, 4, "warm-up", 0.9, 0.1, 2, 100, 10, 1000, 7)
    after = JobReport(7, 3, "decay", 0.8, None, 1, 50, 5, 500, 20)
    assert after.after(before) == JobReport(7, 3, "decay", 0.8, None, 3, 150, 15, 1500, 27)


def test_all_else_that_a_host_is_told_is_no_value() -> None:
    assert read_to_host(pb.ToHost()) is None
    assert read_to_host(pb.ToHost(waiting=pb.Waiting(reason="x"))) is None


def test_addresses() -> None:
    ports = ["127.0.0.1:9561", "[::1]:1", "localhost:65535", "10.0.0.1:9561", "[::]:1", "example.org:80"]
    assert is_private(check_address("unix:/run/weir.sock"))
    assert not any(is_private(check_address(address)) for address in ports)
    for none in ["", "unix:", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "a b:1", "http://x:1"]:
        with pytest.raises(WireError, match="is no address"):
            check_address(none)


def test_the_default_address_is_in_a_folder_of_this_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_address() == f"unix:{tmp_path}/weir/control"
    (tmp_path / "weir").mkdir(mode=0o700)
    assert default_address() == f"unix:{tmp_path}/weir/control"
    (tmp_path / "weir").chmod(0o777)
    with raises(WireError, place=str(tmp_path / "weir"), value=str(tmp_path / "weir")):
        default_address()


def test_a_link_in_place_of_the_default_folder_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "weir").symlink_to(tmp_path)
    with raises(WireError, place=str(tmp_path / "weir"), value=str(tmp_path / "weir")):
        default_address()
