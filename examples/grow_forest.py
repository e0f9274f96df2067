"""A decision forest that the workers of a job grow together: `weir launch -n 3 examples/grow_forest.py digits.json`.

Each worker has a third of the images. A tree is grown from counts: how many images that reach a node have which digit,
by value of a pixel. The switches add up the workers' counts. So all workers choose the same split, which a single
machine with all images would choose, and images never leave their worker. Worker 0 saves the forest for
`weir model load`.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import weir
from weir.controller.inference.forest import LEAF, DecisionTree

TREES, LEAVES, PICKED = 9, 64, 8  # PICKED: pixels that a split chooses among, drawn at each node
VALUES, CLASSES = 17, 10

Counts = NDArray[np.int32]


class GrowingTree:
    """One tree at one worker: the nodes so far, and the node that each of the worker's images reaches."""

    def __init__(self, number: int, images: NDArray[Any], digits: NDArray[Any], drawn: NDArray[Any]) -> None:
        """Start with the root. `drawn` says how often each image was drawn for this tree (bootstrap)."""
        self.number, self.images, self.digits, self.drawn = number, images, digits, drawn
        self.reached = np.zeros(len(images), int)
        self.nodes: list[list[int]] = []  # feature, threshold, left, right, decision
        self.gains: list[tuple[float, int, int]] = []  # best gain of each open leaf, its feature and threshold
        self.fresh = self._add(1)

    def _add(self, count: int) -> range:
        first = len(self.nodes)
        self.nodes += [[LEAF, 0, 0, 0, 0] for _ in range(count)]
        self.gains += [(-1.0, 0, 0)] * count
        return range(first, first + count)

    def _pixels(self, node: int) -> NDArray[Any]:
        return np.random.default_rng((self.number, node)).permutation(self.images.shape[1])[:PICKED]

    def counts(self) -> Counts:
        """This worker's images at the two new leaves: (2, PICKED, VALUES, CLASSES)."""
        counts_by_class = np.zeros((2, PICKED, VALUES, CLASSES), np.int32)
        for table, node in zip(counts_by_class, self.fresh, strict=False):
            here = self.reached == node
            for row, pixel in enumerate(self._pixels(node)):
                np.add.at(table[row], (self.images[here, pixel], self.digits[here]), self.drawn[here])
        return counts_by_class

    def learn(self, counts: Counts) -> None:
        """Note the best split of the new leaves by all workers' counts, then split the best open leaf of the tree."""
        for table, node in zip(counts.astype(float), self.fresh, strict=False):
            below = table.cumsum(axis=1)  # (PICKED, VALUES, CLASSES): images up to each value
            whole = below[0, -1]
            self.nodes[node][4] = int(whole.argmax())
            gain = purity(below) + purity(whole - below) - purity(whole)
            row, value = divmod(int(gain.argmax()), VALUES)
            self.gains[node] = (float(gain[row, value]), int(self._pixels(node)[row]), value)
        best = max(range(len(self.gains)), key=lambda node: self.gains[node][0])
        most, pixel, threshold = self.gains[best]
        self.fresh = range(0)
        if most <= 1e-9 or len(self.nodes) >= 2 * LEAVES - 1:
            return
        self.fresh = self._add(2)
        left, right = self.fresh
        self.nodes[best][:4] = pixel, threshold, left, right
        self.gains[best] = (-1.0, 0, 0)
        here = self.reached == best
        self.reached[here] = np.where(self.images[here, pixel] <= threshold, left, right)


def purity(counts: NDArray[Any]) -> NDArray[Any]:
    """Sum of squares over the sum, along the last axis: a split gains by what it adds to it (Gini)."""
    total = counts.sum(axis=-1)
    purest: NDArray[Any] = (counts**2).sum(axis=-1) / np.maximum(total, 1)
    return purest


def grow(
    images: NDArray[Any], digits: NDArray[Any], rank: int, size: int, add: Callable[[Counts], Counts]
) -> weir.Forest:
    """Grow a forest from this worker's share of the images; `add` sums an array over all workers."""
    share = slice(rank, None, size)
    trees = []
    for number in range(TREES):
        drawn = np.random.default_rng(number).multinomial(len(images), np.full(len(images), 1 / len(images)))
        trees.append(GrowingTree(number, images[share].astype(int), digits[share], drawn[share]))
    while any(len(tree.fresh) for tree in trees):
        for tree, counts in zip(trees, add(np.stack([tree.counts() for tree in trees])), strict=True):
            tree.learn(counts)
    grown = tuple(DecisionTree(*(tuple(part) for part in zip(*tree.nodes, strict=True))) for tree in trees)
    return weir.Forest(tuple(range(CLASSES)), images.shape[1], grown)


def main() -> None:
    images, _, digits, _ = train_test_split(*load_digits(return_X_y=True), test_size=450, random_state=0)
    with weir.join() as communicator:
        forest = grow(images, digits, communicator.rank, communicator.size, communicator.allreduce)
        if communicator.rank == 0:
            forest.save(sys.argv[1])
            leaves = sum(tree.feature.count(LEAF) for tree in forest.trees)
            print(f"{len(forest.trees)} trees of {leaves} leaves from the counts of {communicator.size} workers")


if __name__ == "__main__":
    main()
