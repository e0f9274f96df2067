"""A P4Runtime v1 server (grpcio) for the emulator's switches: what `simple_switch_grpc` offers, and registers.

One `P4RuntimeServer` serves one or several `emulator.datapath.Datapath`s, told apart by device id. A request flows
through::

    server      gRPC: RPCs, streams, errors as canonical codes; patience with clients that take no answer
    clients     the controllers of one switch: arbitration, roles, who is told what
    device      one switch: pipeline config, locks, packets
    batches     a Write's updates: each for itself, all or none, all at once
    history     the way back from an update, and the whole state as updates
    pipeline    one config and what it serves, which `resolve` has checked against the program
    tables (keys, direct, aging), profiles, arrays, meters, value_sets, digests, replication      one entity kind each
    matches, actions, typespec, bytestring     their codecs

and ends in `emulator.program.ProgramState` and the switch's replication engine, which hold the state; here is only
what they do not hold (controller metadata, election ids). The specification is P4Runtime 1.5; where a section binds
the code, the module names it. Protobuf messages are finsy's.

Differences from simple_switch_grpc: registers can be read and written; values are answered in canonical form; when a
primary leaves there is none until somebody claims the highest election id again; a batch's errors name every update;
roles are kept apart; batches may be taken back or be seen as one by packets. Time stamps of digests and idle
notifications are the switch's time.

What answers UNIMPLEMENTED: architecture-specific externs and stream messages; action sets that select at random;
ranges of value sets that no mask can say; idle timeouts of constant entries; digests of other types than structs,
tuples and scalars; DATAPLANE_ATOMIC batches that change tables in ingress and in egress.
"""

from .server import API_VERSION, P4RuntimeServer, ServerTls

__all__ = ["API_VERSION", "P4RuntimeServer", "ServerTls"]
