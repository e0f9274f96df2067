"""The native runtime: packets, queues, links and time, with no Python and no GIL between two instants that concern
Python.

`memory` names every record that native code touches. `native`, `packets`, `manager` and `loop` are the code
itself, written for Numba; `build` turns them into one object file, kept on disk, which later starts load without
Numba. `engine` owns the memory and calls in. Data flow of one packet::

    host NIC or CPU ─► link ─► ingress ─► traffic manager ─► queues of a port ─► egress ─► link ─► ...
                       loop     program    manager            manager            program   loop
"""
