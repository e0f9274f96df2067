"""Random P4Runtime messages for any P4Info: such as a controller sends, and the same with something wrong in them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, cast

from finsy.proto import p4i, p4r
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from weir.tests.emulator.p4runtime.p4runtime_rig import (
    DELETE,
    INSERT,
    MODIFY,
    entity,
    externs_config,
    load_config,
    stages_config,
)

HURTING = (0, 1, 2, 3, 7, 255, 256, 65_535, 65_536, 2**31 - 1, 2**32 - 1)
SIGNED = (-(2**63), -(2**31), -1, 2**40, 2**62, 2**63 - 1)
SET_ACTIONS = (*p4r.SetForwardingPipelineConfigRequest.Action.values(), 99)
PROGRAMS = (
    *(config().p4_device_config for config in (load_config, load_config, load_config, externs_config, stages_config)),
    *(load_config().p4_device_config[:-100], b"{}", b"[]", b"\x1a\x02{}", b"\xff"),
)
"""Programs that are compiled once, and an invalid one."""


class Maker:
    """Valid entities of a program, from a small domain, so that they often meet."""

    def __init__(self, info: p4i.P4Info, rng: random.Random) -> None:
        self.info = info
        self.rng = rng
        self.actions = {action.preamble.id: action for action in info.actions}
        self.profiles = {profile.preamble.id: profile for profile in info.action_profiles}
        makers: dict[str, tuple[Callable[[], object], object]] = {
            "table": (self.table_entry, info.tables),
            "member": (self.member, info.action_profiles),
            "group": (self.group, [profile for profile in info.action_profiles if profile.with_selector]),
            "counter": (self.counter, info.counters),
            "direct counter": (self.direct_counter, info.direct_counters),
            "meter": (self.meter, info.meters),
            "direct meter": (self.direct_meter, info.direct_meters),
            "register": (self.register, info.registers),
            "value set": (self.value_set, info.value_sets),
            "digest": (self.digest, info.digests),
            "multicast": (self.multicast, True),
            "clone": (self.clone, True),
        }
        self.makers = [make for make, needed in makers.values() if needed]

    def update(self) -> p4r.Update:
        """An update that is well-formed, though what it names may be there or not."""
        make = self.table_entry if self.rng.random() < 0.4 else self.rng.choice(self.makers)
        message = make()
        kind = self.rng.choice((INSERT, INSERT, MODIFY, DELETE))
        if isinstance(
            message,
            p4r.CounterEntry
            | p4r.DirectCounterEntry
            | p4r.MeterEntry
            | p4r.DirectMeterEntry
            | p4r.RegisterEntry
            | p4r.ValueSetEntry,
        ) or (isinstance(message, p4r.TableEntry) and message.is_default_action):
            kind = MODIFY
        return p4r.Update(type=kind, entity=entity(message))

    # -- one maker for each entity

    def table_entry(self) -> p4r.TableEntry:
        rng = self.rng
        table = rng.choice(self.info.tables)
        entry = self.key(table)
        if not table.implementation_id and (not table.match_fields or rng.random() < 0.1):
            entry = p4r.TableEntry(table_id=table.preamble.id, is_default_action=True)
        profile = self.profiles.get(table.implementation_id)
        if profile is not None:
            kind = rng.randrange(3) if profile.with_selector else 0
            if kind == 0:
                entry.action.action_profile_member_id = rng.randrange(1, 5)
            elif kind == 1:
                entry.action.action_profile_group_id = rng.randrange(1, 4)
            else:
                chosen = entry.action.action_profile_action_set.action_profile_actions
                for _ in range(rng.randrange(1, 4)):
                    watch = rng.choice((b"", b"\x00", b"\x01"))
                    chosen.add(action=self.action(table), weight=rng.randrange(1, 3), watch_port=watch)
        elif rng.random() < 0.9 and not table.is_const_table:
            entry.action.action.CopyFrom(self.action(table))
        if rng.random() < 0.2:
            entry.metadata = rng.randbytes(3)
        if table.idle_timeout_behavior and rng.random() < 0.5 and not entry.is_default_action:
            entry.idle_timeout_ns = rng.randrange(1, 10**9)
        direct = set(table.direct_resource_ids)
        if direct & {counter.preamble.id for counter in self.info.direct_counters} and rng.random() < 0.4:
            entry.counter_data.packet_count = rng.randrange(1000)
        if direct & {meter.preamble.id for meter in self.info.direct_meters} and rng.random() < 0.4:
            entry.meter_config.CopyFrom(self.rates())
        return entry

    def key(self, table: p4i.Table) -> p4r.TableEntry:
        entry = p4r.TableEntry(table_id=table.preamble.id)
        kinds = p4i.MatchField
        for field in table.match_fields:
            if field.match_type != kinds.EXACT and self.rng.random() < 0.3:
                continue
            width, whole = field.bitwidth, (1 << field.bitwidth) - 1
            value = self.few(width)
            match field.match_type:
                case kinds.EXACT:
                    entry.match.add(field_id=field.id).exact.value = octets(value)
                case kinds.OPTIONAL:
                    entry.match.add(field_id=field.id).optional.value = octets(value)
                case kinds.LPM:
                    length = self.rng.choice((1, width // 2 or 1, width))
                    lpm = entry.match.add(field_id=field.id).lpm
                    lpm.value, lpm.prefix_len = octets(value >> (width - length) << (width - length)), length
                case kinds.TERNARY:
                    mask = self.rng.choice((1, whole, whole >> 1 or 1))
                    ternary = entry.match.add(field_id=field.id).ternary
                    ternary.value, ternary.mask = octets(value & mask), octets(mask)
                case _:
                    low = min(value, whole - 1)
                    between = entry.match.add(field_id=field.id).range
                    between.low, between.high = octets(low + 1), octets(whole)
        if any(field.match_type in (kinds.TERNARY, kinds.RANGE, kinds.OPTIONAL) for field in table.match_fields):
            entry.priority = self.rng.randrange(1, 4)
        return entry

    def action(self, table: p4i.Table) -> p4r.Action:
        action = self.actions[self.rng.choice(table.action_refs).id]
        message = p4r.Action(action_id=action.preamble.id)
        for param in action.params:
            message.params.add(param_id=param.id, value=octets(self.few(param.bitwidth)))
        return message

    def _profile_table(self, profile: p4i.ActionProfile) -> p4i.Table:
        return next(table for table in self.info.tables if table.preamble.id == profile.table_ids[0])

    def member(self) -> p4r.ActionProfileMember:
        profile = self.rng.choice(self.info.action_profiles)
        return p4r.ActionProfileMember(
            action_profile_id=profile.preamble.id,
            member_id=self.rng.randrange(1, 5),
            action=self.action(self._profile_table(profile)),
        )

    def group(self) -> p4r.ActionProfileGroup:
        profile = self.rng.choice([profile for profile in self.info.action_profiles if profile.with_selector])
        group = p4r.ActionProfileGroup(action_profile_id=profile.preamble.id, group_id=self.rng.randrange(1, 4))
        for member_id in self.rng.sample(range(1, 5), self.rng.randrange(4)):
            watch = self.rng.choice((b"", b"\x00", b"\x01"))
            group.members.add(member_id=member_id, weight=self.rng.randrange(1, 4), watch_port=watch)
        return group

    def counter(self) -> p4r.CounterEntry:
        counter = self.rng.choice(self.info.counters)
        data = p4r.CounterData(packet_count=self.rng.randrange(9), byte_count=self.rng.randrange(2**40))
        return p4r.CounterEntry(counter_id=counter.preamble.id, index=self.index(counter.size), data=data)

    def direct_counter(self) -> p4r.DirectCounterEntry:
        owner = self.rng.choice(self.info.direct_counters).direct_table_id
        return p4r.DirectCounterEntry(table_entry=self.owner(owner), data=p4r.CounterData(packet_count=3))

    def meter(self) -> p4r.MeterEntry:
        meter = self.rng.choice(self.info.meters)
        return p4r.MeterEntry(meter_id=meter.preamble.id, index=self.index(meter.size), config=self.rates())

    def direct_meter(self) -> p4r.DirectMeterEntry:
        owner = self.rng.choice(self.info.direct_meters).direct_table_id
        return p4r.DirectMeterEntry(table_entry=self.owner(owner), config=self.rates())

    def owner(self, table_id: int) -> p4r.TableEntry:
        if self.rng.random() < 0.2:
            return p4r.TableEntry(table_id=table_id, is_default_action=True)
        return self.key(next(table for table in self.info.tables if table.preamble.id == table_id))

    def rates(self) -> p4r.MeterConfig:
        rate, burst = self.rng.randrange(5), self.rng.randrange(5)
        return p4r.MeterConfig(cir=rate, cburst=burst, pir=rate, pburst=burst)

    def index(self, size: int) -> p4r.Index | None:
        return None if self.rng.random() < 0.1 else p4r.Index(index=self.rng.randrange(size))

    def register(self) -> p4r.RegisterEntry:
        register = self.rng.choice(self.info.registers)
        width = register.type_spec.bitstring.bit.bitwidth or register.type_spec.bitstring.int.bitwidth
        entry = p4r.RegisterEntry(register_id=register.preamble.id, index=self.index(register.size))
        entry.data.bitstring = octets(self.few(width - 1))
        return entry

    def value_set(self) -> p4r.ValueSetEntry:
        value_set = self.rng.choice(self.info.value_sets)
        entry = p4r.ValueSetEntry(value_set_id=value_set.preamble.id)
        for number in range(self.rng.randrange(value_set.size + 1)):
            member = entry.members.add()
            for field in value_set.match:
                member.match.add(field_id=field.id).exact.value = octets(number)
        return entry

    def digest(self) -> p4r.DigestEntry:
        config = p4r.DigestEntry.Config(max_timeout_ns=self.rng.randrange(3), max_list_size=self.rng.randrange(3))
        return p4r.DigestEntry(digest_id=self.rng.choice(self.info.digests).preamble.id, config=config)

    def replicas(self) -> list[p4r.Replica]:
        places = self.rng.sample([(port, instance) for port in range(4) for instance in range(2)], 4)
        replicas = [p4r.Replica(port=octets(port), instance=instance) for port, instance in places[:2]]
        if places[2][0] != places[0][0]:
            replicas[0].backup_replicas.add(port=octets(places[2][0]), instance=places[2][1])
        return replicas

    def multicast(self) -> p4r.MulticastGroupEntry:
        return p4r.MulticastGroupEntry(multicast_group_id=self.rng.randrange(1, 4), replicas=self.replicas())

    def clone(self) -> p4r.CloneSessionEntry:
        return p4r.CloneSessionEntry(
            session_id=self.rng.randrange(1, 4), replicas=self.replicas(), packet_length_bytes=self.rng.randrange(99)
        )

    def few(self, width: int) -> int:
        """One of a few values of a width."""
        return random.Random(self.rng.randrange(4) * 1000 + width).getrandbits(width) if width else 0


def octets(value: int) -> bytes:
    return value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")


def mutate(message: Message, rng: random.Random, ids: list[int]) -> None:
    """Change one thing somewhere in a message: a number, bytes, a field that goes, comes, doubles or is another one."""
    places = list(_messages(message))
    target = rng.choice(places)
    fields = [field for field in fields_of(target) if not _is_map(field)]
    if not fields:
        return
    present = [field for field, _ in target.ListFields() if not _is_map(field)]
    field = rng.choice(present) if present and rng.random() < 0.8 else rng.choice(fields)
    if field.is_repeated:
        _mutate_list(getattr(target, field.name), field, rng, ids)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        if rng.random() < 0.5 and target.HasField(field.name):
            target.ClearField(field.name)
        else:
            getattr(target, field.name).SetInParent()
    elif rng.random() < 0.15:
        target.ClearField(field.name)
    else:
        setattr(target, field.name, _scalar(field, rng, ids))


def damaged(message: Message, rng: random.Random) -> bytes:
    """A message's bytes with some wrong, missing or too many."""
    content = bytearray(message.SerializeToString())
    for _ in range(rng.randrange(1, 4)):
        if content:
            content[rng.randrange(len(content))] = rng.randrange(256)
    if rng.random() < 0.3:
        del content[rng.randrange(len(content) + 1) :]
    if rng.random() < 0.2:
        content += rng.randbytes(rng.randrange(1, 9))
    return bytes(content)


def pipeline_request(rng: random.Random, info: p4i.P4Info, ids: list[int]) -> bytes:
    """SetForwardingPipelineConfig of the primary with election id 1, more often than not with an error in it.

    Its program is one of `PROGRAMS` unchanged, so that damage causes no compilation.
    """
    request = p4r.SetForwardingPipelineConfigRequest(device_id=1)
    request.action = p4r.SetForwardingPipelineConfigRequest.Action.ValueType(rng.choice(SET_ACTIONS))
    request.election_id.low = 1
    if rng.random() < 0.9:
        request.config.p4info.CopyFrom(info)
        for _ in range(rng.choice((0, 0, 1, 2))):
            mutate(request, rng, ids)
        request.config.p4_device_config = b""
    content = damaged(request, rng) if rng.random() < 0.2 else request.SerializeToString()
    if rng.random() < 0.9:  # appended bytes are merged into the message
        program = p4r.ForwardingPipelineConfig(p4_device_config=rng.choice(PROGRAMS))
        content += p4r.SetForwardingPipelineConfigRequest(config=program).SerializeToString()
    return content


def stream_messages(rng: random.Random, ids: list[int], election_id: int) -> list[bytes]:
    """A few messages of a stream, of which none can take the default role from its primary."""
    messages = []
    for _ in range(rng.randrange(4)):
        request = p4r.StreamMessageRequest()
        kind = rng.random()
        if kind < 0.6:
            request.arbitration.device_id = 1
            request.arbitration.role.name = rng.choice(("", "a", "b"))
            if rng.random() < 0.5 and request.arbitration.role.name:
                request.arbitration.election_id.low = election_id
        elif kind < 0.8:
            request.packet.payload = rng.randbytes(rng.choice((0, 7, 14, 200)))
            request.packet.metadata.add(metadata_id=rng.randrange(4), value=b"\x01")
        elif kind < 0.9:
            request.digest_ack.digest_id, request.digest_ack.list_id = rng.choice((0, *ids)), rng.randrange(5)
        else:
            request.other.type_url = "example.com/x"
        if rng.random() < 0.3:
            mutate(request, rng, ids)
        content = damaged(request, rng) if rng.random() < 0.2 else request.SerializeToString()
        if not _claims_the_default_role(content):
            messages.append(content)
    return messages


def _claims_the_default_role(content: bytes) -> bool:
    """Return whether the bytes are an arbitration message that could take the default role from its primary."""
    try:
        message = p4r.StreamMessageRequest.FromString(content).arbitration
    except DecodeError:
        return False
    return not message.role.name and message.HasField("election_id")


def reparsed(message: Any, rng: random.Random) -> Any:
    """Message after damage to its bytes; unchanged if they are not a message of its type any more."""
    try:
        return type(message).FromString(damaged(message, rng))
    except DecodeError:
        return message


def _messages(message: Message) -> list[Message]:
    found = [message]
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE and not _is_map(field):
            for inner in value if field.is_repeated else (value,):
                found += _messages(inner)
    return found


def fields_of(message: Message) -> Sequence[FieldDescriptor]:
    """The fields of a message's type, whichever implementation of protobuf describes them."""
    return cast(Sequence[FieldDescriptor], message.DESCRIPTOR.fields)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _mutate_list(items: Any, field: FieldDescriptor, rng: random.Random, ids: list[int]) -> None:
    choice = rng.randrange(4)
    if choice == 0 and len(items):
        del items[rng.randrange(len(items))]
    elif choice == 1 and len(items):
        items.append(items[rng.randrange(len(items))])
    elif choice == 2 and len(items) > 1:
        last = items.pop()
        items.insert(0, last)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        items.add()
    else:
        items.append(_scalar(field, rng, ids))


def _scalar(field: FieldDescriptor, rng: random.Random, ids: list[int]) -> object:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            if field.type == FieldDescriptor.TYPE_BYTES:
                return rng.randbytes(rng.choice((0, 1, 2, 6, 7, 13, 14, 300)))
            return rng.choice(("", "röle", "x" * 300))
        case FieldDescriptor.CPPTYPE_BOOL:
            return rng.random() < 0.5
        case FieldDescriptor.CPPTYPE_ENUM:
            return rng.choice((0, 1, 2, 3, 99, -1))
        case FieldDescriptor.CPPTYPE_INT32:
            return rng.choice((*HURTING[:-1], -1, -(2**31)))
        case FieldDescriptor.CPPTYPE_INT64:
            return rng.choice((*HURTING, *SIGNED))
        case _:
            return rng.choice((*HURTING, *ids))


def ids_of(info: p4i.P4Info) -> list[int]:
    lists = (info.tables, info.actions, info.action_profiles, info.counters, info.meters, info.registers, info.digests)
    return [item.preamble.id for items in (*lists, info.value_sets) for item in items]
