"""A collective operation of a user: the product of all workers' numbers."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weir.hosts.collectives.operations import OperationDescription, gathered


def product(numbers: NDArray[Any], there: NDArray[np.bool_], kind: Any) -> NDArray[Any]:
    result: NDArray[Any] = np.where(there, numbers, numbers.dtype.type(1)).prod(axis=0)
    return result


DESCRIPTION = OperationDescription("product", "Π x", partial(gathered, combine=product))
