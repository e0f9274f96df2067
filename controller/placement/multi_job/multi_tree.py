"""Many jobs at once: each job's chunks divided among several trees, so that the slowest link of all is the fastest.

A chunk takes one tree, but a job's chunks may take different ones (each part is a shard of the job, with a root of its
own). With x_{j,t} the share of job j's chunks that go along tree t, and D_j its bytes times its weight,

    minimise T      Σ_t x_{j,t} = 1      pair e:  Σ_j Σ_t x_{j,t} · D_j · [t uses e] · 8 / free_e  ≤  T

This is a linear program over all trees (fractional tree packing). A pair e consists of two linked switches, and free_e
is the rate that background traffic leaves in its worse direction. Trees are generated as needed. The duals of the rows
are the links' prices, and a tree enters if it is cheaper by these prices than its job pays. A cheapest tree is a
Steiner tree, for which `steiner` finds an approximation. The optimum over the generated trees is exact. Weak duality
bounds its distance from the optimum over all trees if the cheapest tree is known (`Striping.bound_seconds`).

The first trees have prices that grow exponentially with a link's load: each job takes its cheapest tree by these
prices, and earlier jobs keep theirs. Most optima consist of the trees of a few such turns.

Shares are rounded down to 256ths, and the remaining parts go one by one to the tree whose slowest link is the fastest.
The trees of the first turn stay if they are better than the rounded shares, so the result is never worse than one tree
per job in sequence. At the search's limit the best shares so far are used, or else the trees of the first turn.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ..exact.min_max_lp import LimitReached, Shares, Sharing
from ..exact.native_trees import native_trees
from ..exact.spanning import last_that_connects
from ..exact.steiner import cheap_tree
from ..exact.trees import placed, user_switches
from ..model.cost import PlacementCosts
from ..model.links import Bools, Floats, Ints, Links
from ..model.problem import NoTree, Placement, PlacementError, Problem
from ..model.search_limit import SearchLimit

PARTS: Final = 256
"""Maximum number of equal parts into which a job's chunks are divided."""
MAX_STRIPES: Final = 16
"""Maximum number of trees among which one job's chunks are divided."""
MAX_ROUNDS: Final = 30
VISITS: Final = 1e8
"""Limit of a search, in visits of links: some ten seconds on one core."""
CLOSE: Final = 0.01
"""Once the bound is nearer than this share, no further trees are looked for."""
FEWER: Final = 0.05
"""A job is divided among fewer trees where that costs this share or less: every tree takes memory and scale rounds."""
_SMOOTHING: Final = 0.5
"""Weight of the best prices so far in the next ones: duals alone jump from vertex to vertex."""
_TURNS: Final = 3
"""Number of turns of each job for the program's first trees."""
_STEEPNESS: Final = 8.0
"""Exponent of the first trees' prices: a link as slow as the slowest one costs e to the power of this times an idle
one.
"""


@dataclass(frozen=True, slots=True)
class SwitchTree:
    """Switches of one tree of adjacent hops."""

    pairs: frozenset[int]
    root: int


@dataclass(frozen=True, slots=True)
class Stripe:
    """Some of a job's chunks, and where they are summed."""

    parts: int
    """Number of the PARTS into which the chunks are divided."""
    placement: Placement


@dataclass(frozen=True, slots=True)
class Striping:
    """Result for all jobs."""

    stripes: tuple[tuple[Stripe, ...], ...]
    """Stripes of each job, in the order of the request; the parts of each add up to PARTS."""
    slowest_seconds: float
    """Time of the slowest link, with all jobs' streams."""
    bound_seconds: float
    """No shares over any trees make it less, where prices were met by the cheapest trees there are."""


class Jobs:
    """Jobs on one fabric: the nodes that their trees must connect, and the time of their stream on each pair."""

    def __init__(self, problems: Sequence[Problem], weights: Sequence[float] | None = None) -> None:
        """`weights`: how much more a job's time counts. Raises PlacementError where they share no fabric, or a switch
        that a tree must sum at has no room.
        """
        if not problems or any(problem.routes is not problems[0].routes for problem in problems):
            raise PlacementError(
                "those placed together share one fabric and its routes; there must be one at least", place="jobs"
            )
        weights = [1.0] * len(problems) if weights is None else weights
        if len(weights) != len(problems) or min(weights) <= 0:
            raise PlacementError(
                f"{', '.join(map(str, weights))}; there is one above 0 for each of the jobs",
                place="weights",
                value=tuple(weights),
            )
        self.problems = problems
        self.links = Links.of(problems[0].routes)
        self.nodes: list[list[int]] = []
        self.usable: list[Bools] = []
        seconds = []
        access, others = np.zeros((2, len(self.links.number)))
        for problem, weight in zip(problems, weights, strict=True):
            costs = PlacementCosts(problem)
            seconds.append(weight * self.links.slowest_of_pairs(costs.seconds))
            places = self.links.access_of(problem.hosts)
            access[places] += weight * costs.seconds[places]
            others = np.maximum(others, costs.others)
            room = np.array([problem.takes(name) for name in self.links.switches])
            ends = [*problem.racks]
            if problem.server is not None:
                ends.append(problem.topology.attached_switch(problem.server).name)
            if full := [name for name in ends if not room[self.links.switch[name]]]:
                raise PlacementError(
                    "it must sum for a striped job and has no room; place the job alone",
                    place=", ".join(full),
                    value=tuple(full),
                )
            self.nodes.append(sorted({self.links.switch[name] for name in ends}))
            a, b = self.links.pairs.T
            self.usable.append(room[a] & room[b])
        self._aggregators = [user_switches(problem) for problem in problems]
        self.seconds: Floats = np.array(seconds)
        """(jobs, pairs): time of a job's whole stream."""
        self.others: Floats = self.links.slowest_of_pairs(others)
        """(pairs,): time of the streams of jobs outside this set."""
        first: dict[tuple[object, ...], int] = {}
        usable = [mask.tobytes() for mask in self.usable]
        kinds = zip(map(tuple, self.nodes), usable, [column.tobytes() for column in self.seconds], strict=True)
        self.alike = [first.setdefault(kind, job) for job, kind in enumerate(kinds)]
        """First job that agrees with each job in everything that its trees depend on, except the root."""
        self.least = float((access + others)[access > 0].max())
        """Time of the hosts' own links, for any trees, with the streams of all jobs of a host."""

    def load(self, trees: Sequence[Sequence[tuple[SwitchTree, float]]]) -> Floats:
        """Return the seconds (pairs,) of every pair, from each job's trees and their shares, and from others'
        streams.
        """
        load = self.others.copy()
        for job, mine in enumerate(trees):
            for tree, share in mine:
                pairs = list(tree.pairs)
                load[pairs] += share * self.seconds[job, pairs]
        return load

    def access(self, job: int) -> Ints:
        """Return the directed links between a job's hosts and their switches."""
        hosts = [self.links.host[host] for host in self.problems[job].hosts]
        links: Ints = self.links.access[hosts].ravel()
        return links

    def access_bytes(self) -> Floats:
        """Return the bytes (links,) of all jobs on the links of their hosts, by any trees: a stream of each job
        there.
        """
        sizes = np.zeros(len(self.links.number))
        for job, problem in enumerate(self.problems):
            sizes[self.access(job)] += problem.gradient_bytes
        return sizes

    def alone_seconds(self, job: int) -> float:
        """Return the time of a job's slowest link if it had the fabric for itself: the least of all its trees."""
        problem, weights = self.problems[job], self.seconds[job]
        hosts = self.links.access_of(problem.hosts)
        access = float(PlacementCosts(problem).seconds[hosts].max())
        if len(self.nodes[job]) == 1:
            return access
        last = last_that_connects(self.links, np.argsort(weights), self.usable[job], self.nodes[job])
        if last is None:
            raise NoTree(f"no way joins {', '.join(problem.workers)} by switches with room")
        return max(access, float(weights[last]))

    def shut(self, pairs: Bools) -> None:
        """Exclude these (pairs,) from all trees; their load does not count."""
        for usable in self.usable:
            usable &= ~pairs
        self.others[pairs] = 0.0

    def cheapest(self, job: int, prices: Floats) -> SwitchTree:
        """Return a tree of low price for a job. Raises PlacementError where no switches with room join its ends."""
        costs = np.maximum(prices * self.seconds[job], 1e-12)
        pairs = cheap_tree(self.links, self.usable[job], costs, self.nodes[job])
        if pairs is None:
            raise NoTree(f"no way joins {', '.join(self.problems[job].workers)} by switches with room")
        return self.rooted(job, pairs)

    def rooted(self, job: int, pairs: frozenset[int]) -> SwitchTree:
        """Return the root a tree at the job's server, or else at the switch with the most neighbours."""
        problem = self.problems[job]
        if problem.server is not None:
            return SwitchTree(pairs, self.links.switch[problem.topology.attached_switch(problem.server).name])
        degree = Counter(node for pair in pairs for node in self.links.pairs[pair].tolist())
        middle = max(degree, key=lambda node: (degree[node], -node), default=self.nodes[job][0])
        return SwitchTree(pairs, middle)

    def placement(self, job: int, tree: SwitchTree) -> Placement:
        """Return a job's tree as a placement. Raises PlacementError where a switch would get more children than it
        takes.
        """
        neighbours: dict[int, list[int]] = {}
        for a, b in self.links.pairs[sorted(tree.pairs)].tolist():
            neighbours.setdefault(a, []).append(b)
            neighbours.setdefault(b, []).append(a)
        parents: dict[int, int] = {}
        waiting = [tree.root]
        while waiting:
            node = waiting.pop()
            for other in neighbours.get(node, []):
                if other != parents.get(node):
                    parents[other] = node
                    waiting.append(other)
        placement = placed(self.problems[job], self.links, parents, tree.root, self._aggregators[job])
        placement.check(self.problems[job])
        return placement


def stripe(
    problems: Sequence[Problem],
    weights: Sequence[float] | None = None,
    price: Callable[[Jobs, int, Floats], SwitchTree] = Jobs.cheapest,
    limit: SearchLimit | None = None,
) -> Striping:
    """Place jobs together.

    Args:
        problems: One problem per job.
        weights: Weights of the jobs' times.
        price: Finds cheap trees; if it finds the cheapest, the bound holds for all trees.
        limit: Limit of the search, at which the best result so far is used; None: `VISITS`.

    Raises:
        PlacementError: A job has no tree of switches with room.
    """
    native_trees()  # now, so that no time limit runs meanwhile
    jobs = Jobs(problems, weights)
    rounded, bound = _striped(jobs, price, limit or SearchLimit(VISITS))
    return Striping(
        tuple(
            tuple(Stripe(round(share * PARTS), jobs.placement(job, tree)) for tree, share in mine)
            for job, mine in enumerate(rounded)
        ),
        max(float(jobs.load(rounded).max(initial=0.0)), jobs.least),
        bound,
    )


def _striped(
    jobs: Jobs, price: Callable[[Jobs, int, Floats], SwitchTree], limit: SearchLimit
) -> tuple[list[list[tuple[SwitchTree, float]]], float]:
    """Each job's trees with their shares as 256ths, and the bound; the best so far at the limit."""
    columns, whole = _one_by_one(jobs, limit)
    rounded, bound, steady = whole, jobs.least, None
    shares: Floats | None = None
    new: list[tuple[int, SwitchTree]] = []
    for _ in range(MAX_ROUNDS):
        wider = [[*mine, *(tree for of, tree in new if of == job)] for job, mine in enumerate(columns)]
        try:
            solved = _solved(jobs, wider, limit)
        except LimitReached:
            break
        columns, shares = wider, solved.of_columns
        best, duals = max(solved.seconds, jobs.least), solved.prices
        prices = duals if steady is None else _SMOOTHING * steady + (1 - _SMOOTHING) * duals
        if (fresh := _priced(jobs, price, prices, limit)) is None:
            break
        lower = float(prices @ jobs.others)
        lower += sum(float((prices * jobs.seconds[job])[list(tree.pairs)].sum()) for job, tree in enumerate(fresh))
        new = [(job, tree) for job, tree in enumerate(fresh) if tree not in columns[job]]
        steady = prices if lower >= bound else steady if new else None
        bound = max(bound, lower)
        if best <= bound * (1 + CLOSE) or (not new and prices is duals):
            break
    if shares is not None:
        rounded = _rounded(jobs, columns, shares)
    if jobs.load(whole).max(initial=0.0) <= jobs.load(rounded).max(initial=0.0):
        rounded = whole
    return rounded, bound


def _priced(
    jobs: Jobs, price: Callable[[Jobs, int, Floats], SwitchTree], prices: Floats, limit: SearchLimit
) -> list[SwitchTree] | None:
    """A cheap tree for each job, those that are alike having the same; None if the limit was reached before."""
    trees: list[SwitchTree] = []
    for job, alike in enumerate(jobs.alike):
        if limit.is_reached:
            return None
        if alike == job:
            limit.spend(len(jobs.others))
        trees.append(price(jobs, job, prices) if alike == job else jobs.rooted(job, trees[alike].pairs))
    return trees


def shares(problem: Problem, most: int, slack: float = FEWER, limit: SearchLimit | None = None) -> tuple[int, ...]:
    """Return the best division of a job's chunks among several trees: their parts of PARTS, the largest first.

    The trees themselves are found as the parts are placed, each as a job next to those before it.

    Other jobs' bytes on a pair count in full as soon as a tree uses it, and not before, which no linear program can
    express. So pairs where they alone take longer than the best so far, or as long as the program's result, are
    excluded,
    and the rest is solved again.

    Args:
        problem: Placement problem of the whole job.
        most: Maximum number of trees.
        slack: Share by which fewer trees may be slower and still be preferred.
        limit: Limit of the search, at which the best so far counts; None: `VISITS`.

    Raises:
        PlacementError: There is no tree of switches with room.
    """
    native_trees()  # now, so that no time limit runs meanwhile
    limit = limit or SearchLimit(VISITS)
    jobs = Jobs([problem])
    divided = _divided(jobs, most, limit)
    for _ in range(MAX_ROUNDS):
        fastest, pinned = min(taken for taken, _ in divided), float(jobs.others.max(initial=0.0))
        if not pinned or pinned <= jobs.least or limit.is_reached:
            break
        jobs.shut(jobs.others >= min(fastest, pinned))
        try:
            divided += _divided(jobs, most, limit)
        except PlacementError:
            break
    fastest = min(taken for taken, _ in divided)
    enough = [division for division in divided if division[0] <= (1 + slack) * fastest]
    return min(enough, key=lambda division: (len(division[1]), division[0]))[1]


def _divided(jobs: Jobs, most: int, limit: SearchLimit) -> list[tuple[float, tuple[int, ...]]]:
    """One job's parts over one tree, over two, and so on up to the limit, each time with the tree that makes it fastest
    besides: how long each takes, and the parts, the largest first.
    """
    (mine,), _ = _striped(jobs, Jobs.cheapest, limit)
    trees, chosen = [tree for tree, _ in mine], list[SwitchTree]()
    divisions: list[tuple[float, tuple[int, ...]]] = []
    while trees and len(chosen) < most and not (limit.is_reached and divisions):
        (seconds, parts), best = min(
            ((_parts(jobs, [*chosen, tree]), index) for index, tree in enumerate(trees)),
            key=lambda candidate: candidate[0][0],
        )
        limit.spend(len(trees) * len(jobs.others))
        chosen.append(trees.pop(best))
        divisions.append((seconds, parts))
    return divisions


def _parts(jobs: Jobs, trees: Sequence[SwitchTree]) -> tuple[float, tuple[int, ...]]:
    """Time of one job over these trees, and its parts, the largest first."""
    (shares,) = _rounded(jobs, [trees], _solved(jobs, [trees], SearchLimit()).of_columns)
    used = sorted(pair for tree, _ in shares for pair in tree.pairs)
    seconds = max(float(jobs.load([shares])[used].max(initial=0.0)), jobs.least)
    return seconds, tuple(sorted((round(share * PARTS) for _, share in shares), reverse=True))


def arrive(jobs: Jobs, job: int, load: Floats) -> SwitchTree:
    """Return the tree of a job that comes where others, who stay, load the pairs so: the cheapest by exponential
    prices.
    """
    together = load + jobs.seconds[job]
    steep = np.exp(_STEEPNESS * together / max(float(together.max(initial=0.0)), 1e-300))
    return jobs.cheapest(job, steep)


def cheap_by_load(jobs: Jobs, job: int, load: Floats, without: int | None = None) -> frozenset[int] | None:
    """Return the pairs of a job's tree by the exponential prices of `arrive`; None if there is none.

    Args:
        jobs: All jobs.
        job: Number of the job.
        load: Time of the other bytes on each pair, float64 (pairs,), in s.
        without: Number of a pair that is not used; None: all usable ones may be.
    """
    together = load + jobs.seconds[job]
    prices = np.exp(_STEEPNESS * together / max(float(together.max(initial=0.0)), 1e-300)) * jobs.seconds[job]
    usable = jobs.usable[job]
    if without is not None:
        usable = usable.copy()
        usable[without] = False
    return cheap_tree(jobs.links, usable, np.maximum(prices, 1e-12), jobs.nodes[job])


def _one_by_one(jobs: Jobs, limit: SearchLimit) -> tuple[list[list[SwitchTree]], list[list[tuple[SwitchTree, float]]]]:
    """First trees for the program: each job comes again and again up to the limit, those before it stay; and the first
    time's alone.
    """
    load = jobs.others.copy()
    columns: list[list[SwitchTree]] = [[] for _ in jobs.problems]
    for _ in range(_TURNS):
        for job, mine in enumerate(columns):
            if mine and limit.is_reached:
                break
            limit.spend(len(load))
            tree = arrive(jobs, job, load)
            load[list(tree.pairs)] += jobs.seconds[job, list(tree.pairs)]
            if tree not in mine:
                mine.append(tree)
    return columns, [[(mine[0], 1.0)] for mine in columns]


def _solved(jobs: Jobs, columns: Sequence[Sequence[SwitchTree]], limit: SearchLimit) -> Shares:
    """The linear program over these trees; its timed rows are the pairs, and each of its pivots visits all of them.

    Raises LimitReached.
    """
    if limit.is_reached:
        raise LimitReached("the program of the stripes was not begun")
    program = Sharing(jobs.others)
    for job, trees in enumerate(columns):
        group = []
        for tree in trees:
            group.append(program.column())
            program.timed += [(pair, group[-1], float(jobs.seconds[job, pair])) for pair in tree.pairs]
        program.groups.append(group)
    pivots = limit.left / max(len(jobs.others), 1)
    solved = program.solve("the stripes", iterations=None if pivots == np.inf else max(int(pivots), 1))
    limit.spend(solved.iterations * len(jobs.others))
    return solved


def _rounded(
    jobs: Jobs, columns: Sequence[Sequence[SwitchTree]], shares: Floats
) -> list[list[tuple[SwitchTree, float]]]:
    """Each job's trees with their shares as 256ths, without those that get none.

    Shares are rounded down. The remainder is assigned part by part to the tree whose slowest link is the fastest: with
    the nearest integers, a link could carry one part too many per tree that crosses it.
    """
    exact = shares * PARTS
    counts = np.floor(exact + 1e-9).astype(np.int64)
    starts = np.cumsum([0, *map(len, columns)])
    load = jobs.others.copy()
    units = []
    for job, trees in enumerate(columns):
        for at, tree in enumerate(trees, starts[job]):
            pairs = sorted(tree.pairs)
            units.append((pairs, jobs.seconds[job, pairs] / PARTS))
            load[pairs] += counts[at] * units[at][1]

    def slowest(at: int) -> float:
        pairs, seconds = units[at]
        return float((load[pairs] + seconds).max(initial=0.0))

    for first, last in itertools.pairwise(starts.tolist()):
        taken = [index for index in range(first, last) if exact[index] > 0]
        for _ in range(PARTS - int(counts[first:last].sum())):
            at = min(taken, key=slowest)
            counts[at] += 1
            load[units[at][0]] += units[at][1]
    whole = iter(counts.tolist())
    return [[(tree, count / PARTS) for tree in trees if (count := next(whole))] for trees in columns]
