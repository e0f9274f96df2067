"""Adasum of all workers' arrays, tensor by tensor: a sum of what is orthogonal, a mean of what is parallel.

With racks, switches sum exactly in each rack, and Adasum is taken among the racks' first workers, by messages; each of
them then sends the result to its rack.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidTensor
from ...numerics.tensors import ends_of
from ..halving import check_power_of_two, halve_and_double
from ..operation import Members, OperationCall, OperationDescription, Stepped, Steps, narrowed

_LARGEST: Final = 2.0**450
"""Bound of |x|, so that squared norms are far below float64's largest number."""


def _start(call: OperationCall) -> Stepped:
    numbers, kind = call.floats("adasum")
    place = f"tensor {call.name!r}"
    if call.rack is None:
        check_power_of_two(call.workers, "workers", place)
    ends = ends_of(call.cuts, numbers.size, call.name)
    call.check_finite(numbers, kind, kind.is_finite(numbers))
    wide = np.array(kind.widen(numbers)).reshape(-1)
    if wide.dtype == np.float64 and (np.abs(wide[np.isfinite(wide)]) > _LARGEST).any():
        raise InvalidTensor("op='adasum' needs |x| ≤ 2^450: norms are squared", place=place)
    result = partial(narrowed, kind=kind, shape=numbers.shape)
    return Stepped(partial(_steps, call=call, wide=wide, ends=ends, result=result))


def _steps(members: Members, *, call: OperationCall, wide: NDArray[Any], ends: list[int], result: Any) -> Steps:
    rack = call.rack
    leads = np.zeros(members.size, np.int32)
    leads[members.rank] = rack is None or rack.rank == 0
    name = f"{call.name}: adasum {call.signature:x}"
    [counts] = yield [members.allreduce_async(leads, name=name)]
    leaders = np.flatnonzero(counts).tolist()
    check_power_of_two(len(leaders), "workers" if rack is None else "racks", f"tensor {call.name!r}")
    values = wide
    if rack is not None:
        [values] = yield [rack.allreduce_async(wide, name=name, nonfinite=call.nonfinite, cuts=call.cuts)]
    if members.rank in leaders and len(leaders) > 1:
        place = leaders.index(members.rank)
        values = yield from halve_and_double(members.transport, leaders, place, values, ends)
    if rack is not None:
        [values] = yield [rack.broadcast_async(values, 0, name=name)]
    return np.asarray(result(values))


DESCRIPTION: Final = OperationDescription(
    "adasum", "Adasum of x, tensor by tensor: orthogonal x are summed, parallel ones averaged", _start, racked=True
)
