"""Session of p4runtime-shell, run by its own interpreter: drives the server at argv[1] as a user would.

Prints one JSON object with the shell's results. argv: address, device id, P4Info, BMv2 JSON.
"""

import json
import sys
from typing import Any

import p4runtime_sh.shell as shell
from p4runtime_sh.p4runtime import P4RuntimeWriteException

address, device_id, p4info, device_config = sys.argv[1:]
shell.setup(
    device_id=int(device_id),
    grpc_addr=address,
    election_id=(0, 1),
    config=shell.FwdPipeConfig(p4info, device_config),
    verbose=False,
)
seen: dict[str, list[Any]] = {}
try:
    seen["constants"] = sorted(
        [entry.match["hdr.ethernet.type"].exact.value.hex(), entry.action["port"].value.hex()]
        for entry in shell.TableEntry("MainIngress.const_table").read()
    )

    entry = shell.TableEntry("MainIngress.lpm_table")(action="MainIngress.forward")
    entry.match["hdr.ethernet.dst"] = "02:00:00:00:00:00/40"
    entry.action["port"] = "258"
    entry.insert()
    seen["inserted"] = [found.msg().SerializeToString().hex() for found in shell.TableEntry("lpm_table").read()]
    seen["expected"] = [entry.msg().SerializeToString().hex()]
    entry.action["port"] = "3"
    entry.modify()
    seen["modified"] = [found.action["port"].value.hex() for found in shell.TableEntry("lpm_table").read()]

    try:
        entry.insert()
    except P4RuntimeWriteException as error:
        seen["refused"] = [code.canonical_code for _, code in error.errors]

    member = shell.ActionProfileMember("MainIngress.paths")(member_id=1, action="MainIngress.forward")
    member.action["port"] = "1"
    member.insert()
    group = shell.ActionProfileGroup("MainIngress.paths")(group_id=7)
    group.add(1, 2)
    group.insert()
    seen["groups"] = [
        [found.group_id, [[each.member_id, each.weight] for each in found.members]]
        for found in shell.ActionProfileGroup("MainIngress.paths").read()
    ]

    multicast = shell.MulticastGroupEntry(5)
    multicast.add(1, 2)
    multicast.insert()
    seen["multicast"] = [
        [found.group_id, found.replicas[0].egress_port, found.replicas[0].instance]
        for found in shell.MulticastGroupEntry().read()
    ]

    counter = shell.CounterEntry("MainIngress.ports")
    counter.index, counter.packet_count = 2, 9
    counter.modify()
    seen["counters"] = [found.packet_count for found in shell.CounterEntry("MainIngress.ports").read()]

    default = shell.TableEntry("MainIngress.exact_table")(action="MainIngress.forward", is_default=True)
    default.action["port"] = "4"
    default.counter_data.packet_count = 5
    default.modify()
    query = shell.TableEntry("MainIngress.exact_table")(is_default=True)
    query.counter_data  # noqa: B018  # asks for it
    seen["default"] = [[found.action["port"].value.hex(), found.counter_data.packet_count] for found in query.read()]

    group.delete()
    member.delete()
    balanced = shell.TableEntry("MainIngress.selector_table")
    balanced.match["hdr.ethernet.dst"] = "02:00:00:00:00:09"
    actions = shell.Oneshot("MainIngress.selector_table")
    for port in ("1", "2"):
        action = shell.Action("MainIngress.forward")
        action["port"] = port
        actions.add(action, weight=1, watch_port=bytes((int(port),)))
    balanced.oneshot = actions
    balanced.insert()
    seen["one shot"] = [
        [
            [chosen.weight, chosen.watch_port.hex()]
            for chosen in found.msg().action.action_profile_action_set.action_profile_actions
        ]
        for found in shell.TableEntry("MainIngress.selector_table").read()
    ]

    session = shell.CloneSessionEntry(9)
    session.add(3, 1)
    session.packet_length_bytes = 60
    session.insert()
    seen["clones"] = [[found.session_id, found.packet_length_bytes] for found in shell.CloneSessionEntry().read()]

    entry.delete()
    seen["left"] = [str(found) for found in shell.TableEntry("lpm_table").read()]
finally:
    shell.teardown()
print(json.dumps(seen))  # noqa: T201
