"""Placement: which switches sum which workers' gradients, from fabric, job and what telemetry says of the links.

`problem` has the question and the answer, `links` the fabric as arrays, `cost` the predicted completion time. On these
stand the models: `trees` of adjacent hops, the whole tree as a mixed-integer program (`tree_program`) and its totally
unimodular `relaxation`, streams' choices as a flow `network` with its exact `lp`, and `fan_in`, the tree nearest to a
wanted one in which no node has too many children. `striped` places many jobs together, by a linear program of
`sharing`, and `together` says which running jobs should move for it. `strategies` has the ways to place a job, by name,
and `wishes` what the baselines among them share; `pipes` keeps them from what a chip with several cannot sum. Pure, but
for the clocks that end searches.
"""

from .cost import Costs, predicted_completion_time
from .fan_in import fitted
from .problem import Placement, PlacementError, Problem, way_up

__all__ = [
    "Costs",
    "Placement",
    "PlacementError",
    "Problem",
    "fitted",
    "predicted_completion_time",
    "way_up",
]
