"""Gossip averaging of a PyTorch model: each rank pulls the weights of one other rank while it computes.

::

    every rank     publish weights ─ begin a pull ─ compute a step ─ end the pull: x ← x − c_im · (before − x_m) ─ …
    lowest rank    pulls all ranks' measured times ─▶ policy ─▶ publishes it; the others pull it
    as it ends     withdraw all that is published: a pull tells the others at once that the rank has ended

Both sides of the move are weights from before the step, so that a pull never undoes a rank's own step. No call is
collective: a rank waits for the one pull that it has begun, and goes on without ranks that have ended or are lost.

Source of the scheme: Zhou et al., "Communication-efficient Decentralized Machine Learning over Heterogeneous Networks"
(NetMax, ICDE 2021).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch.distributed.optim import PostLocalSGDOptimizer

from ...errors.values import Checks
from ..errors import (
    EndpointClosed,
    InvalidPlan,
    InvalidTensor,
    NotPublished,
    PeerLost,
    PeerRestarted,
    TransportError,
    Withdrawn,
)
from ..transport.core import Published
from ..transport.transport import Transport, TransportCall

Matrix = NDArray[np.float64]
Weights = NDArray[np.float32 | np.float64]
Compute = Callable[[Matrix], tuple[Matrix, Matrix]]
"""Compute probabilities and pull weights, (ranks, ranks) each, from iteration times in s: entry (i, m) is an iteration
of rank i that pulls from rank m, entry (i, i) one without a pull.
"""

_WEIGHTS: Final = "gossip weights"
_TIMES: Final = "gossip times"
_POLICY: Final = "gossip policy"
_KEEP: Final = 0.5
"""Weight of the old value in moving averages of times."""
_LONGEST_PERIOD: Final = 1_000_000
"""Largest period: more steps between two exchanges are no gossip, but a mistake."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Shared:
    """State that the averagers of one transport share."""

    averagers: int = 0
    """Number of averagers so far. Each publishes by names of its own, so that models never mix."""
    gone: dict[int, int] = field(default_factory=dict)
    """Ranks that have closed their transport or do not answer, each with the number of its last connection."""


_shared: Final = WeakKeyDictionary[Transport, _Shared]()


class _Pull(NamedTuple):
    """A pull of another rank's weights that has begun."""

    peer: int
    call: TransportCall[Published]
    before: Weights
    """This rank's weights when it began, (parameters,)."""
    began_s: float


class _Question(NamedTuple):
    """A pull of another rank's times or policy, which is not waited for."""

    peer: int
    call: TransportCall[Published]


def check_wrappable(optimizer: object) -> None:
    """Raise InvalidPlan for an object that is no optimiser of PyTorch, or that averages already."""
    Checks(InvalidPlan, "gossip").instance("optimizer", optimizer, torch.optim.Optimizer)
    if hasattr(optimizer, "averager"):
        raise InvalidPlan("the optimizer averages already; wrap it once", place="gossip", value=optimizer)


class GossipOptimizer(PostLocalSGDOptimizer):
    """Optimiser that averages after each step; in all else it is the wrapped one.

    PyTorch's class keeps the wrapped one's parameter groups of its beginning, of which `load_state_dict` makes new
    ones: schedulers would then change the learning rates of the old ones.
    """

    optim: torch.optim.Optimizer
    averager: GossipAverager

    def __init__(self, optimizer: torch.optim.Optimizer, averager: GossipAverager) -> None:
        """Wrap an optimiser."""
        super().__init__(optimizer, averager)
        del self.param_groups  # `__getattr__` finds those of the wrapped one

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the wrapped optimiser, such as its parameter groups, its defaults and its hooks."""
        if name == "optim":  # not set yet, as in a copy
            raise AttributeError(name)
        return getattr(self.optim, name)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make a step of the wrapped optimiser, and average; return the closure's loss."""
        loss = self.optim.step(closure) if closure is not None else self.optim.step()
        self.averager.average_parameters(self.param_groups)
        return loss


class GossipAverager:
    """Averager of one model, for `torch.distributed.optim.PostLocalSGDOptimizer`.

    Attributes:
        pulls: Number of pulls whose weights were averaged.
        missed: Number of pulls that failed, because a rank has ended, was lost or had published nothing yet, or because
            the number of parameters has changed meanwhile.
        nonfinite: Number of pulls that brought a NaN or an infinity, and so were not averaged.
        version: Version of the policy in force; 0: all others alike, with pull weight 0.5.
    """

    def __init__(
        self,
        transport: Transport,
        compute: Compute,
        *,
        period: int = 1,
        policy_period: int = 20,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the averager, alike at every rank; several of one transport in the same order.

        Args:
            transport: Messages to the job's other workers, such as `weir.join().transport`.
            compute: Way to compute a policy; the lowest living rank uses it.
            period: Steps from one pull to the next, at most 1,000,000.
            policy_period: Pulls from one look at all ranks' times to the next, at most 1,000,000.
            seed: Of the draws of ranks.
            clock: Time in s.

        Raises:
            InvalidPlan: A period is not an integer in 1…1,000,000, the seed not one of at least 0, or the job has one
                worker.
        """
        checks = Checks(InvalidPlan, "gossip")
        period = checks.integer("period", period, 1, _LONGEST_PERIOD)
        policy_period = checks.integer("policy_period", policy_period, 1, _LONGEST_PERIOD)
        seed = checks.integer("seed", seed)
        self._transport, self._compute, self._clock = transport, compute, clock
        self._rank, self._ranks = transport.rank, transport.size
        if self._ranks < 2:
            raise InvalidPlan("gossip needs two workers or more; the job has 1", place="workers", value=self._ranks)
        shared = _shared.setdefault(transport, _Shared())
        shared.averagers += 1
        self._weights_name, self._times_name, self._policy_name = (
            f"{name} {shared.averagers}" for name in (_WEIGHTS, _TIMES, _POLICY)
        )
        self._gone = shared.gone
        self._ended: dict[int, int] = {}
        """Ranks whose averager has ended, each with the number of its last connection."""
        self._period, self._policy_period = period, policy_period
        self._chances = np.random.default_rng((seed, self._rank))
        self._probabilities = np.full((self._ranks, self._ranks), 1 / (self._ranks - 1))
        np.fill_diagonal(self._probabilities, 0)
        self._pull_weights = np.full((self._ranks, self._ranks), 0.5)
        self._step = 0
        self.pulls, self.missed, self.nonfinite, self.version = 0, 0, 0, 0
        self._equals = set[int]()
        """Ranks that had as many parameters as this one, so that another number now is no other model's."""
        self._warned = set[tuple[int, str]]()
        """Ranks and faults of theirs that a warning was logged about."""
        self._times = np.full(self._ranks, np.nan)
        """Measured times of this rank's iterations by the rank it pulled from; its own place: of computing."""
        self._pull: _Pull | None = None
        self._ended_s: float | None = None
        self._rows: dict[int, _Question] = {}
        self._news: _Question | None = None
        """A look for a newer policy."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="weir gossip")
        self._computing: Future[tuple[list[int], tuple[Matrix, Matrix]]] | None = None
        self._newest = 0
        """Highest version that ranks have reported: one that leads after a restart begins above it."""
        self._has_ended = False
        transport.before_close(self.end)

    @property
    def step(self) -> int:
        """Number of calls of `average_parameters`, as PyTorch's averagers count them in checkpoints."""
        return self._step

    @step.setter
    def step(self, step: int) -> None:
        """Set the number from a checkpoint: a pull under way belongs to the weights before it, and is dropped."""
        self._step, self._pull, self._ended_s = step, None, None

    @property
    def lost(self) -> set[int]:
        """Ranks that have ended, or do not answer any more."""
        return {*self._ended, *self._gone}

    def end(self) -> None:
        """Tell the other ranks that this one has ended, so that they stop pulling from it. May be repeated.

        The end of the communicator or of the transport does so for all averagers.
        """
        if self._has_ended:
            return
        self._has_ended = True
        self._thread.shutdown(wait=False, cancel_futures=True)
        for name in (self._weights_name, self._times_name, self._policy_name):
            self._transport.withdraw(name)
        if 0 < self._step < self._period:
            _log.warning("gossip: %d steps and no exchange, because the period is %d", self._step, self._period)

    def average_parameters(self, params: Iterable[Any]) -> None:
        """Move the parameters towards those of the rank that this one has pulled from, and begin the next pull.

        Args:
            params: Parameters, or parameter groups of an optimiser; the same at every call and rank. Integer ones
                stay as they are.

        Raises:
            InvalidTensor: Another rank's model has another number of parameters.
            EndpointClosed: This averager, its transport or its communicator has ended.
        """
        if self._has_ended:
            raise EndpointClosed("gossip has ended; wrap the optimiser again in a new job")
        self._step += 1
        if self._step % self._period:
            return
        self._welcome_back()
        tensors = list(_averaged(params))
        now_s = self._clock()
        if self._ended_s is not None:
            self._observe(self._rank, now_s - self._ended_s)
        weights = _flat(tensors)
        if self._pull is not None and (pulled := self._end(self._pull, weights.size)) is not None:
            pull_weight = weights.dtype.type(self._pull_weights[self._rank, self._pull.peer])
            with np.errstate(over="ignore", invalid="ignore"):  # this rank's own weights may be infinite
                weights -= pull_weight * (self._pull.before - pulled)
            _write(weights, tensors)
        self._transport.publish(self._weights_name, weights)
        self._update_policy()
        self._begin(weights)
        self._ended_s = self._clock()

    def _begin(self, weights: Weights) -> None:
        """Begin a pull from a drawn rank, or from none."""
        chances = self._probabilities[self._rank].copy()
        chances[list(self.lost)] = 0
        self._pull = None
        if (total := chances.sum()) > 0:
            peer = int(self._chances.choice(self._ranks, p=chances / total))
            if peer != self._rank:
                call = self._transport.pull_async(peer, self._weights_name)
                self._pull = _Pull(peer, call, weights, self._clock())

    def _end(self, pull: _Pull, size: int) -> Weights | None:
        """Return the weights that a pull has brought; None if there are none to average with."""
        published = self._result(pull.peer, pull.call)
        if published is None:
            self.missed += 1
            return None
        self._observe(pull.peer, self._clock() - pull.began_s)
        weights: Weights = published.value
        if pull.before.size != size:
            self._equals.update(range(self._ranks))
        if weights.shape != (size,) or pull.before.size != size:
            self._check_size(pull.peer, weights.size, size)
            self.missed += 1
            return None
        self._equals.add(pull.peer)
        if not np.isfinite(weights).all():
            self.nonfinite += 1
            self._warn_once(pull.peer, "has weights that are not finite; they are not averaged")
            return None
        self.pulls += 1
        return weights

    def _check_size(self, peer: int, theirs: int, mine: int) -> None:
        """Refuse a model of another size, unless sizes may differ for a while because parameters were added."""
        if peer not in self._equals:
            raise InvalidTensor(
                f"rank {peer} has {theirs} parameters and rank {self._rank} has {mine}; all ranks train one model",
                place="gossip",
                value=theirs,
            )
        if theirs != mine:
            self._warn_once(peer, f"has {theirs} parameters and this one {mine}; averaged again once both have as many")

    def _warn_once(self, peer: int, fault: str) -> None:
        if (peer, fault) not in self._warned:
            self._warned.add((peer, fault))
            _log.warning("gossip: rank %d %s", peer, fault)

    def _result(self, peer: int, call: TransportCall[Published]) -> Published | None:
        """Wait for a call; None if it fails, where a peer that has ended or is gone counts as lost."""
        try:
            return call.wait_or_cancel()
        except Withdrawn as error:
            self._lose(self._ended, error, "has ended")
        except (PeerRestarted, NotPublished):
            pass
        except PeerLost as error:
            self._lose(self._gone, error, "has closed its end, or does not answer")
        except TransportError as error:
            _log.warning("gossip: a pull from rank %d failed: %s", peer, error)
        return None

    def _lose(self, where: dict[int, int], error: TransportError, why: str) -> None:
        if error.peer not in self.lost:
            _log.warning("gossip goes on without rank %d, which %s", error.peer, why)
        where[error.peer] = error.connection

    def _welcome_back(self) -> None:
        """Count ranks as living again that have made a new connection to this one since they were lost."""
        for lost in (self._ended, self._gone):
            for peer in [peer for peer, last in lost.items() if self._transport.connection(peer) > last]:
                del lost[peer]
                _log.warning("gossip goes on with rank %d, which is back", peer)

    def _observe(self, peer: int, seconds: float) -> None:
        before = self._times[peer]
        self._times[peer] = seconds if np.isnan(before) else _KEEP * before + (1 - _KEEP) * seconds

    # --- policies ---

    def _update_policy(self) -> None:
        """Do this call's part of agreeing on a policy; waits for nobody."""
        living = sorted(set(range(self._ranks)) - self.lost)
        leader = living[0]
        if self._step // self._period % self._policy_period == 0:
            self._transport.publish(self._times_name, np.append(self._times, self.version))
            if leader == self._rank and not self._rows and self._computing is None:
                self._rows = {peer: self._ask(peer, self._times_name) for peer in living[1:]}
            elif leader != self._rank and self._news is None:
                self._news = self._ask(leader, self._policy_name)
        if self._news is not None and self._news.call.done():
            news, self._news = self._result(*self._news), None
            if news is not None:
                self._apply_update(news.value)
        if self._rows and all(row.call.done() for row in self._rows.values()):
            rows = {peer: self._result(*row) for peer, row in self._rows.items()}
            self._rows = {}
            known = {peer: row.value for peer, row in rows.items() if row is not None}
            self._newest = max([self._newest, *(int(row[-1]) for row in known.values())])
            self._start_computing({**{peer: row[:-1] for peer, row in known.items()}, self._rank: self._times.copy()})
        if self._computing is not None and self._computing.done():
            self._publish_policy(self._computing)

    def _ask(self, peer: int, name: str) -> _Question:
        return _Question(peer, self._transport.pull_async(peer, name))

    def _start_computing(self, rows: Mapping[int, Matrix]) -> None:
        """Compute a policy for the living ranks, in the thread; a slow one may have published no times yet."""
        ranks = sorted(set(range(self._ranks)) - self.lost)
        if len(ranks) < 2:
            return
        unknown = np.full(self._ranks, np.nan)
        seconds = np.stack([rows.get(rank, unknown)[ranks] for rank in ranks])
        known = seconds[~np.isnan(seconds)]
        seconds = np.where(np.isnan(seconds), known.mean() if known.size else 1.0, seconds)
        self._computing = self._thread.submit(lambda: (ranks, self._compute(np.maximum(seconds, 1e-9))))

    def _publish_policy(self, computing: Future[tuple[list[int], tuple[Matrix, Matrix]]]) -> None:
        """Publish the policy that was computed, and follow it."""
        self._computing = None
        try:
            ranks, parts = computing.result()
            policy = np.zeros((3, self._ranks, self._ranks))
            policy[0, 0, 0] = max(self._newest, self.version) + 1
            for place, part in enumerate(parts, 1):
                policy[place][np.ix_(ranks, ranks)] = part
        except Exception as error:  # noqa: BLE001 (a user's policy raises what it likes; the last one stays in force)
            _log.warning("gossip: no new policy: %s", error)
            return
        # two ranks that pull from each other at once would swap their weights with 1, and their difference grows
        policy[2] /= np.maximum(1.0, policy[2] + policy[2].T)
        self._transport.publish(self._policy_name, policy)
        self._apply_update(policy)

    def _apply_update(self, policy: Matrix) -> None:
        """Follow a published policy, if it is newer."""
        version = int(policy[0, 0, 0])
        if version > self.version:
            self.version, self._probabilities, self._pull_weights = version, policy[1], policy[2]


def _averaged(params: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yield the parameters that have a mean, complex ones as pairs of real numbers that share their memory."""
    for param in params:
        for tensor in param["params"] if isinstance(param, Mapping) else (param,):
            if tensor.is_complex():
                yield torch.view_as_real(tensor.detach())
            elif tensor.is_floating_point():
                yield tensor


def _flat(tensors: Sequence[torch.Tensor]) -> Weights:
    """Copy tensors into one array, (parameters,): of float64 if one of them is, otherwise of float32."""
    dtype = torch.float64 if any(tensor.dtype == torch.float64 for tensor in tensors) else torch.float32
    parts = [tensor.detach().to("cpu", dtype).numpy().ravel() for tensor in tensors]
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


def _write(weights: Weights, tensors: Iterable[torch.Tensor]) -> None:
    begin = 0
    with torch.no_grad():
        for tensor in tensors:
            end = begin + tensor.numel()
            tensor.copy_(torch.from_numpy(weights[begin:end]).view(tensor.shape))
            begin = end
