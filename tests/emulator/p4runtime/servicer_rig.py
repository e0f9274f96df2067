"""The P4Runtime server's methods within this process, without gRPC in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, cast

import grpc
from finsy.proto import U128, p4i, p4r, rpc_status

from weir.emulator.p4runtime.device import P4RuntimeDevice
from weir.emulator.p4runtime.server import _Servicer
from weir.emulator.p4runtime.streams.patience import Patience
from weir.emulator.p4runtime.streams.session import Session
from weir.emulator.switch import Switch
from weir.tests.emulator.p4runtime.p4runtime_rig import (
    DELETE,
    EXTERNS,
    STAGES,
    entity,
    externs_config,
    grpc_code,
    load_config,
    load_info,
    stages_config,
)
from weir.tests.paths import PROGRAMS

TABLES_P4INFO = PROGRAMS / "tables.p4info.txtpb"


def _tables_config() -> p4r.ForwardingPipelineConfig:
    device_config = TABLES_P4INFO.with_name("tables.json").read_bytes()
    return p4r.ForwardingPipelineConfig(p4info=load_info(TABLES_P4INFO), p4_device_config=device_config)


CONFIGS: dict[str, tuple[p4i.P4Info, Callable[[], p4r.ForwardingPipelineConfig]]] = {
    "every_entity": (load_info(), load_config),
    "externs": (EXTERNS, externs_config),
    "stages": (STAGES, stages_config),
    "tables": (load_info(TABLES_P4INFO), _tables_config),
}
RESOURCES: dict[str, Any] = {
    "counter_data": p4r.CounterData(),
    "meter_config": p4r.MeterConfig(),
    "meter_counter_data": p4r.MeterCounterData(),
}
WHOLE = (
    p4r.TableEntry(**RESOURCES),
    p4r.TableEntry(is_default_action=True, **RESOURCES),
    *(p4r.ActionProfileMember(), p4r.ActionProfileGroup(), p4r.CounterEntry(), p4r.RegisterEntry()),
    *(p4r.MeterEntry(counter_data=p4r.MeterCounterData()), p4r.ValueSetEntry(), p4r.DigestEntry()),
    *(p4r.MulticastGroupEntry(), p4r.CloneSessionEntry()),
)
"""Queries for everything that there is."""


class Ended(Exception):
    """An RPC's end with an error."""


class Context:
    """Outcome of an RPC: the parts of gRPC's context that the servicer uses."""

    def __init__(self) -> None:
        self.code, self.details_text, self.parts = "OK", "", list[p4r.Error]()

    def as_grpcs(self) -> grpc.ServicerContext:
        """Context typed for the servicer, which uses no part that is missing here."""
        return cast(grpc.ServicerContext, self)

    def set_trailing_metadata(self, trailing_metadata: tuple[tuple[str, bytes], ...]) -> None:
        status = rpc_status.Status.FromString(trailing_metadata[0][1])
        for packed in status.details:
            part = p4r.Error()
            assert packed.Unpack(part)
            self.parts.append(part)

    def is_active(self) -> bool:
        return True

    def cancel(self) -> NoReturn:
        raise AssertionError("an answer's messages are taken at once")

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        self.code, self.details_text = code.name, details
        raise Ended


class ServicerRig:
    """One program on one switch, and its server's methods without gRPC in between."""

    def __init__(self, program: str) -> None:
        self.info, config = CONFIGS[program]
        self.switch = Switch(1, ports=[0, 1, 2, 3])
        self.device = P4RuntimeDevice(self.switch)
        self.device.attach()
        self.servicer = _Servicer({1: self.device}, 4, Patience(60.0), Patience(60.0))
        self.session = Session()
        request = p4r.StreamMessageRequest()
        request.arbitration.device_id = 1
        request.arbitration.election_id.low = 1
        self.servicer._handle(self.session, request)
        self._config = config()
        assert self.set_config(p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT) == "OK"

    def set_config(self, action: p4r.SetForwardingPipelineConfigRequest.Action.ValueType) -> str:
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=1, election_id=U128.encode(1), action=action, config=self._config
        )
        context = Context()
        try:
            self.servicer.SetForwardingPipelineConfig(request, context.as_grpcs())
        except Ended:
            assert context.details_text
        return context.code

    def write(self, request: p4r.WriteRequest) -> tuple[str, list[str], list[str]]:
        """The code of the RPC, and codes and messages of its parts."""
        code, parts, messages = self.write_bytes(request.SerializeToString())
        return (
            (code, ["OK"] * len(request.updates), [""] * len(request.updates))
            if code == "OK"
            else (code, parts, messages)
        )

    def write_bytes(self, content: bytes) -> tuple[str, list[str], list[str]]:
        """The code of the RPC; if that is not OK, codes and messages of its parts."""
        context = Context()
        try:
            self.servicer.Write(content, context.as_grpcs())
        except Ended:
            codes = [grpc_code(part.canonical_code) for part in context.parts]
            return context.code, codes, [part.message for part in context.parts] or [context.details_text]
        return "OK", [], []

    def read(self, request: p4r.ReadRequest) -> tuple[str, list[str], list[p4r.Entity]]:
        context, found = Context(), list[p4r.Entity]()
        try:
            for response in self.servicer.Read(request, context.as_grpcs()):
                found += response.entities
        except Ended:
            return context.code, [grpc_code(part.canonical_code) for part in context.parts], found
        return "OK", ["OK"] * len(request.entities), found

    def state(self, *, colors: bool = True) -> list[bytes]:
        """All readable state, sorted; without `colors` the counts by color are left out."""
        request = p4r.ReadRequest(device_id=1, entities=[entity(query) for query in WHOLE])
        code, _, found = self.read(request)
        assert code == "OK"
        if not colors:
            for each in found:
                if each.HasField("table_entry"):
                    each.table_entry.ClearField("meter_counter_data")
                elif each.HasField("meter_entry"):
                    each.meter_entry.ClearField("counter_data")
        return sorted(each.SerializeToString(deterministic=True) for each in found)

    def request(self, *updates: p4r.Update, atomicity: int = 0) -> p4r.WriteRequest:
        request = p4r.WriteRequest(device_id=1, election_id=U128.encode(1), updates=updates)
        request.atomicity = p4r.WriteRequest.Atomicity.ValueType(atomicity)
        return request

    def clear(self) -> None:
        """Delete everything that can be deleted; leftovers of the services would be a leak."""
        queries = (p4r.TableEntry(), p4r.ActionProfileGroup(), p4r.ActionProfileMember(), p4r.DigestEntry())
        for query in (*queries, p4r.MulticastGroupEntry(), p4r.CloneSessionEntry()):
            _, _, found = self.read(p4r.ReadRequest(device_id=1, entities=[entity(query)]))
            updates = [p4r.Update(type=DELETE, entity=each) for each in found if not each.table_entry.is_const]
            assert self.write(self.request(*updates))[0] == "OK"
