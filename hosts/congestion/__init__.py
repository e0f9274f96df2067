"""Windows of a worker's rounds in the network: laws as small state machines on one interface (`law`), by name (`laws`),
and the spacing of rounds in time (`pacer`). `yielding` belongs to no job: a sender of background packets that yields to
marks.
"""

from .law import Feedback, Link, Setting, WindowLaw
from .laws import LAWS
from .laws.dctcp import Dctcp
from .laws.delay import DelayTarget
from .laws.explicit import ExplicitWindow
from .laws.fixed import FixedWindow
from .laws.hpcc import Hpcc, Reading
from .laws.loss import LossDriven
from .pacer import Pacer
from .yielding import YieldingSender

__all__ = [
    "LAWS",
    "Dctcp",
    "DelayTarget",
    "ExplicitWindow",
    "Feedback",
    "FixedWindow",
    "Hpcc",
    "Link",
    "LossDriven",
    "Pacer",
    "Reading",
    "Setting",
    "WindowLaw",
    "YieldingSender",
]
