"""Numbers that tensor parallelism moves: counted call by call, and by formula for a linear layer.

A rank's share of a collective has three measures. `by_hosts` is what a rank sends, and receives, in the mean over the
group, if hosts alone carry it by any broadcast or reduction tree or a ring. `up` and `down` are what a rank sends and
receives if switches copy and add on the way: a broadcast leaves its source once, a sum arrives at its target once.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(slots=True)
class Traffic:
    """Numbers moved by one rank."""

    by_hosts: Fraction = Fraction(0)
    up: Fraction = Fraction(0)
    down: Fraction = Fraction(0)

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.by_hosts + other.by_hosts, self.up + other.up, self.down + other.down)

    def scaled(self, factor: Fraction | int) -> Traffic:
        """Return the traffic of `factor` times as many calls."""
        return Traffic(self.by_hosts * factor, self.up * factor, self.down * factor)

    def count_broadcast(self, numbers: int, ranks: int, *, source: bool) -> None:
        """Count a broadcast of `numbers` among `ranks`."""
        self.by_hosts += Fraction((ranks - 1) * numbers, ranks)
        if ranks > 1 and source:
            self.up += numbers
        elif ranks > 1:
            self.down += numbers

    def count_reduce(self, numbers: int, ranks: int, *, target: bool) -> None:
        """Count a sum at one rank, which adds its own numbers itself."""
        self.by_hosts += Fraction((ranks - 1) * numbers, ranks)
        if ranks > 1 and target:
            self.down += numbers
        elif ranks > 1:
            self.up += numbers

    def count_all_reduce(self, numbers: int, ranks: int) -> None:
        """Count a sum at all ranks; by hosts alone as reduce-scatter and all-gather."""
        self.by_hosts += Fraction(2 * (ranks - 1) * numbers, ranks)
        if ranks > 1:
            self.up += numbers
            self.down += numbers


@dataclass(frozen=True, slots=True)
class LinearTraffic:
    """Traffic of a linear layer's three products on [q, q, d] ranks, in the mean over the ranks."""

    forward: Traffic
    """Y = X W."""
    of_input: Traffic
    """dX = dY Wᵀ."""
    of_weight: Traffic
    """dW = Xᵀ dY, and its sum over the depth."""

    @property
    def step(self) -> Traffic:
        """Traffic of a training step."""
        return self.forward + self.of_input + self.of_weight


def linear_traffic(q: int, d: int, rows: int, inputs: int, outputs: int) -> LinearTraffic:
    """Return the traffic of a linear layer without a bias.

    Blocks are those of Tesseract (Wang et al., ICPP 2022): a = (rows / dq)(inputs / q) numbers of the input and
    w = (inputs / q)(outputs / q) of the weight, which all d layers hold. Blocks of the output stay where they are made.

    Args:
        q: Side of a layer of ranks.
        d: Number of layers, the depth.
        rows: Rows of the input: samples times positions.
        inputs: Columns of the input.
        outputs: Columns of the output.
    """
    a = Fraction(rows, d * q) * Fraction(inputs, q)
    w = Fraction(inputs, q) * Fraction(outputs, q)
    if q == 1:
        forward = of_input = of_weight = Traffic()
    else:
        others = q - 1
        forward = Traffic(others * (a + w), a + w, others * (a + w))
        of_input = Traffic(others * (a + w), w + others * a, others * w + a)
        of_weight = Traffic(others * (a + w), a + others * w, others * a + w)
    depth = Traffic(Fraction(2 * (d - 1), d) * w, w, w) if d > 1 else Traffic()
    return LinearTraffic(forward, of_input, of_weight + depth)


def block_traffic(q: int, d: int, rows: int, width: int, inner: int) -> Traffic:
    """Return the traffic of a training step of one transformer block's linear layers: four of width × width, and two of
    width × inner. Sums of the norms and biases are left out; they are rows and columns, not blocks.

    Args:
        q: Side of the mesh.
        d: Depth of the mesh.
        rows: Rows of the block's input.
        width: Columns of the block's input.
        inner: Columns between the two layers of the perceptron.
    """
    square = linear_traffic(q, d, rows, width, width).step
    there = linear_traffic(q, d, rows, width, inner).step
    back = linear_traffic(q, d, rows, inner, width).step
    return square.scaled(4) + there + back


def megatron_traffic(ranks: int, rows: int, width: int) -> Traffic:
    """Return the traffic of a training step of one transformer block by Megatron-LM's 1-D division (Shoeybi et al.,
    2019): two sums of the block's input at all ranks forward, two backward.
    """
    total = Traffic()
    for _ in range(4):
        total.count_all_reduce(rows * width, ranks)
    return total
