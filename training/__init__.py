"""Training jobs: computation between collectives, and synchronisation of the workers.

The synchronisation modes are in `modes`, a module each, made of the processes in `exchanges`; `rules` are the clock
rules of a parameter server, as state machines that read no clock; `batching` shares a batch among workers of different
speeds (LB-BSP). `machines` models workers' computation times: speeds that differ, drift and jitter. `job` has every
worker and the server as a process of its own (`processes`), which run in virtual time over an emulated fabric or none
(`ideal`).
"""

from .errors import TrainingError
from .job import Training
from .loss_curve import LossCurve
from .machines import Machine
from .mode import Mode, TrainingPlan
from .modes import MODES, make_mode
from .processes import Processes
from .workload import Workload

__all__ = [
    "MODES",
    "LossCurve",
    "Machine",
    "Mode",
    "Processes",
    "Training",
    "TrainingError",
    "TrainingPlan",
    "Workload",
    "make_mode",
]
