"""The hosts' side of the aggregation protocol: workers that have gradients summed, and the parameter server.

`Communicator` is the face for training: all-reduce and other collectives of arrays of any type. `tensors`, `encodings`
and `scalars` turn their numbers into integers whose sum is exact, and back; `reference_sum` is what every fabric must
return, bit for bit. `WorkerCore` and `ParameterServerCore` are the protocol as state machines without I/O, for whoever
has a clock and a network: the emulated fabric, or `udp`'s sockets.

This room imports `wire` alone.
"""

from hosts.client import Membership, join, serve
from hosts.communicator import Communicator, Driver, Handle, wait_all
from hosts.control_client import ControlClient
from hosts.counters import Counters
from hosts.datatypes import DataType
from hosts.errors import (
    AllreduceAborted,
    AllreduceTimeout,
    CallMismatch,
    ControlRefused,
    EndpointClosed,
    HostError,
    InvalidPlan,
    InvalidTensor,
    JoinRefused,
    JoinTimeout,
    WorkerMissing,
)
from hosts.scalars import error_bound
from hosts.server import ParameterServerCore
from hosts.tensors import Reduced, Tensor, reference_sum
from hosts.udp import UdpEndpoint, UdpHost, UdpWorker
from hosts.worker import WorkerCore, WorkerOptions

__all__ = [
    "AllreduceAborted",
    "AllreduceTimeout",
    "CallMismatch",
    "Communicator",
    "ControlClient",
    "ControlRefused",
    "Counters",
    "DataType",
    "Driver",
    "EndpointClosed",
    "Handle",
    "HostError",
    "InvalidPlan",
    "InvalidTensor",
    "JoinRefused",
    "JoinTimeout",
    "Membership",
    "ParameterServerCore",
    "Reduced",
    "Tensor",
    "UdpEndpoint",
    "UdpHost",
    "UdpWorker",
    "WorkerCore",
    "WorkerMissing",
    "WorkerOptions",
    "error_bound",
    "join",
    "reference_sum",
    "serve",
    "wait_all",
]
