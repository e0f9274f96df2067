"""Drawing of a fabric in tiers, with the load of every link and direction, the aggregating switches and the hosts'
roles.

Hosts are at the bottom, each switch as high as its distance from the nearest host. In an upright drawing, for narrow
pages, hosts form a column at the left and tiers follow to the right. Where links within a tier would run through other
switches, as in a ring or a Jellyfish, switches are on a ring with their hosts outside. A link is two strands, one per
direction, each on the left of its direction; colour and width show its load.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import networkx

from .errors import TopologyError
from .model import Endpoint, Topology
from .ring_layout import crosses_boxes, ring_places
from .units import format_rate

INK: Final = "#1f2933"
FAINT: Final = "#9aa5b1"
PAPER: Final = "#ffffff"
SUMMING: Final = "#0b7a75"
FLOW: Final = "#8e44ad"
ROLES: Final = {"worker": "#2b6cb0", "server": "#d97706"}
"""Roles that hosts may have in a drawing, and their colours."""
TREES: Final = ("#0b7a75", "#b83280", "#5a67d8", "#975a16")
"""Colours of aggregation trees, by their order."""
LOADS: Final = ("#cbd5e0", "#a3c9a8", "#f2c14e", "#e8743b", "#c0232c")
"""Colours for a link's load, from idle to full."""

_TIER_HEIGHT: Final = 1.7
_RACK_GAP: Final = 0.7
_MIN_FONT: Final = 11.3
"""Points; the smallest text is four fifths of it, and still to be read."""
_WIDEST_INCHES: Final = 400.0
"""A PNG has room for no more."""
_WIDE_UNIT: Final = 0.8
"""Inches between two hosts, at most."""
_NARROW_INCHES: Final = 3.7
"""Width of an upright drawing: a phone's page."""
_NARROW_UNIT: Final = 0.36
"""Inches between two hosts of it."""


class _Measures(NamedTuple):
    """Sizes of nodes and lines, in units of the distance between two hosts of a rack."""

    switch: tuple[float, float]
    """The least width, and the height."""
    host: float
    """Height, and the least width."""
    label: float
    """Distance from a switch's edge to the middle of its label."""
    strand: float
    """Half of the way between the two strands of a link."""
    lane: float
    """Between two background flows."""
    around: tuple[float, float, float, float]
    """Left, right, above and below what is drawn."""


_WIDE: Final = _Measures((0.62, 0.36), 0.6, 0.2, 0.035, 0.3, (1.0, 1.0, 1.5, 1.1))
_LEGEND: Final = 10.8
"""Minimum width of a drawing that has the bar of loads next to its legend."""
_NARROW: Final = _Measures((1.2, 0.76), 0.84, 0.42, 0.08, 0.6, (0.4, 1.1, 1.7, 4.4))


@dataclass(frozen=True, slots=True)
class DrawnFlow:
    """Background traffic between two hosts."""

    source: str
    destination: str
    label: str = ""


@dataclass(frozen=True)
class Drawing:
    """Contents of a drawing.

    Raises:
        TopologyError: A node or port is not the fabric's, a load is outside 0…1, or a role is not in `ROLES`.
    """

    topology: Topology
    loads: Mapping[Endpoint, float] = field(default_factory=dict)
    """Used share of each directed link's rate, 0…1; missing links are idle."""
    summing: Mapping[str, str] = field(default_factory=dict)
    """The switches that aggregate, each with a short label: `sums 3`."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """Role of a host in the job, `worker` or `server`; hosts without a role are missing."""
    flows: Sequence[DrawnFlow] = ()
    title: str = ""
    upright: bool = False
    """True to draw from left to right, no wider than a phone's page."""
    trees: Sequence[Collection[Endpoint]] = ()
    """Directed links from children to parents of each aggregation tree, drawn as arrows."""
    rates: bool = False
    """True to write the rate at each link."""
    ports: bool = False
    """True to write port numbers at switches."""

    def __post_init__(self) -> None:
        for link in itertools.chain(*self.trees):
            self.topology.link_at(link)
        for link, load in self.loads.items():
            self.topology.link_at(link)
            if not 0 <= load <= 1:
                raise TopologyError(f"load {load} of link {link} is not in 0…1", place="drawing", value=load)
        for switch in self.summing:
            self.topology.switch(switch)
        for host, role in self.roles.items():
            self.topology.host(host)
            if role not in ROLES:
                raise TopologyError(
                    f'role "{role}" of {host} is unknown', place="drawing", value=role, allowed=tuple(ROLES)
                )
        for flow in self.flows:
            self.topology.host(flow.source)
            self.topology.host(flow.destination)

    def svg(self) -> str:
        """Return SVG text; the same drawing gives the same text."""
        buffer = io.StringIO()
        self._save(buffer, "svg")
        return buffer.getvalue()

    def save(self, path: str | Path) -> None:
        """Write `.svg` or `.png`. Raises `TopologyError` for another ending, or when the file cannot be written."""
        path = Path(path)
        if path.suffix not in (".svg", ".png"):
            raise TopologyError("a drawing is written as .svg or .png", place=str(path))
        try:
            self._save(path, path.suffix[1:])
        except OSError as error:
            raise TopologyError(f"cannot be written: {error}", place=str(path)) from error

    @cached_property
    def places(self) -> Mapping[str, tuple[float, float]]:
        """Position of each node: x to the right, y up. Hosts of a drawing in tiers are at y = 0; upright, at x = 0."""
        topology = self.topology
        if self._on_ring:
            left, right, _, _ = self._measures.around
            widest = _NARROW_INCHES / _NARROW_UNIT - left - right - 1.0 if self.upright else None
            return ring_places(topology, self._width, widest)
        tiers = self._tiers()
        logical: dict[str, tuple[float, float]] = {}
        spread = 1.0 if self.upright else max(1.0, max((self._width(host.name) for host in topology.hosts), default=0))
        across = 0.0
        for switch in tiers.get(1, []):
            hosts = [far.node for far in topology.neighbours(switch).values() if topology.is_host(far.node)]
            logical |= {host: (across + i * spread, 0.0) for i, host in enumerate(hosts)}
            logical[switch] = (across + (len(hosts) - 1) * spread / 2, 1)
            across += max(len(hosts), 1.0) * spread + _RACK_GAP
        width = max(across - _RACK_GAP - spread, 0.0)
        for tier, switches in tiers.items():
            if tier > 1:
                apart = max(width / len(switches), self._min_apart(switches))
                first = (width - apart * (len(switches) - 1)) / 2
                logical |= {switch: (first + apart * i, tier) for i, switch in enumerate(switches)}
        step = self._narrow_step(max(tiers, default=1)) if self.upright else _TIER_HEIGHT
        return {name: self._at(across, tier * step) for name, (across, tier) in logical.items()}

    @cached_property
    def _on_ring(self) -> bool:
        return crosses_boxes(self.topology, self._tiers())

    @property
    def _measures(self) -> _Measures:
        return _NARROW if self.upright else _WIDE

    def _at(self, across: float, up: float) -> tuple[float, float]:
        """x and y of a position given along its tier and by its distance from the hosts."""
        return (up, -across) if self.upright else (across, up)

    def _narrow_step(self, tiers: int) -> float:
        left = self._measures.around[0]
        return (_NARROW_INCHES / _NARROW_UNIT - left - self._right - self._below_hosts) / tiers

    @property
    def _right(self) -> float:
        """Space left free at the right, at an upright drawing's last switches."""
        _, right, _, _ = self._measures.around
        widest = max(self._width(switch.name, bold=True) for switch in self.topology.switches)
        return max(right, widest / 2 + 0.5) if self.upright else right

    @property
    def _host_edge(self) -> float:
        """Extent of hosts on the side without links."""
        if not self.upright:
            return self._measures.host / 2
        return max([self._measures.host, *(self._width(host.name) for host in self.topology.hosts)]) / 2

    @property
    def _below_hosts(self) -> float:
        """Space for hosts' labels and background flows on that side."""
        return self._host_edge + self._measures.lane * len(self.flows)

    def _width(self, name: str, *, bold: bool = False) -> float:
        """Width of a node's name, with a margin at both sides."""
        unit = _NARROW_UNIT if self.upright else _WIDE_UNIT
        return (0.74 if bold else 0.64) * len(name) * _MIN_FONT / 72 / unit + 0.16

    def _min_apart(self, switches: Sequence[str]) -> float:
        """Minimum distance between switches of a tier, with labels."""
        if self.upright:
            return self._measures.switch[1] + 2 * self._measures.label
        return max(self._measures.switch[0], *(self._width(switch, bold=True) for switch in switches)) + 0.2

    def _tiers(self) -> Mapping[int, list[str]]:
        hosts = {host.name for host in self.topology.hosts}
        if not hosts:
            return {1: [switch.name for switch in self.topology.switches]}
        height = networkx.multi_source_dijkstra_path_length(self.topology.graph, hosts)
        tiers: dict[int, list[str]] = {}
        for switch in self.topology.switches:
            tiers.setdefault(int(height[switch.name]), []).append(switch.name)
        return dict(sorted(tiers.items()))

    def _save(self, target: Any, kind: str) -> None:
        import matplotlib  # takes half a second: not for those who never draw
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        left, bottom, wide, high = self._page()
        if self.upright:
            scale, font = _NARROW_UNIT, 1.1 * _MIN_FONT
            size, weight = (_NARROW_INCHES, high * scale), 0.7
        else:
            scale = max(min(_WIDE_UNIT, 18.0 / wide), min(0.6, _WIDEST_INCHES / wide))
            font, weight = max(12.5 * scale / _WIDE_UNIT, _MIN_FONT), scale / _WIDE_UNIT
            size = max(wide * scale, 6.5), max(high * scale, 3.0)
        salt = "weir, upright" if self.upright else "weir"  # both may stand in one page
        settings = {"svg.fonttype": "none", "svg.hashsalt": salt, "font.family": ["DejaVu Sans", "sans-serif"]}
        with matplotlib.rc_context(settings):
            figure = Figure(figsize=size, facecolor=PAPER)
            FigureCanvasAgg(figure)
            axes = figure.add_axes((0, 0, 1, 1))
            axes.set_axis_off()
            axes.set_aspect("equal")
            axes.set_xlim(left, left + wide)
            axes.set_ylim(bottom, bottom + high)
            self._draw_links(axes, weight)
            self._draw_trees(axes, weight)
            self._draw_link_texts(axes, font)
            self._draw_flows(axes, font)
            self._draw_switches(axes, font)
            self._draw_hosts(axes, font)
            bar_at = (left + 0.4, bottom + 2.6, 5.0) if self.upright else (left + wide - 3.1, bottom + 0.4, 2.8)
            self._draw_legend(figure, axes, font, bar_at)
            metadata = {"Date": None} if kind == "svg" else None
            figure.savefig(target, format=kind, dpi=150, metadata=metadata)

    def _page(self) -> tuple[float, float, float, float]:
        """Left and bottom edge, width and height."""
        xs, ys = zip(*self.places.values(), strict=True)
        left, right, above, below = self._measures.around
        lanes = self._below_hosts
        if self._on_ring:
            wide, high = max(xs) - min(xs) + left + right, max(ys) - min(ys) + above + below
            wide = _NARROW_INCHES / _NARROW_UNIT if self.upright else max(wide, _LEGEND if self.loads else 0.0)
            return (min(xs) + max(xs) - wide) / 2, min(ys) - below, wide, high
        if self.upright:
            wide = _NARROW_INCHES / _NARROW_UNIT
            return -left - lanes, min(ys) - below, wide, max(ys) - min(ys) + above + below
        wide = max(xs) - min(xs) + left + right
        lacking = max(0.0, _LEGEND - wide) / 2 if self.loads else 0.0
        return min(xs) - left - lacking, -below - lanes, wide + 2 * lacking, max(ys) + above + below + lanes

    def _draw_links(self, axes: Any, weight: float) -> None:
        colours = _colours()
        strands = [(self.loads.get(link, 0.0), *self._strand(link)) for link in self.topology.directed_links]
        for load, x, y in sorted(strands):
            width = (1.0 + 3.2 * load) * weight
            axes.plot(x, y, color=colours(load), linewidth=width, solid_capstyle="round", zorder=1 + load)

    def _strand(self, link: Endpoint) -> tuple[tuple[float, float], tuple[float, float]]:
        """The two x and the two y of a directed link's line, which is on the left of its direction."""
        (x0, y0), (x1, y1) = self.places[link.node], self.places[self.topology.peer(link).node]
        length = max(((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5, 1e-9)
        dx, dy = -(y1 - y0) / length * self._measures.strand, (x1 - x0) / length * self._measures.strand
        return (x0 + dx, x1 + dx), (y0 + dy, y1 + dy)

    def _draw_trees(self, axes: Any, weight: float) -> None:
        """An arrow on each link that a tree uses. Where trees share a link, the later ones are the narrower lines."""
        last = len(self.trees) - 1
        for index, tree in enumerate(self.trees):
            colour = TREES[index % len(TREES)]
            share = (index + 1) / (len(self.trees) + 1)
            for link in tree:
                (x0, x1), (y0, y1) = self._strand(link)
                axes.plot((x0, x1), (y0, y1), color=colour, linewidth=(2.2 + 2.5 * (last - index)) * weight, zorder=2.5)
                near, far = max(share - 0.08, 0.0), min(share + 0.08, 1.0)
                axes.annotate(
                    "",
                    (x0 + far * (x1 - x0), y0 + far * (y1 - y0)),
                    (x0 + near * (x1 - x0), y0 + near * (y1 - y0)),
                    arrowprops={"arrowstyle": "-|>", "color": colour, "mutation_scale": 13 * weight},
                    zorder=3.5,
                )

    def _draw_link_texts(self, axes: Any, font: float) -> None:
        """Rates in the middle of links, port numbers at their switches."""
        style: dict[str, Any] = {"size": 0.8 * font, "color": INK, "bbox": _backed(), "zorder": 3, **_CENTRED}
        for link in self.topology.links:
            (x0, y0), (x1, y1) = (self.places[end.node] for end in link.ends)
            if self.rates:  # near the host; between tiers not in the middle, where links cross
                share = 0.62 if self.topology.is_host(link.b.node) else 0.5 if self._on_ring else 0.44
                place = x0 + share * (x1 - x0), y0 + share * (y1 - y0)
                axes.text(*place, format_rate(link.rate_bps), **style)
            for end, (x, y), (far_x, far_y) in ((link.a, (x0, y0), (x1, y1)), (link.b, (x1, y1), (x0, y0))):
                if self.ports and self.topology.is_switch(end.node):
                    axes.text(x + 0.24 * (far_x - x), y + 0.24 * (far_y - y), str(end.port), **style)

    def _draw_flows(self, axes: Any, font: float) -> None:
        """Beyond the hosts, each in a lane of its own, the shortest next to them; on a ring across it."""
        if self._on_ring:
            self._draw_flows_across(axes, font)
            return
        from matplotlib.patches import FancyArrowPatch
        from matplotlib.path import Path as Line

        axis = 1 if self.upright else 0
        along = {name: -place[1] if self.upright else place[0] for name, place in self.places.items()}
        ordered = sorted(self.flows, key=lambda flow: abs(along[flow.source] - along[flow.destination]))
        edge = -self._host_edge
        for lane, flow in enumerate(ordered):
            shift = 0.12 * (lane - (len(ordered) - 1) / 2)
            start, end = along[flow.source] + shift, along[flow.destination] + shift
            depth = edge - 0.32 - self._measures.lane * lane
            corners = [(start, edge - 0.04), (start, depth), (end, depth), (end, edge - 0.02)]
            line = Line([self._at(*corner) for corner in corners])
            style: dict[str, Any] = {
                "arrowstyle": "-|>",
                "mutation_scale": font,
                "linewidth": 1.3,
                "linestyle": _DASHES,
            }
            axes.add_patch(FancyArrowPatch(path=line, fill=False, color=FLOW, joinstyle="round", zorder=2, **style))
            if flow.label:
                place = self._at((start + end) / 2, depth)
                turned = 90 * axis
                axes.text(
                    *place,
                    flow.label,
                    color=FLOW,
                    size=0.8 * font,
                    rotation=turned,
                    **_CENTRED,
                    bbox=_backed(),
                    zorder=6,
                )

    def _draw_flows_across(self, axes: Any, font: float) -> None:
        """A bent arrow from host to host for each flow."""
        for flow in self.flows:
            ends = [self.places[host] for host in (flow.source, flow.destination)]
            axes.annotate(
                "",
                ends[1],
                ends[0],
                arrowprops={
                    "arrowstyle": "-|>",
                    "connectionstyle": "arc3,rad=0.15",
                    "color": FLOW,
                    "linestyle": _DASHES,
                    "shrinkA": font,
                    "shrinkB": font,
                },
                zorder=2,
            )
            if flow.label:
                # The highest point of the arc that matplotlib draws: half of rad beside the chord's middle.
                (x0, y0), (x1, y1) = ends
                place = (x0 + x1) / 2 + 0.075 * (y1 - y0), (y0 + y1) / 2 - 0.075 * (x1 - x0)
                axes.text(*place, flow.label, color=FLOW, size=0.8 * font, **_CENTRED, bbox=_backed(), zorder=6)

    def _draw_switches(self, axes: Any, font: float) -> None:
        least, high = self._measures.switch
        for switch in self.topology.switches:
            x, y = self.places[switch.name]
            label = self.summing.get(switch.name)
            sums = label is not None
            wide = max(least, self._width(switch.name, bold=True))
            _box(axes, (x, y), (wide, high), 0.28 * high, SUMMING if sums else PAPER, SUMMING if sums else INK)
            colour = PAPER if sums else INK
            axes.text(x, y, switch.name, size=font, color=colour, weight="bold", **_CENTRED, zorder=5)
            if label:
                place = x, y + high / 2 + self._measures.label
                axes.text(*place, label, size=0.85 * font, color=SUMMING, **_CENTRED, bbox=_backed(), zorder=6)

    def _draw_hosts(self, axes: Any, font: float) -> None:
        high = self._measures.host
        for host in self.topology.hosts:
            x, y = self.places[host.name]
            colour = ROLES.get(self.roles.get(host.name, ""))
            wide = max(high, self._width(host.name))
            _box(axes, (x, y), (wide, high), high / 2, colour or PAPER, colour or FAINT)
            axes.text(x, y, host.name, size=0.85 * font, color=PAPER if colour else INK, **_CENTRED, zorder=5)

    def _draw_legend(self, figure: Any, axes: Any, font: float, bar_at: tuple[float, float, float]) -> None:
        """`bar_at` is where the bar of loads begins, and how long it is."""
        from matplotlib.cm import ScalarMappable
        from matplotlib.lines import Line2D

        if self.title:
            # A narrow page has less room for it.
            size = (1.0 if self.upright else 1.3) * font
            x, y = self._page()[0], sum(self._page()[1::2])
            axes.text(x + 0.3, y - 0.12, self.title, size=size, color=INK, weight="bold", va="top")
        marks = [(role, colour, "o") for role, colour in ROLES.items() if role in self.roles.values()]
        if self.summing:
            marks.append(("sums gradients", SUMMING, "s"))
        handles = [
            Line2D([], [], marker=mark, color=colour, linestyle="none", label=label) for label, colour, mark in marks
        ]
        handles += [
            Line2D(
                [], [], color=TREES[index], linewidth=2, label="tree" if len(self.trees) == 1 else f"tree {index + 1}"
            )
            for index in range(min(len(self.trees), len(TREES)))
        ]
        if self.flows:
            handles.append(Line2D([], [], color=FLOW, linestyle=_DASHES, label="background flow"))
        if handles:
            axes.legend(
                handles=handles,
                loc="lower left",
                bbox_to_anchor=(0.01, 0.0),
                ncols=2 if self.upright else len(handles),
                frameon=False,
                fontsize=0.85 * font,
                handletextpad=0.4,
                labelcolor=INK,
            )
        if self.loads:
            x, y, long = bar_at
            bar = axes.inset_axes((x, y, long, 0.05 * long), transform=axes.transData)
            figure.colorbar(ScalarMappable(cmap=_colours()), cax=bar, orientation="horizontal", ticks=[0, 0.5, 1])
            bar.set_xticklabels(["0", "50 %", "100 %"])
            bar.tick_params(labelsize=0.8 * font, length=2, color=FAINT, labelcolor=INK)
            bar.set_title("link load", size=0.85 * font, color=INK, pad=3)
            bar.spines[:].set_visible(False)


_DASHES: Final = (0, (3, 2))
_CENTRED: Final[Mapping[str, str]] = {"ha": "center", "va": "center"}


def _box(
    axes: Any, centre: tuple[float, float], size: tuple[float, float], rounding: float, face: str, edge: str
) -> None:
    """A rounded box, which is a disc where the rounding leaves no straight side."""
    from matplotlib.patches import Circle, FancyBboxPatch

    (x, y), (wide, high) = centre, size
    style: dict[str, Any] = {"facecolor": face, "edgecolor": edge, "linewidth": 1.4, "zorder": 4}
    if wide == high == 2 * rounding:
        axes.add_patch(Circle(centre, rounding, **style))
    else:
        shape = f"round,pad=0,rounding_size={rounding}"
        axes.add_patch(FancyBboxPatch((x - wide / 2, y - high / 2), wide, high, boxstyle=shape, **style))


def _backed() -> dict[str, Any]:
    return {"boxstyle": "round,pad=0.15", "facecolor": PAPER, "edgecolor": "none", "alpha": 0.9}


def _colours() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("load", LOADS)
