"""Wrong values at every public entry point: each is refused by the hosts' own errors, with the value, and none hangs.

Hypothesis draws the values. A call may also accept a value, for many are allowed somewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.errors import PlacedError
from weir.hosts import (
    Classifier,
    Communicator,
    Compression,
    ControlClient,
    HostError,
    InvalidTensor,
    Membership,
    Transport,
    TransportOptions,
    WorkerOptions,
    data_type,
    reference_sum,
)
from weir.hosts.compression.codecs import CODECS
from weir.hosts.transport.core import TransportCore
from weir.hosts.transport.options import TransportPlan
from weir.tests.hosts.collectives.memory_driver import MemoryJob
from weir.tests.support.errors import raises
from weir.training import TrainingError
from weir.training.modes import make_mode
from weir.training.optimisers import make_optimiser


class Odd:
    """An object whose text cannot be made."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


WRONG = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**400, -(10**5000), 1 << 70]),
    st.floats(),
    st.text(max_size=80),
    st.sampled_from(["\ud800", "a" * 5_000, "\0"]),
    st.binary(max_size=4),
    st.lists(st.one_of(st.integers(), st.none(), st.text(max_size=2), st.floats()), max_size=3),
    st.sampled_from(
        [
            {"a": 1},
            Odd(),
            Odd,
            1j,
            [[1], [1, 2]],
            range(3),
            np.float32(2.5),
            np.int64(3),
            np.zeros(0),
            np.array([1, 2]),
            np.array("x"),
            np.array([None]),
            np.zeros(2, "V8"),
            np.datetime64("2020-01-01"),
            np.ma.array([1.0], mask=[True]),
            {1, 2},
        ]
    ),
)


class _NoNetwork:
    """End of a transport whose packets go nowhere."""

    def __init__(self) -> None:
        self.core = TransportCore(TransportPlan(1, 1, (1, 2), 5, ""), TransportOptions())

    def call(self, function: Callable[[], Any]) -> Any:
        return function()

    def wait(self, pending: object, timeout_s: float) -> None: ...

    def close(self) -> None: ...


def _communicator(**options: Any) -> Communicator:
    return Communicator(MemoryJob(1).drivers[0], **options)


def _called(name: str, *before: Any, key: str = "", value: Any, **others: Any) -> None:
    """Call a method of a communicator with a wrong value for its last argument, or for a keyword."""
    method = getattr(_communicator(), name)
    if key:
        method(*before, **{**others, key: value})
    else:
        method(*before, value)


def _transport(name: str, *before: Any, value: Any, after: tuple[Any, ...] = ()) -> None:
    getattr(Transport(_NoNetwork(), timeout_s=0.0), name)(*before, value, *after)


def _client(name: str, *before: Any, key: str = "", value: Any) -> None:
    with ControlClient("unix:/nowhere/control") as client:
        _method(getattr(client, name), *before, key=key, value=value)


def _method(method: Callable[..., Any], *before: Any, key: str = "", value: Any) -> None:
    method(*before, **({key: value} if key else {}), **({} if key else {"job": value}))


ROW = np.ones((1, 3), np.float32)
ENTRIES: dict[str, Callable[[Any], Any]] = {
    **{
        f"{name}({key}), op {op}": partial(
            lambda value, name, key, op: _called(
                name, ROW, key=key, value=value, **({} if key == "op" else {"op": op})
            ),
            name=name,
            key=key,
            op=op,
        )
        for name in ("allreduce", "reduce", "reduce_scatter")
        for op in ("sum", "mean", "adasum")
        for key in ("op", "name", "weight", "dtype", "nonfinite", "cuts", "rack", "compression")
    },
    **{
        f"{name}(array)": partial(lambda value, name: _called(name, value=value), name=name)
        for name in ("allreduce", "reduce", "reduce_scatter", "broadcast", "all_gather", "allreduce_many")
    },
    **{
        f"{name}(root)": partial(lambda value, name: _called(name, ROW, value=value), name=name)
        for name in ("reduce", "broadcast", "broadcast_bytes")
    },
    **{
        f"{name}(name)": partial(
            lambda value, name, before: _called(name, *before, key="name", value=value), name=name, before=before
        )
        for name, before in (
            ("broadcast", (ROW,)),
            ("all_gather", (ROW,)),
            ("broadcast_bytes", (b"x",)),
            ("barrier", ()),
        )
    },
    "allreduce_many(weight)": lambda value: _called("allreduce_many", {"a": ROW}, key="weight", value=value),
    "allreduce_many(an array)": lambda value: _communicator().allreduce_many({"a": value}),
    "communicator(timeout_s)": lambda value: _communicator(timeout_s=value),
    "handle.wait(timeout_s)": lambda value: _communicator().allreduce_async(ROW).wait(value),
    **{
        f"report({key})": partial(
            lambda value, key: _communicator().report(**{"step": 1, key: value}),
            key=key,
        )
        for key in (
            "step",
            "steps_left",
            "stage",
            "loss",
            "accuracy",
            "compute_ns",
            "exposed_ns",
            "waiting_ns",
            "other",
        )
    },
    "codec": Compression.named,
    **{
        f"codec {name}({option})": partial(
            lambda value, name, option: Compression.named(name, **{option: value}), name=name, option=option
        )
        for name in CODECS
        for option in ("bits", "ratio", "block", "momentum", "threshold", "clip", "rotated", "feedback", "seed")
    },
    "data_type": data_type,
    **{
        f"reference_sum({key})": partial(
            lambda value, key: reference_sum(**{"arrays": [ROW, ROW], key: value}), key=key
        )
        for key in ("arrays", "workers", "lanes", "weights", "dtype", "mean", "nonfinite", "cuts", "seed")
    },
    **{
        f"TransportOptions({key})": partial(lambda value, key: TransportOptions(**{key: value}), key=key)
        for key in TransportOptions.__dataclass_fields__
    },
    **{
        f"WorkerOptions({key})": partial(lambda value, key: WorkerOptions(**{key: value}), key=key)
        for key in WorkerOptions.__dataclass_fields__
    },
    **{
        f"Membership({key})": partial(
            lambda value, key: Membership(**{"control": "unix:/nowhere", "job": 1, "token": "t", key: value}), key=key
        )
        for key in ("control", "job", "token", "timeout_s", "linger_s", "port", "nic", "options", "transport", "tls")
    },
    **{
        f"Classifier({key})": partial(
            lambda value, key: Classifier(**{"switch": "127.0.0.1", key: value}).close(), key=key
        )
        for key in ("switch", "classes", "model", "window", "timeout_s", "attempts")
    },
    **{
        f"send({what})": call
        for what, call in {
            "peer": lambda value: _transport("send_async", value=value, after=(b"x",)),
            "value": lambda value: _transport("send_async", 1, value=value),
        }.items()
    },
    "recv(peer)": lambda value: _transport("recv_async", value=value),
    "request(peer)": lambda value: _transport("request_async", value=value, after=("name",)),
    "request(name)": lambda value: _transport("request_async", 1, value=value),
    "receive_request(timeout_s)": lambda value: _transport("receive_request", value=value),
    "reply(request)": lambda value: _transport("reply", value=value, after=(b"x",)),
    "publish(name)": lambda value: _transport("publish", value=value, after=(b"x",)),
    "publish(value)": lambda value: _transport("publish", "name", value=value),
    "pull(peer)": lambda value: _transport("pull_async", value=value, after=("name",)),
    "pull(name)": lambda value: _transport("pull_async", 1, value=value),
    "transport(timeout_s)": lambda value: Transport(_NoNetwork(), timeout_s=value),
    **{
        f"register({key})": partial(lambda value, key: _client("register", key=key, value=value), key=key)
        for key in ("workers", "server", "spares", "job", "slots", "policy", "weight", "priority", "worker_count")
    },
    "end(job)": lambda value: _client("end", value=value),
}


@pytest.mark.parametrize("entry", ENTRIES)
@settings(max_examples=10, deadline=None)
@given(value=WRONG)
@pytest.mark.filterwarnings("ignore")
def test_wrong_values_are_refused_by_the_hosts_errors(entry: str, value: Any) -> None:
    refusal = refusal_of(ENTRIES[entry], value)
    if refusal is not None:
        assert str(refusal)
        assert refusal.place or refusal.value is value


def refusal_of(call: Callable[[Any], Any], value: Any) -> HostError | None:
    """Return the hosts' error that a value gets; None for an allowed one."""
    try:
        call(value)
    except HostError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (partial(Compression.named, "topk"), InvalidTensor),
        (partial(make_mode, "ssp"), TrainingError),
        (partial(make_optimiser, "sgd", [3], 0.1), TrainingError),
    ],
)
@pytest.mark.parametrize("value", ["1", None, b"1", [1], 1j, 10**400])
def test_options_are_checked_alike_wherever_they_are(
    make: Callable[..., Any], error: type[PlacedError], value: Any
) -> None:
    name = {"topk": "ratio", "ssp": "staleness", "sgd": "momentum"}[make.args[0]]  # type: ignore[attr-defined]
    if not (name == "staleness" and value == 10**400):
        with raises(error, value=value):
            make(**{name: value})
    with raises(error, value="colour"):
        make(colour=1)
