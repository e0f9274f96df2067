"""A switch on real network interfaces, in wall-clock time.

The same switch as in the virtual-time fabric: its program, queues, rates and traffic manager are `emulator.runtime`'s
and its control plane `emulator.p4runtime`'s. Here the far ends of its ports are sockets, and time is CLOCK_MONOTONIC.
The packet loop is native code on a thread without the GIL; it and Python hand each other packet-ins and packet-outs
through mailboxes in shared memory::

    interface ─► ring ─► receive ─► ingress, queues, egress ─► transmit ─► ring ─► interface
                         (receive)  (runtime.manager)          (transmit)  (batch)
                              loop ▲ │ packet-outs, packet-ins
                                   │ ▼
                                 wired ─► emulator.p4runtime

`memory`, `calls`, `receive`, `capture`, `transmit`, `batch`, `trace` and `loop` are native; `reasons` puts the notes
of `trace` into words; `sockets` opens interfaces; `wired` owns the threads and `engine` the memory; `links` watches
carriers; `options` is the command line of `emulator.command`.
"""
