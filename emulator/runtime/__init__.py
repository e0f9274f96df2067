"""The native runtime: packets, queues, links and time, with no Python and no GIL until an instant concerns Python.

`memory` names every record that native code touches. `native`, `packets`, `events`, `hosts`, `link`, `manager` and
`loop` are the code itself, written for Numba; `build` turns them into one object file, kept on disk, which later
starts load without Numba. `engine` owns the memory and calls in. Data flow of one packet::

    NIC or CPU ─► link ─► ingress ─► traffic manager ─► queues of a port ─► egress ─► link ─► host or next switch
                  link    program    manager            packets             program   link    hosts, loop
"""
