"""A controller that does what none should, until it is killed: run as a process, with the switch's ADDRESS.

It opens a hundred streams and reads none of them, asks for answers that it never takes, and writes without end. It says
`busy` when it has begun.
"""

from __future__ import annotations

import sys
from typing import Final

import grpc
from finsy.proto import p4r

from weir.tests.emulator.p4runtime.p4runtime_rig import DELETE, INSERT, Client, Names, entity, load_config, load_info

STREAMS: Final = 100
READS: Final = 8


def main(address: str) -> None:
    client = Client(address, election_id=1000)
    streams = [client.primary()]
    assert client.set_config(load_config()) == "OK"
    for number in range(1, STREAMS):
        streams.append(client.stream())
        streams[-1].arbitrate(1000 - number)
    names = Names(load_info())
    forward = names.call("forward", b"\x01")
    entries = [names.exact_entry(i.to_bytes(2, "big"), b"\x01", forward) for i in range(1, 1000)]
    assert set(client.write(*((INSERT, entry) for entry in entries))) == {"OK"}
    query = p4r.ReadRequest(device_id=1, entities=[entity(p4r.TableEntry()) for _ in range(10)])
    answers = [client.stub.Read(query) for _ in range(READS)]
    for answer in answers:
        next(answer)
    print("busy", flush=True)  # noqa: T201
    packet = p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=bytes(1000)))
    while True:
        for kind in (DELETE, INSERT):
            client.write(*((kind, entry) for entry in entries))
            for stream in streams:
                stream.send(packet)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except (grpc.RpcError, ValueError):  # the server is gone
        sys.exit(1)
