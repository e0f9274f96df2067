"""Clients that stall, vanish and crowd: the server outlives them, and ends whatever they are doing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc

from weir.emulator.p4runtime import P4RuntimeServer
from weir.emulator.p4runtime import server as server_module
from weir.emulator.p4runtime.streams.patience import Patience
from weir.emulator.program import Program, ProgramState
from weir.tests.emulator.p4runtime.p4runtime_rig import (
    EXTERNS,
    INSERT,
    Client,
    Names,
    RecordingDatapath,
    SetConfig,
    entity,
    externs_config,
    load_config,
    load_info,
    outcome,
    wait_until,
)
from weir.tests.emulator.ports.test_command import running
from weir.tests.paths import ROOT

NARROW = [("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0), ("grpc.use_local_subchannel_pool", 1)]
"""A channel that takes little before it is read."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def server_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("p4runtime")]


@contextmanager
def bad_client(address: str) -> Iterator[subprocess.Popen[str]]:
    """A process of `bad_client` that is at work."""
    command = [sys.executable, "-m", "weir.tests.emulator.p4runtime.streams.bad_client", address]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "busy\n"
            yield process
        finally:
            process.kill()


@contextmanager
def knocking(port: int) -> Iterator[None]:
    """Connections that say nothing, half of something or nonsense, some of them half closed."""
    with ExitStack() as stack:
        for words in (b"", PREFACE, PREFACE[:10], os.urandom(50), bytes.fromhex("160301")):
            for half_closed in (False, True):
                client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                client.sendall(words)
                if half_closed:
                    client.shutdown(socket.SHUT_WR)
        yield


def test_a_server_survives_a_killed_client_and_stops_in_a_stall() -> None:
    with P4RuntimeServer([RecordingDatapath()]) as server:
        streams = server._devices[1].clients._arbiters[""].clients
        with bad_client(server.address), knocking(server.port):
            assert streams
        wait_until(lambda: not streams)
        with bad_client(server.address) as process, knocking(server.port):
            process.send_signal(signal.SIGSTOP)
            server.stop()
        wait_until(lambda: not server_threads())


def test_unread_answers_delay_others_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than the server has threads. Of each gRPC itself takes the first message and little of the rest."""
    monkeypatch.setattr(server_module, "_PATIENCE_S", 0.3)
    cancelled: list[None] = []
    limit = Patience.limit

    def noted(patience: Patience, cancel: Callable[[], object]) -> AbstractContextManager[None]:
        def note() -> None:
            cancelled.append(None)
            cancel()

        return limit(patience, note)

    monkeypatch.setattr(Patience, "limit", noted)
    names = Names(load_info())
    large = [names.exact_entry(bytes((i,)), b"\x01", names.call("forward", b"\x01")) for i in range(3)]
    for entry in large:
        entry.metadata = bytes(1 << 20)
    with (
        P4RuntimeServer([RecordingDatapath()]) as server,
        Client(server.address) as client,
        grpc.insecure_channel(server.address, options=NARROW) as bad,
    ):
        stream = client.primary()
        assert client.set_config(load_config()) == "OK"
        assert client.write(*((INSERT, entry) for entry in large)) == ["OK"] * 3
        query = p4r.ReadRequest(device_id=1, entities=[entity(p4r.TableEntry())])
        answers = [p4r_grpc.P4RuntimeStub(bad).Read(query) for _ in range(100)]
        client.stub.Capabilities(p4r.CapabilitiesRequest(), timeout=60)
        wait_until(lambda: bool(cancelled))  # else this client may read its answers before the limit
        assert "CANCELLED" in {outcome(partial(list, answer)) for answer in answers}
        stream.close()


def test_streams_that_never_arbitrate_keep_no_controller_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than the server has room for: a controller comes in at once, and they are ended after a while."""
    monkeypatch.setattr(server_module, "_FIRST_WORDS_S", 0.3)
    with P4RuntimeServer([RecordingDatapath()]) as server, Client(server.address) as silent:
        crowd = [silent.stream() for _ in range(40)]
        with Client(server.address) as client:
            stream = client.primary()
            assert {each.ended() for each in crowd} <= {"RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}
            assert client.set_config(load_config()) == "OK"
            stream.close()


def test_weir_switch_ends_while_a_client_writes(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/p4runtime"
    with (
        running("--no-p4", "--device-id", "1", "--grpc-server-addr", address) as switch,
        bad_client(address),
    ):
        switch.send_signal(signal.SIGTERM)
        switch.communicate(timeout=60)
    assert switch.returncode == 0


def test_a_stopped_server_leaves_the_switch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the switch loads a program, with a digest that a controller has asked for."""
    datapath = RecordingDatapath()
    loading, go_on = threading.Event(), threading.Event()
    start = datapath.start

    def slowly(program: Program, state: ProgramState) -> None:
        loading.set()
        assert go_on.wait(60)
        start(program, state)

    with P4RuntimeServer([datapath]) as server, ThreadPoolExecutor(2) as pool:
        client = Client(server.address)
        stream = client.primary()
        assert client.set_config(externs_config()) == "OK"
        assert client.write((INSERT, p4r.DigestEntry(digest_id=EXTERNS.digests[0].preamble.id))) == ["OK"]
        assert datapath.on_digest is not None
        monkeypatch.setattr(datapath, "start", slowly)
        asked = pool.submit(client.set_config, externs_config(), SetConfig.RECONCILE_AND_COMMIT)
        try:
            assert loading.wait(60)
            stopped = pool.submit(server.stop)
            assert stream.ended() in ("CANCELLED", "UNAVAILABLE")
        finally:
            go_on.set()
        stopped.result(60)
        assert asked.result(60) in ("CANCELLED", "UNAVAILABLE")
        wait_until(lambda: not server_threads())
        assert [datapath.on_packet_in, datapath.on_digest, datapath.on_poll] == [None, None, None]
        client.channel.close()
