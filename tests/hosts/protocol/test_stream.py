"""A stream of tensors, asked for rounds of several at once."""

from __future__ import annotations

import numpy as np

from weir.hosts.numerics.tensors import Tensor
from weir.hosts.protocol.stream import Stream


def test_rounds_of_unlike_tensors_are_told_apart() -> None:
    """Sums of whole numbers may wrap, those of floating ones do not."""
    stream = Stream(0)
    starts: list[int] = []
    for values in (np.ones(600, np.float32), np.ones(600, np.int32), np.ones(600, np.float32)):
        tensor = Tensor(values, workers=2)
        tensor.place(len(starts), stream.end, 16)
        stream.append(tensor)
        starts.append(tensor.start)
    every = np.arange(stream.end)
    whole = (starts[1] <= every) & (every < starts[2])
    assert np.array_equal(stream.may_wrap(every), whole)
    assert np.all(stream.may_wrap(every[whole]))
    assert not np.any(stream.may_wrap(every[: starts[1]]))
