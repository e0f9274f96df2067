"""How many rounds a worker may have in the network: laws as small state machines on one interface (`law`), and what
spaces the rounds out in time (`pacer`).
"""

from .dctcp import Dctcp
from .delay import DelayTarget
from .explicit import ExplicitWindow
from .fixed import FixedWindow
from .hpcc import Hop, Hpcc
from .law import Feedback, WindowLaw
from .pacer import Pacer

__all__ = ["Dctcp", "DelayTarget", "ExplicitWindow", "Feedback", "FixedWindow", "Hop", "Hpcc", "Pacer", "WindowLaw"]
