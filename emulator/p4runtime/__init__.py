"""A P4Runtime v1 server (grpcio) for the emulator's switches: what `simple_switch_grpc` offers, and registers.

One `P4RuntimeServer` serves one or several `emulator.datapath.Datapath`s, told apart by device id. A request flows
through::

    server      gRPC: RPCs, streams, errors as canonical codes
    device      one switch: arbitration, pipeline config, locks, packets
    pipeline    one config: P4Info ids resolved once, checked against the program
    tables, profiles, arrays, meters, value_sets, digests, replication      one entity kind each
    matches, actions, typespec, bytestring     their codecs

and ends in `emulator.program.ProgramState` and the switch's replication engine, which hold the state; here is only
what they do not hold (controller metadata, election ids). The specification is P4Runtime 1.5; where a section binds
the code, the module names it. Protobuf messages are finsy's.

Differences from simple_switch_grpc: registers can be read and written; values are answered in canonical form; when a
primary leaves there is none until somebody claims the highest election id again; a batch's errors name every update.
Any role may do everything: a role with a config is refused. Time stamps of digests and idle notifications are the
switch's time. What counts or meters hits of a default entry, and DATAPLANE_ATOMIC
batches, answer UNIMPLEMENTED.
"""

from emulator.p4runtime.server import API_VERSION, P4RuntimeServer, Tls

__all__ = ["API_VERSION", "P4RuntimeServer", "Tls"]
