"""The `torch.distributed` back end "weir": sums of large floating tensors go through the switches, the rest over Gloo.

::

    training process                                          relay process (no PyTorch, one for each rank)
    ProcessGroup ─ sum ─▶ WeirReducer ─ shared memory, pipe ─▶ Seat: Membership, Communicator ─ UDP ─▶ switches
                 └ rest ─▶ inner Gloo group

`weir.torch_entry` registers it; docs/pytorch.md is its guide. Packets are never touched by the process that trains: its
interpreter's lock is for the training. Only `process_group` and what it imports need PyTorch.
"""
