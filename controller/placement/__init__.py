"""Placement: which switches sum which workers' gradients, from fabric, job and measured link loads.

Sub-packages, bottom first: `model` has the problem, its answer and the predicted completion time; `exact` searches for
one job's tree; `multi_job` places several jobs and finds joint moves of running ones; `strategies` has the ways to
place a job, by name. The strategies that are baselines share `baseline_trees`; `reference_schemes` lists schemes that
evaluations compare with strategies and that place no single job. Pure, except for the clocks that end searches.
"""

from .exact.fan_in import fitted
from .model.cost import PlacementCosts, predicted_completion_time
from .model.problem import NoTree, Placement, PlacementError, Problem, way_up

__all__ = [
    "NoTree",
    "Placement",
    "PlacementCosts",
    "PlacementError",
    "Problem",
    "fitted",
    "predicted_completion_time",
    "way_up",
]
