"""Valid, wrong and broken messages of every kind, by the hundred thousand: the right codes, whole state, no leak.

Most go to the server's methods within this process; some thousands travel through gRPC, on streams that are cut.
"""

from __future__ import annotations

import gc
import random
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import grpc
import pytest
from finsy.proto import U128, p4i, p4r

from weir.emulator.p4runtime import P4RuntimeServer
from weir.emulator.switch import Switch
from weir.tests.emulator.harness import seeded_random
from weir.tests.emulator.p4runtime.p4runtime_fuzz import (
    PROGRAMS,
    Maker,
    damaged,
    ids_of,
    mutate,
    pipeline_request,
    reparsed,
    stream_messages,
)
from weir.tests.emulator.p4runtime.p4runtime_rig import (
    Client,
    grpc_code,
    load_config,
    load_info,
    outcome,
    wait_until,
)
from weir.tests.emulator.p4runtime.servicer_rig import CONFIGS, WHOLE, Context, Ended, ServicerRig

OF_AN_UPDATE = {
    *("INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "FAILED_PRECONDITION"),
    *("RESOURCE_EXHAUSTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
}
MEETS = {"OK", "NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED"}
"""Possible codes of a well-formed update, depending on the present state."""
MAY_NOT = ("cannot be mixed in", "no key", "needs an action", "was made with max_size")
"""Messages that make a well-formed update invalid: conflicts with the present state, or details that `Maker`
ignores.
"""
OF_A_STREAM = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED"}
STREAM_EVERY = 4
PIPELINE_EVERY = 10
"""Interval of rounds of four calls in which one round has a stream, or a pipeline."""


@pytest.fixture(params=list(CONFIGS))
def rig(request: pytest.FixtureRequest) -> Iterator[ServicerRig]:
    rig = ServicerRig(request.param)
    yield rig
    rig.device.detach()


def fuzz_writes(rig: ServicerRig, rng: random.Random, count: int, checked: float) -> Counter[str]:
    """`count` updates in batches of every atomicity; of a share of the batches the whole state is compared."""
    maker, ids, codes = Maker(rig.info, rng), ids_of(rig.info), Counter[str]()
    done = 0
    while done < count:
        size = rng.choice((1, 1, 1, 4, 12))
        head = rng.choice((maker.few(8) << 40, 1 << 40 | maker.few(16) << 16, maker.few(48)))  # one for each program
        rig.switch.forward(head.to_bytes(6, "big") + bytes(10), rng.randrange(4))
        done += size
        updates, valid = [], []
        for _ in range(size):
            update = maker.update()
            valid.append(rng.random() < 0.5)
            if not valid[-1]:
                for _ in range(rng.choice((1, 1, 2, 5))):
                    mutate(update, rng, ids)
                if rng.random() < 0.1:
                    update = reparsed(update, rng)
            updates.append(update)
        request = rig.request(*updates, atomicity=rng.choice((0, 0, 1, 2)))
        before = rig.state() if rng.random() < checked and (size == 1 or request.atomicity) else None
        code, parts, messages = rig.write(request)
        if code not in ("OK", "UNKNOWN"):
            assert (code, request.atomicity) == ("UNIMPLEMENTED", p4r.WriteRequest.DATAPLANE_ATOMIC), (code, messages)
            parts = []
        else:
            assert len(parts) == size
        if request.atomicity and code == "UNKNOWN":
            assert sum(part != "ABORTED" for part in parts) == 1, "one update is to blame, and all are taken back"
        allowed = OF_AN_UPDATE | {"OK"} | ({"ABORTED"} if request.atomicity else set())
        assert allowed.issuperset(parts), (parts, messages)
        for part, message, well_formed, update in zip(parts, messages, valid, updates, strict=bool(parts)):
            assert not well_formed or part in MEETS | {"ABORTED"} or _excused(rig.info, part, message, update), (
                *(part, message, update),
            )
        if before is not None and code != "OK":
            assert rig.state() == before, request
        codes.update(parts)
    return codes


def _excused(info: p4i.P4Info, code: str, message: str, update: p4r.Update) -> bool:
    """Return whether P4Info or the state explains this failure of a well-formed update."""
    entry = update.entity.table_entry
    tables = {table.preamble.id: table for table in info.tables}
    if code == "PERMISSION_DENIED":
        scopes = {ref.id: ref.scope for ref in tables[entry.table_id].action_refs}
        constant = tables[entry.table_id].is_const_table or tables[entry.table_id].const_default_action_id
        return bool(constant) or scopes[entry.action.action.action_id] != p4i.ActionRef.TABLE_AND_DEFAULT
    if code == "INVALID_ARGUMENT":
        return any(reason in message for reason in MAY_NOT)
    return code == "UNIMPLEMENTED" and "constant" in message


def fuzz_reads(rig: ServicerRig, rng: random.Random, count: int) -> Counter[str]:
    maker, ids, codes = Maker(rig.info, rng), ids_of(rig.info), Counter[str]()
    before = rig.state()
    for _ in range(count // 5):
        queries = [maker.update().entity for _ in range(5)]
        for query in queries:
            for _ in range(rng.randrange(3)):
                mutate(query, rng, ids)
        request = p4r.ReadRequest(device_id=1, entities=queries)
        code, parts, _ = rig.read(request)
        assert code in ("OK", "UNKNOWN")
        assert len(parts) == 5
        assert (OF_AN_UPDATE - {"ALREADY_EXISTS", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"} | {"OK"}).issuperset(
            parts
        )
        codes.update(parts)
    assert rig.state() == before
    return codes


@pytest.mark.parametrize("count", [3_000, pytest.param(32_000, marks=pytest.mark.long)])
def test_updates_of_every_kind(rig: ServicerRig, count: int) -> None:
    rng = seeded_random()
    codes = fuzz_writes(rig, rng, count, 0.05)
    assert {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "ABORTED"} <= set(codes)
    codes = fuzz_reads(rig, rng, 2_000)
    assert {"OK", "INVALID_ARGUMENT"} <= set(codes)
    before = rig.state(colors=False)
    assert rig.set_config(p4r.SetForwardingPipelineConfigRequest.RECONCILE_AND_COMMIT) == "OK"
    assert rig.state(colors=False) == before
    rig.clear()
    _nothing_is_left(rig)


def _nothing_is_left(rig: ServicerRig) -> None:
    """The services remember nothing of entries that are gone."""
    pipeline = rig.device._pipeline
    assert pipeline is not None
    for table in pipeline.services.tables.values():
        assert not table._metadata
        assert not table.ages
    for profile in pipeline.services.profiles.values():
        assert not profile._references
        assert not any(profile._users.values())
        assert not profile._one_shots


def test_p4infos_of_any_kind_are_verified_or_refused(rig: ServicerRig) -> None:
    rng, ids = seeded_random(), ids_of(rig.info)
    state, before = rig.switch.state, rig.state()
    request = p4r.SetForwardingPipelineConfigRequest(device_id=1, election_id=U128.encode(1))
    codes = Counter[str]()
    for _ in range(400):
        request.config.p4info.CopyFrom(rig.info)
        request.config.p4_device_config = CONFIGS_BYTES[rig.info.SerializeToString(deterministic=True)]
        for _ in range(rng.randrange(1, 6)):
            mutate(request.config.p4info, rng, ids)
        request.action = p4r.SetForwardingPipelineConfigRequest.VERIFY
        context = Context()
        try:
            rig.servicer.SetForwardingPipelineConfig(request, context.as_grpcs())
        except Ended:
            assert context.code == "INVALID_ARGUMENT", context.details_text
        codes[context.code] += 1
    assert set(codes) == {"OK", "INVALID_ARGUMENT"}
    assert rig.switch.state is state
    assert rig.state() == before


CONFIGS_BYTES = {
    info.SerializeToString(deterministic=True): config().p4_device_config for info, config in CONFIGS.values()
}


def test_stream_messages_of_every_kind(rig: ServicerRig) -> None:
    rng, ids = seeded_random(), ids_of(rig.info)
    metadata = next((h.metadata for h in rig.info.controller_packet_metadata if h.preamble.name == "packet_out"), ())
    sent = 0
    for _ in range(4_000):
        request = p4r.StreamMessageRequest()
        if rng.random() < 0.6:
            request.packet.payload = rng.randbytes(rng.choice((0, 1, 14, 200, 9_000)))
            for field in metadata:
                request.packet.metadata.add(metadata_id=field.id, value=b"\x01")
        elif rng.random() < 0.7:
            digest_id = rng.choice((0, *ids, *(digest.preamble.id for digest in rig.info.digests)))
            request.digest_ack.digest_id, request.digest_ack.list_id = digest_id, rng.randrange(5)
        else:
            request.other.type_url = "example.com/x"
        if rng.random() < 0.5:
            mutate(request, rng, ids)
        if request.WhichOneof("update") == "arbitration":
            continue
        rig.servicer._handle(rig.session, request)
        sent += 1
    rig.session.close()
    told = map(p4r.StreamMessageResponse.FromString, rig.session.messages())
    answers = [answer for answer in told if answer.WhichOneof("update") == "error"]
    assert 0 < len(answers) < sent
    for answer in answers:
        assert grpc_code(answer.error.canonical_code) in ("INVALID_ARGUMENT", "UNIMPLEMENTED"), answer
        assert answer.error.WhichOneof("details") is not None


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("count", [pytest.param(4_000, marks=pytest.mark.long)])
def test_memory_stays_flat(count: int) -> None:
    rng, rig = seeded_random(), ServicerRig("every_entity")

    def round_of(count: int) -> int:
        fuzz_writes(rig, rng, count, 0)
        rig.clear()
        return resident_bytes()

    first = round_of(3 * count // 2)
    grown = [round_of(count) - first for _ in range(3)]
    rig.device.detach()
    assert min(grown) < 12 << 20, grown


# -- through gRPC


@pytest.fixture
def wire() -> Iterator[tuple[P4RuntimeServer, Client]]:
    """A server with a program and its primary; when it has stopped, no thread of it may be left."""
    before = {thread.ident for thread in threading.enumerate()}
    with P4RuntimeServer([Switch(1, ports=[0, 1, 2, 3])]) as server:
        client = Client(server.address)
        stream = client.primary()
        assert client.set_config(load_config()) == "OK"
        yield server, client
        stream.close()
        client.channel.close()
    wait_until(lambda: not [t for t in threading.enumerate() if t.ident not in before and "p4runtime" in t.name])


@pytest.mark.parametrize(
    "rounds", [700, pytest.param(125_000, marks=[pytest.mark.long(minutes=13), pytest.mark.timeout(3600)])]
)
def test_broken_bytes_get_codes_and_harm_nothing(
    wire: tuple[P4RuntimeServer, Client], rounds: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Four calls a round; in some a stream more, or a pipeline."""
    server, client = wire
    rng = seeded_random()
    sound = load_config()
    maker, ids = Maker(sound.p4info, rng), ids_of(sound.p4info)
    codes, streams, pipelines = Counter[str](), Counter[str](), Counter[str]()
    for program in PROGRAMS:  # compiled before memory is looked at
        client.set_config(p4r.ForwardingPipelineConfig(p4_device_config=program))
    assert client.set_config(sound) == "OK"
    for number in range(rounds):
        if number == rounds // 5:
            warm = resident_bytes()
        write = client.write_request()
        write.updates.extend(maker.update() for _ in range(rng.randrange(1, 4)))
        read = p4r.ReadRequest(device_id=1, entities=[update.entity for update in write.updates])
        get = p4r.GetForwardingPipelineConfigRequest(device_id=1)
        capabilities = p4r.CapabilitiesRequest(device_id=1)
        for method, message in (
            *(("Write", write), ("Read", read), ("GetForwardingPipelineConfig", get)),
            ("Capabilities", capabilities),
        ):
            if rng.random() < 0.5:
                mutate(message, rng, ids)
            content = damaged(message, rng) if rng.random() < 0.7 else message.SerializeToString()
            path = f"/p4.v1.P4Runtime/{method}"
            if method == "Read":
                streamed: grpc.UnaryStreamMultiCallable[bytes, bytes] = client.channel.unary_stream(path)
                codes[outcome(partial(list, streamed(content)))] += 1
            else:
                unary: grpc.UnaryUnaryMultiCallable[bytes, bytes] = client.channel.unary_unary(path)
                codes[outcome(partial(unary, content))] += 1
        if number % STREAM_EVERY == 0:
            messages = stream_messages(rng, ids, number)
            streams[outcome(partial(list, _stream_of_bytes(client)(iter(messages))))] += 1
        if number % PIPELINE_EVERY == 0:
            unary = client.channel.unary_unary("/p4.v1.P4Runtime/SetForwardingPipelineConfig")
            pipelines[outcome(partial(unary, pipeline_request(rng, sound.p4info, ids)))] += 1
            assert client.set_config(sound) == "OK", "no pipeline hinders the next one"
    of_a_call = {"OK", "INTERNAL", "NOT_FOUND", "PERMISSION_DENIED", "INVALID_ARGUMENT", "UNIMPLEMENTED"}
    assert {"OK", "UNKNOWN", "INTERNAL", "NOT_FOUND"} <= set(codes) <= of_a_call | {"UNKNOWN"}, codes
    assert {"OK", "INTERNAL", "INVALID_ARGUMENT"} <= set(pipelines) <= of_a_call, pipelines
    assert {"OK", "INVALID_ARGUMENT"} <= set(streams) <= OF_A_STREAM, streams
    failures = [record for record in caplog.records if record.name.startswith("weir") and record.exc_info]
    assert failures == [], "INTERNAL is for bytes that are no message, and nothing that nobody foresaw"
    assert resident_bytes() - warm < 48 << 20
    assert client.read_outcome(*WHOLE) == ["OK"] * len(WHOLE)
    arbiters = server._devices[1].clients._arbiters
    wait_until(lambda: sum(len(arbiter.clients) for arbiter in arbiters.values()) == 1, 20)


def _stream_of_bytes(client: Client) -> grpc.StreamStreamMultiCallable[bytes, bytes]:
    return client.channel.stream_stream("/p4.v1.P4Runtime/StreamChannel")


def test_streams_that_are_cut_leave_nothing_behind(wire: tuple[P4RuntimeServer, Client]) -> None:
    server, client = wire
    rng, ids = seeded_random(), ids_of(load_info())
    device = server._devices[1]
    for number in range(100):
        messages = stream_messages(rng, ids, number)
        call = _stream_of_bytes(client)(iter(messages))
        if rng.random() < 0.5:
            call.cancel()
        elif rng.random() < 0.5:
            assert outcome(partial(list, call)) in OF_A_STREAM
        else:
            other = Client(server.address)
            cut = _stream_of_bytes(other)(iter(messages))
            other.channel.close()
            del cut
            call.cancel()
    arbiters = device.clients._arbiters
    wait_until(lambda: sum(len(arbiter.clients) for arbiter in arbiters.values()) == 1, 20)
    assert arbiters[""].primary is not None, "the primary's stream has outlived them all"
    assert client.read_outcome(*WHOLE) == ["OK"] * len(WHOLE)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_millions_of_updates(rig: ServicerRig) -> None:
    rng = seeded_random()
    fuzz_writes(rig, rng, 700_000, 0.02)
    fuzz_reads(rig, rng, 100_000)
    rig.clear()
    _nothing_is_left(rig)
