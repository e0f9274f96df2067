"""Placement: which switches sum which workers' gradients, from fabric, job and what telemetry says of the links.

`problem` has the question and the answer, `cost` the predicted completion time, `network` the streams' choices as a
flow network, `lp` its exact linear program, `search` the sets of switches tried around it, `fan_in` the tree nearest to
a wanted one in which no node has too many children. Pure, but for the clock that ends `fan_in`'s search.
"""

from .cost import Costs, predicted_completion_time, should_move
from .fan_in import fitted
from .problem import Placement, PlacementError, Problem

__all__ = [
    "Costs",
    "Placement",
    "PlacementError",
    "Problem",
    "fitted",
    "predicted_completion_time",
    "should_move",
]
