"""HiTopKComm: dense sums inside each rack, and only the largest sums between racks.

::

    bucket + residual ─▶ reduce-scatter in the rack ─▶ shard ─▶ largest numbers ─▶ all-gather among the ranks with
                                                                                   this place in every rack
    bucket ◀─ all-gather in the rack ◀─ shard of the sum ◀──────────────────────────────────┘

Source: Shi et al., "Towards Scalable Distributed Training of Deep Learning on Public Cloud Clusters" (MLSys 2021),
section 3.2. With m racks of n ranks, a rank sends 2 (n - 1) / n · d numbers inside its rack, and k = ratio · d / n
numbers with their indices to each of m - 1 other racks.

The residual is kept by parameter, and added before the reduce-scatter: that is a sum, so the residual counts once,
also after DistributedDataParallel has built other buckets, whose shards are other ranks'.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch.futures import Future

from ...compression.codec import Context, number_text
from ...compression.states import State, check_numbered, check_size, checked_numbers, owned, split
from ...errors import InvalidPlan
from ...numerics.draws import Draws
from ...numerics.quantization import Float32Array
from .agreement import check_alike, device_of_world
from .compressed import CodecState, gather_codes
from .racks import CallThread, check_racks, racks_named

_HOOK: Final = "hook"
_RESIDUAL: Final = "residual/"


class HiTopKState:
    """State of `hitopk_hook`: the racks, and what has not crossed between them yet."""

    def __init__(self, racks: Sequence[Sequence[int]], ratio: float = 0.01, *, feedback: bool = True) -> None:
        """Make the groups. All ranks of the world make them alike.

        Args:
            racks: The ranks of each rack, all of one size; every rank of the world is in one.
            ratio: Share of a rack's sums that crosses to the others, above 0 and at most 1.
            feedback: Add what has not crossed to the next gradient.

        Raises:
            InvalidPlan: A rank is in none or in several racks, or racks have different sizes.
            InvalidTensor: The ratio is out of range.
            CallMismatch: The ranks' arguments differ; raised at every rank.
        """
        self.name = f"hitopk({racks_named(racks)}, ratio {number_text(ratio)}, feedback {feedback})"
        check_alike(self.name, None, device_of_world())
        check_racks(racks)
        sizes = sorted({len(rack) for rack in racks})
        if len(sizes) > 1:
            raise InvalidPlan(
                f"racks have {sizes} ranks; each rank sums with those of its place in the other racks, so all racks "
                "have the same size",
                place="racks",
                value=sizes,
            )
        self.codec_state = CodecState("topk", ratio=ratio, feedback=False)
        self.feedback = feedback
        rank = dist.get_rank()
        inside = [dist.new_group(list(rack)) for rack in racks]
        across = [dist.new_group([rack[place] for rack in racks]) for place in range(sizes[0])]
        own = next(number for number, rack in enumerate(racks) if rank in rack)
        self.place = list(racks[own]).index(rank)
        self.inside, self.across = inside[own], across[self.place]
        self._residuals: dict[str, Float32Array] = {}
        self.calls = CallThread("weir hitopk")

    def residuals(self, names: Sequence[str], sizes: Sequence[int]) -> Float32Array:
        """Return what has not crossed of parameters' sums, one after another; zeros for those that are new.

        Raises:
            InvalidTensor: A parameter has another size than its residual.
        """
        parts = []
        for name, size in zip(names, sizes, strict=True):
            new = np.zeros(size, np.float32)
            parts.append(self._residuals.get(name, new))
            check_size(parts[-1], new, "residual", name)
        return np.concatenate(parts)

    def keep(self, names: Sequence[str], residuals: Sequence[Float32Array]) -> None:
        """Keep the residuals of parameters for the next step."""
        self._residuals.update(zip(names, residuals, strict=True))

    def state_dict(self) -> State:
        """Return this rank's state for a checkpoint of its own."""
        residuals: State = {f"{_RESIDUAL}{name}": kept.copy() for name, kept in self._residuals.items()}
        return {**residuals, _HOOK: np.array(self.name)}

    def load_state_dict(self, state: State) -> None:
        """Continue from a state that `state_dict` returned at the same rank.

        Raises:
            InvalidTensor: It was saved with other arguments; or an entry is unknown or has another type or shape.
                Nothing has changed then.
        """
        entries = owned(state, self.name, _HOOK)
        check_numbered(entries, self.name)
        residuals, rest = split(entries, _RESIDUAL)
        found = checked_numbers(residuals, _RESIDUAL, self.name)
        self.codec_state.codec.load_state_dict(rest)  # which refuses all
        self._residuals = found


def hitopk_hook(state: HiTopKState, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """Average a bucket: all of it inside racks, its largest sums between them.

    Register it as `model.register_comm_hook(hooks.HiTopKState([[0, 1], [2, 3]]), hooks.hitopk_hook)`. A NaN or an
    infinity at any rank becomes NaN at all, in its shard of the bucket.

    Args:
        state: The state, of this model alone.
        bucket: A `GradBucket`, as DistributedDataParallel passes it.

    Returns:
        A future of the mean over the ranks, in the bucket's own buffer; the same bits at all ranks.
    """
    buffer = bucket.buffer()
    names = state.codec_state.names(bucket.parameters())
    sizes = [gradient.numel() for gradient in bucket.gradients()]
    values = np.concatenate(
        [gradient.detach().to("cpu", torch.float32).numpy().ravel() for gradient in bucket.gradients()]
    )

    def average() -> torch.Tensor:
        if state.feedback:
            np.add(values, state.residuals(names, sizes), out=values)
        total, missing = _summed(state, values, buffer.device)
        if state.feedback:
            state.keep(names, np.split(missing, np.cumsum(sizes)[:-1]))
        buffer.copy_(torch.from_numpy(total / np.float32(dist.get_world_size())))
        result: torch.Tensor = buffer
        return result

    return state.calls.start(average)


def _summed(state: HiTopKState, values: Float32Array, device: Any) -> tuple[Float32Array, Float32Array]:
    """Sum numbers over all ranks.

    Args:
        state: The hook's state.
        values: This rank's numbers, (size,).
        device: Where the groups' back end takes tensors.

    Returns:
        The sum (size,), and what of this rank's shard did not cross to other racks, (size,), zeros elsewhere.
    """
    ranks, racks = dist.get_world_size(state.inside), dist.get_world_size(state.across)
    length = -(-values.size // ranks)
    padded = np.zeros(ranks * length, np.float32)
    padded[: values.size] = values
    mine = torch.empty(length, device=device)
    dist.reduce_scatter_tensor(mine, torch.from_numpy(padded).to(device), group=state.inside)
    shard = mine.cpu().numpy()
    codec, context = state.codec_state.codec, Context(length, racks, Draws(0, dist.get_rank(state.across)))
    code = codec.encode(shard, context)
    future, finish = gather_codes(codec, code, context, bool(np.isfinite(shard).all()), device, state.across)
    future.wait()
    total, sent = finish()
    missing = np.zeros_like(padded)
    missing[state.place * length :][:length] = np.where(np.isfinite(shard), shard - sent, 0)
    whole = torch.empty(ranks * length, device=device)
    dist.all_gather_into_tensor(whole, torch.from_numpy(total).to(device), group=state.inside)
    return whole.cpu().numpy()[: values.size], missing[: values.size]
