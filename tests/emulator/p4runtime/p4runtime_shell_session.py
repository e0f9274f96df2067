"""Run by p4runtime-shell's own interpreter: drives the server at argv[1] as a user of the shell would.

Prints one JSON object with what the shell saw. argv: address, device id, P4Info, BMv2 JSON.
"""

import json
import sys

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
seen = {}
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

    entry.delete()
    seen["left"] = [str(found) for found in shell.TableEntry("lpm_table").read()]
finally:
    shell.teardown()
print(json.dumps(seen))  # noqa: T201
