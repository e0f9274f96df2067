"""Entries that a program brings along, ports that are watched, and meters of a single rate, with packets."""

from __future__ import annotations

import json

from finsy.proto import p4i, p4r

from weir.emulator.switch import Switch
from weir.tests.emulator.p4runtime.p4runtime_rig import (
    DELETE,
    INSERT,
    MODIFY,
    Client,
    stage,
    stage_entry,
    stages_config,
)

RECONCILE = p4r.SetForwardingPipelineConfigRequest.RECONCILE_AND_COMMIT


def ternary(value: int, mask: int, priority: int, port: int | None) -> p4r.TableEntry:
    """An entry of `initial`."""
    entry = p4r.TableEntry(table_id=stage("initial"), priority=priority)
    field = entry.match.add(field_id=1).ternary
    field.value, field.mask = bytes((value,)), bytes((mask,))
    if port is not None:
        entry.action.action.action_id = stage("limited")
        entry.action.action.params.add(param_id=1, value=bytes((port,)))
    return entry


def leaves(switch: Switch, key: int, third: int = 0) -> list[int]:
    """The ports that a packet leaves by."""
    return [port for port, _ in switch.forward(bytes((key, 0, 0, third, 0)), 0)]


def test_entries_that_a_program_brings_along_may_change(stages: Client, switch: Switch) -> None:
    first, second = ternary(0x80, 0xC0, 2, 2), ternary(0x80, 0x80, 1, 3)
    everything = p4r.TableEntry(table_id=stage("initial"), meter_config=p4r.MeterConfig())
    assert [found.table_entry for found in stages.read(everything)] == [first, second]
    assert [leaves(switch, key) for key in (0x80, 0xC0, 0x00)] == [[2], [], [1]], "there is no port 3"
    metered = ternary(0x80, 0x80, 1, 0)
    metered.meter_config.CopyFrom(p4r.MeterConfig(cir=1, cburst=1, pir=2, pburst=2))
    added = ternary(0xC0, 0xC1, 3, 1)
    assert stages.write((DELETE, first), (MODIFY, metered), (INSERT, added)) == ["OK"] * 3
    assert [leaves(switch, key) for key in (0x80, 0xC1, 0xC0)] == [[0], [0], [1]]
    before = stages.dump(everything)
    assert stages.set_config(stages_config(), RECONCILE) == "OK"
    assert stages.dump(everything) == before
    assert [leaves(switch, key) for key in (0x80, 0xC1, 0xC0)] == [[0], [0], [1]]
    assert stages.set_config(stages_config()) == "OK"
    assert [found.table_entry for found in stages.read(everything)] == [first, second]


def test_constant_entries_are_read_without_masked_bits(stages: Client, switch: Switch) -> None:
    """p4c writes `0x85 &&& 0xC0` into the BMv2 JSON as it stands in the source. Here `constant` is an lpm table."""
    config = stages_config()
    program = json.loads(config.p4_device_config)
    tables = {table["name"]: table for pipeline in program["pipelines"] for table in pipeline["tables"]}
    initial, constant = tables["StagesIngress.initial"], tables["StagesIngress.constant"]
    initial["entries"][0]["match_key"][0]["key"] = "0x85"
    constant["match_type"] = constant["key"][0]["match_type"] = "lpm"
    constant["entries"][0]["match_key"] = [{"match_type": "lpm", "key": "0x07", "prefix_length": 6}]
    config.p4_device_config = json.dumps(program).encode()
    [info] = [table for table in config.p4info.tables if table.preamble.id == stage("constant")]
    info.match_fields[0].match_type = p4i.MatchField.LPM
    assert stages.set_config(config) == "OK"
    everything = p4r.TableEntry(table_id=stage("initial")), p4r.TableEntry(table_id=stage("constant"))
    first, _, third = found = [read.table_entry for read in stages.read(*everything)]
    assert first == ternary(0x80, 0xC0, 2, 2)
    assert (third.match[0].lpm.value, third.match[0].lpm.prefix_len) == (b"\x04", 6)
    keys = [p4r.TableEntry(table_id=one.table_id, match=one.match, priority=one.priority) for one in found]
    assert [read.table_entry for read in stages.read(*keys)] == found
    assert [leaves(switch, key) for key in (0xBF, 0x45)] == [[2], [1]]
    assert stages.set_config(config, RECONCILE) == "OK"
    assert [read.table_entry for read in stages.read(*everything)] == found


def test_constant_entries_keep_their_counters_when_reconciled(stages: Client, switch: Switch) -> None:
    constant = stage_entry("constant", 7, "send", 4)
    key = p4r.TableEntry(table_id=constant.table_id, match=constant.match)
    assert stages.write((DELETE, constant), (MODIFY, constant), (INSERT, constant)) == ["PERMISSION_DENIED"] * 3
    key.counter_data.packet_count = 41
    assert stages.write((MODIFY, key)) == ["OK"]
    for _ in range(2):
        leaves(switch, 7)
        leaves(switch, 8)
    counters = (
        p4r.DirectCounterEntry(table_entry=p4r.TableEntry(table_id=constant.table_id)),
        p4r.DirectCounterEntry(table_entry=p4r.TableEntry(table_id=constant.table_id, is_default_action=True)),
    )
    [of_entry, of_default] = stages.read(*counters)
    assert of_entry.direct_counter_entry.data.packet_count == 43
    assert of_default.direct_counter_entry.data.packet_count == 2
    before = stages.dump(*counters)
    assert stages.set_config(stages_config(), RECONCILE) == "OK"
    assert stages.dump(*counters) == before


def test_members_whose_port_is_down_leave_their_groups(stages: Client, switch: Switch) -> None:
    profile = stage("paths")
    for member_id, port in ((1, 0), (2, 2)):
        member = p4r.ActionProfileMember(action_profile_id=profile, member_id=member_id)
        member.action.CopyFrom(stage_entry("balanced", 0, "send", port).action.action)
        assert stages.write((INSERT, member)) == ["OK"]
    group = p4r.ActionProfileGroup(action_profile_id=profile, group_id=1)
    group.members.add(member_id=1, weight=1, watch_port=b"\x01")
    group.members.add(member_id=2, weight=1, watch=2)
    entry = stage_entry("balanced", 5, "send", 0)
    entry.action.action_profile_group_id = 1
    assert stages.write((INSERT, group), (INSERT, entry)) == ["OK"] * 2

    def chosen(*down: int) -> set[int]:
        switch.set_ports_down(down)
        return {port for third in range(8) for port in leaves(switch, 5, third)}

    assert [chosen(), chosen(1), chosen(2), chosen(0), chosen(1, 2)] == [{0, 2}, {2}, {0}, {0, 2}, {1}]
    assert stages.read(p4r.ActionProfileGroup(action_profile_id=profile)) == [p4r.Entity(action_profile_group=group)]
    group.members[1].watch_port = b"\x07"
    assert stages.write((MODIFY, group)) == ["INVALID_ARGUMENT"], "the switch has no port 7"
    group.members[1].ClearField("watch_port")
    assert stages.write((MODIFY, group)) == ["OK"]
    assert [chosen(1), chosen(2), chosen(1, 2)] == [{2}, {0, 2}, {2}]
    counter = p4r.DirectCounterEntry(table_entry=p4r.TableEntry(table_id=stage("balanced"), is_default_action=True))
    before = stages.read(counter)[0].direct_counter_entry.data.packet_count
    leaves(switch, 6)
    assert stages.read(counter)[0].direct_counter_entry.data.packet_count == before + 1
    assert stages.set_config(stages_config(), RECONCILE) == "OK"
    assert [chosen(1), chosen(2), chosen()] == [{2}, {0, 2}, {0, 2}]


def test_a_single_rate_meter_has_an_excess_burst(stages: Client, switch: Switch) -> None:
    entry = p4r.MeterEntry(meter_id=stage("paced"), config=p4r.MeterConfig(cburst=2, pburst=2, eburst=1))
    entry.index.index = 1
    assert stages.write((MODIFY, entry)) == ["OK"]
    colors = [switch.forward(bytes((9, 0, 0, 0, 0)), 0)[0][1][4] for _ in range(5)]
    assert colors == [0, 0, 1, 2, 2]
    assert entry in [found.meter_entry for found in stages.read(p4r.MeterEntry(meter_id=entry.meter_id))]
    entry.config.pir = 1
    assert stages.write((MODIFY, entry)) == ["INVALID_ARGUMENT"]
    limited = ternary(0x80, 0x80, 1, 2)
    limited.meter_config.eburst = 1
    assert stages.write((MODIFY, limited)) == ["INVALID_ARGUMENT"]
