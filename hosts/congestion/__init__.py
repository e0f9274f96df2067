"""Windows of a worker's rounds in the network: laws as small state machines on one interface (`law`), and the spacing
of rounds in time (`pacer`). `yielding` belongs to no job: a sender of background packets that yields to marks.
"""

from .dctcp import Dctcp
from .delay import DelayTarget
from .explicit import ExplicitWindow
from .fixed import FixedWindow
from .hpcc import Hpcc, Reading
from .law import Feedback, WindowLaw
from .loss import LossDriven
from .pacer import Pacer
from .yielding import YieldingSender

__all__ = [
    "Dctcp",
    "DelayTarget",
    "ExplicitWindow",
    "Feedback",
    "FixedWindow",
    "Hpcc",
    "LossDriven",
    "Pacer",
    "Reading",
    "WindowLaw",
    "YieldingSender",
]
