"""The two queues of each process group that has planned hooks.

All planned hooks of a group share its queues: one thread makes their calls in the order in which models pass buckets,
which is the same at all ranks. With a thread for each model the order would differ between ranks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import MutableMapping
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

import torch.distributed as dist

from ..two_queues import TwoQueues

_lock: Final = threading.Lock()


class _Shared:
    """Queues of a group, and the hooks' states that use them."""

    def __init__(self) -> None:
        self.queues = TwoQueues(lambda: 1e3 * time.monotonic())
        self.users: WeakSet[Any] = WeakSet()


_shared: Final[MutableMapping[Any, _Shared]] = WeakKeyDictionary()


def queues_of(group: Any, user: Any) -> TwoQueues:
    """Return the queues of a group; None: the default one. `user` is the state that uses them until `release`."""
    with _lock:
        if (shared := _of(group)) is None:
            shared = _shared[group or dist.group.WORLD] = _Shared()
        shared.users.add(user)
        return shared.queues


def release(user: Any) -> None:
    """Finish what was submitted, and end the threads of those queues that no other state uses."""
    with _lock:
        ended = [group for group, shared in _shared.items() if set(shared.users) == {user}]
        queues = [_shared.pop(group).queues for group in ended]
        for shared in _shared.values():
            shared.users.discard(user)
    for each in queues:
        each.close()


def settle(group: Any) -> None:
    """Wait until the planned hooks of a group have made their calls, so that another call has its place after them."""
    with _lock:
        shared = _of(group)
    if shared is not None:
        shared.queues.wait_idle()


def _of(group: Any) -> _Shared | None:
    return _shared.get(group or dist.group.WORLD)
