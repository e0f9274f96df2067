"""A running server with one switch, with and without a primary and a program."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from weir.emulator.p4runtime import P4RuntimeServer
from weir.emulator.switch import Switch
from weir.tests.emulator.p4runtime.p4runtime_rig import (
    Client,
    Names,
    RecordingDatapath,
    Stream,
    externs_config,
    load_config,
    load_info,
    stages_config,
)


@pytest.fixture
def datapath() -> RecordingDatapath:
    return RecordingDatapath()


@pytest.fixture
def server(datapath: RecordingDatapath) -> Iterator[P4RuntimeServer]:
    """A server for one switch without a program."""
    with P4RuntimeServer([datapath]) as server:
        yield server


@pytest.fixture
def client(server: P4RuntimeServer) -> Iterator[Client]:
    """A client without a stream."""
    client = Client(server.address)
    yield client
    client.channel.close()


@pytest.fixture
def stream(client: Client) -> Iterator[Stream]:
    """The stream of `client`, which is primary."""
    stream = client.primary()
    yield stream
    stream.close()


@pytest.fixture
def loaded(client: Client, stream: Stream) -> Client:
    """`client` as primary of a switch that runs `every_entity.p4`."""
    assert client.set_config(load_config(cookie=7)) == "OK"
    return client


@pytest.fixture(scope="session")
def names() -> Names:
    return Names(load_info())


@pytest.fixture
def switch() -> Switch:
    """A switch that runs packets, for `externs`."""
    return Switch(1, ports=[0, 1, 2])


@pytest.fixture
def externs_server(switch: Switch) -> Iterator[P4RuntimeServer]:
    with P4RuntimeServer([switch]) as server:
        yield server


@pytest.fixture
def externs_client(externs_server: P4RuntimeServer) -> Iterator[Client]:
    client = Client(externs_server.address)
    yield client
    client.channel.close()


@pytest.fixture
def externs_stream(externs_client: Client) -> Iterator[Stream]:
    """The stream of `externs`."""
    stream = externs_client.primary()
    yield stream
    stream.close()


@pytest.fixture
def externs(externs_client: Client, externs_stream: Stream) -> Client:
    """The primary of `switch`, which runs `externs.p4`."""
    assert externs_client.set_config(externs_config()) == "OK"
    return externs_client


@pytest.fixture
def stages(externs_client: Client, externs_stream: Stream) -> Client:
    """The primary of `switch`, which runs `stages.p4`."""
    assert externs_client.set_config(stages_config()) == "OK"
    return externs_client
