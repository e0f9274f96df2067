"""Host side of the aggregation protocol: workers, which have gradients summed, and the parameter server.

Training loops call `Communicator`: all-reduce and other collectives of arrays of any type. `tensors`, `encodings` and
`scalars` turn their numbers into integers whose sum is exact, and back; `reference_sum` computes the result that every
fabric must return, bit for bit. `WorkerCore` and `ParameterServerCore` are the protocol as state machines without I/O,
for a driver with a clock and a network: the emulated fabric, or `udp`'s sockets.

`numerics` turns numbers into lanes, `compression` has codecs, `protocol` the cores, `transport` messages between two
hosts, `collectives` the calls of training loops, `drivers` the sockets and the seats in jobs, `torch` the back end of
torch.distributed: each imports only folders that stand before it. This package imports `wire` alone, and `torch`
PyTorch.
"""

from .collectives.communicator import Communicator, WorkerDriver, wait_all
from .collectives.compression import Compression
from .collectives.handle import Handle
from .drivers.classifier import Classifier
from .drivers.client import Membership, join, serve
from .drivers.control_client import ControlClient
from .drivers.udp import UdpEndpoint, UdpHost, UdpWorker
from .drivers.udp_transport import connect
from .errors import (
    AllreduceAborted,
    AllreduceTimeout,
    CallMismatch,
    ControlAbsent,
    ControlRefused,
    EndpointClosed,
    HostError,
    InvalidMessage,
    InvalidPlan,
    InvalidTensor,
    JoinRefused,
    JoinTimeout,
    NoClass,
    NotPublished,
    PeerLost,
    PeerRestarted,
    TransportError,
    TransportTimeout,
    Withdrawn,
    WorkerLeft,
    WorkerMissing,
)
from .numerics.datatypes import DataType, data_type
from .numerics.scalars import error_bound
from .numerics.tensors import Reduced, Tensor, reference_sum
from .protocol.counters import Counters
from .protocol.server import ParameterServerCore
from .protocol.worker import WorkerCore, WorkerOptions
from .transport.options import TransportOptions
from .transport.transport import Transport

__all__ = [
    "AllreduceAborted",
    "AllreduceTimeout",
    "CallMismatch",
    "Classifier",
    "Communicator",
    "Compression",
    "ControlAbsent",
    "ControlClient",
    "ControlRefused",
    "Counters",
    "DataType",
    "EndpointClosed",
    "Handle",
    "HostError",
    "InvalidMessage",
    "InvalidPlan",
    "InvalidTensor",
    "JoinRefused",
    "JoinTimeout",
    "Membership",
    "NoClass",
    "NotPublished",
    "ParameterServerCore",
    "PeerLost",
    "PeerRestarted",
    "Reduced",
    "Tensor",
    "Transport",
    "TransportError",
    "TransportOptions",
    "TransportTimeout",
    "UdpEndpoint",
    "UdpHost",
    "UdpWorker",
    "Withdrawn",
    "WorkerCore",
    "WorkerDriver",
    "WorkerLeft",
    "WorkerMissing",
    "WorkerOptions",
    "connect",
    "data_type",
    "error_bound",
    "join",
    "reference_sum",
    "serve",
    "wait_all",
]
