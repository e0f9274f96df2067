"""What a training job does between its collectives, and how its workers keep together.

`modes` names the synchronisation modes and their numbers, `rules` are the clock rules of those that a parameter server
keeps, as state machines without time of their own; `batching` shares a batch among workers of different speeds
(LB-BSP). `machines` says how long workers compute: speeds that differ, drift
and jitter. `job` has every worker and the server as a process of its own (`processes`), which run in virtual time over
an emulated fabric or none (`ideal`).
"""

from .course import Course
from .errors import TrainingError
from .job import Training, TrainingPlan, Workload
from .machines import Machine
from .modes import MODES, Mode
from .processes import Processes

__all__ = [
    "MODES",
    "Course",
    "Machine",
    "Mode",
    "Processes",
    "Training",
    "TrainingError",
    "TrainingPlan",
    "Workload",
]
