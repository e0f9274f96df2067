"""A fabric in tiers, with the load of every link and direction, the switches that sum, and who is who among the hosts.

Hosts stand at the bottom, each switch as high as it is far from the nearest host. A link is two strands, one per
direction, each on the left of its way; colour and width are its load.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import networkx

from .errors import TopologyError
from .model import Endpoint, Topology

INK: Final = "#1f2933"
FAINT: Final = "#9aa5b1"
PAPER: Final = "#ffffff"
SUMMING: Final = "#0b7a75"
FLOW: Final = "#8e44ad"
ROLES: Final = {"worker": "#2b6cb0", "server": "#d97706"}
"""Roles that hosts may have in a drawing, and their colours."""
LOADS: Final = ("#cbd5e0", "#a3c9a8", "#f2c14e", "#e8743b", "#c0232c")
"""Colours for a link's load, from idle to full."""

_TIER_HEIGHT: Final = 1.7
_RACK_GAP: Final = 0.7
_SWITCH: Final = (0.62, 0.36)
_STRAND: Final = 0.035
"""Half of the way between the two strands of a link."""
_LEAST_FONT: Final = 11.3
"""Points; the smallest text is four fifths of it, and still to be read."""
_WIDEST_INCHES: Final = 400.0
"""A PNG has room for no more."""
_LANE: Final = 0.3
"""How far apart background flows are drawn."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Background traffic between two hosts."""

    source: str
    destination: str
    label: str = ""


@dataclass(frozen=True)
class Drawing:
    """What is drawn. Raises `TopologyError` for a node or port that is not the fabric's, a load outside 0…1, a role
    that is not in `ROLES`.
    """

    topology: Topology
    loads: Mapping[Endpoint, float] = field(default_factory=dict)
    """How much of each directed link's rate is used, 0…1; links that are not in here are idle."""
    summing: Mapping[str, str] = field(default_factory=dict)
    """The switches that aggregate, each with a short label: `sums 3`."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """What a host does in the job, `worker` or `server`; hosts that do nothing are not in here."""
    flows: Sequence[Flow] = ()
    title: str = ""

    def __post_init__(self) -> None:
        for link, load in self.loads.items():
            self.topology.link_at(link)
            if not 0 <= load <= 1:
                raise TopologyError(f"drawing: load {load} of link {link} is not in 0…1")
        for switch in self.summing:
            self.topology.switch(switch)
        for host, role in self.roles.items():
            self.topology.host(host)
            if role not in ROLES:
                raise TopologyError(f'drawing: role "{role}" of {host} is unknown; there are {", ".join(ROLES)}')
        for flow in self.flows:
            self.topology.host(flow.source)
            self.topology.host(flow.destination)

    def svg(self) -> str:
        """As SVG text; the same drawing gives the same text."""
        buffer = io.StringIO()
        self._save(buffer, "svg")
        return buffer.getvalue()

    def save(self, path: str | Path) -> None:
        """Write `.svg` or `.png`. Raises `TopologyError` for another ending, or when the file cannot be written."""
        path = Path(path)
        if path.suffix not in (".svg", ".png"):
            raise TopologyError(f"{path}: a drawing is written as .svg or .png")
        try:
            self._save(path, path.suffix[1:])
        except OSError as error:
            raise TopologyError(f"{path}: cannot be written: {error}") from error

    @cached_property
    def places(self) -> Mapping[str, tuple[float, float]]:
        """Where each node stands: x to the right, y up, hosts at 0."""
        topology = self.topology
        tiers = self._tiers()
        places: dict[str, tuple[float, float]] = {}
        x = 0.0
        for switch in tiers.get(1, []):
            hosts = [far.node for far in topology.neighbours(switch).values() if topology.is_host(far.node)]
            places |= {host: (x + i, 0.0) for i, host in enumerate(hosts)}
            places[switch] = (x + (len(hosts) - 1) / 2, _TIER_HEIGHT)
            x += max(len(hosts), 1.0) + _RACK_GAP
        width = max(x - _RACK_GAP - 1, 0.0)
        for tier, switches in tiers.items():
            if tier > 1:
                share = width / len(switches)
                for i, switch in enumerate(switches):
                    places[switch] = (share * (i + 0.5), tier * _TIER_HEIGHT)
        return places

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

        xs, ys = zip(*self.places.values(), strict=True)
        low = -1.4 - _LANE * len(self.flows)
        wide, high = max(xs) - min(xs) + 2.0, max(ys) + 1.5 - low
        scale = max(min(0.8, 18.0 / wide), min(0.6, _WIDEST_INCHES / wide))
        settings = {"svg.fonttype": "none", "svg.hashsalt": "weir", "font.family": ["DejaVu Sans", "sans-serif"]}
        with matplotlib.rc_context(settings):
            figure = Figure(figsize=(max(wide * scale, 6.5), max(high * scale, 3.0)), facecolor=PAPER)
            FigureCanvasAgg(figure)
            axes = figure.add_axes((0, 0, 1, 1))
            axes.set_axis_off()
            axes.set_aspect("equal")
            axes.set_xlim(min(xs) - 1.0, max(xs) + 1.0)
            axes.set_ylim(low, max(ys) + 1.5)
            font = max(12.5 * scale / 0.8, _LEAST_FONT)
            self._draw_links(axes, scale)
            self._draw_flows(axes, font)
            self._draw_switches(axes, font)
            self._draw_hosts(axes, font)
            self._draw_legend(figure, axes, font, (max(xs) - 2.1, low + 0.4))
            metadata = {"Date": None} if kind == "svg" else None
            figure.savefig(target, format=kind, dpi=150, metadata=metadata)

    def _draw_links(self, axes: Any, scale: float) -> None:
        colours = _colours()
        strands = []
        for link in self.topology.directed_links:
            (x0, y0), (x1, y1) = self.places[link.node], self.places[self.topology.peer(link).node]
            length = max(((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5, 1e-9)
            dx, dy = -(y1 - y0) / length * _STRAND, (x1 - x0) / length * _STRAND
            strands.append((self.loads.get(link, 0.0), (x0 + dx, x1 + dx), (y0 + dy, y1 + dy)))
        for load, x, y in sorted(strands):
            width = (1.0 + 3.2 * load) * scale / 0.8
            axes.plot(x, y, color=colours(load), linewidth=width, solid_capstyle="round", zorder=1 + load)

    def _draw_flows(self, axes: Any, font: float) -> None:
        """Below the hosts, each in a lane of its own, the shortest on top."""
        from matplotlib.patches import FancyArrowPatch
        from matplotlib.path import Path as Line

        x = {name: place[0] for name, place in self.places.items()}
        ordered = sorted(self.flows, key=lambda flow: abs(x[flow.source] - x[flow.destination]))
        for lane, flow in enumerate(ordered):
            shift = 0.12 * (lane - (len(ordered) - 1) / 2)
            start, end, depth = x[flow.source] + shift, x[flow.destination] + shift, -0.62 - _LANE * lane
            line = Line([(start, -0.34), (start, depth), (end, depth), (end, -0.32)])
            style: dict[str, Any] = {
                "arrowstyle": "-|>",
                "mutation_scale": font,
                "linewidth": 1.3,
                "linestyle": _DASHES,
            }
            axes.add_patch(FancyArrowPatch(path=line, fill=False, color=FLOW, joinstyle="round", zorder=2, **style))
            if flow.label:
                place = (start + end) / 2, depth
                axes.text(*place, flow.label, color=FLOW, size=0.8 * font, **_CENTRED, bbox=_backed(), zorder=6)

    def _draw_switches(self, axes: Any, font: float) -> None:
        from matplotlib.patches import FancyBboxPatch

        wide, high = _SWITCH
        for switch in self.topology.switches:
            x, y = self.places[switch.name]
            label = self.summing.get(switch.name)
            sums = label is not None
            axes.add_patch(
                FancyBboxPatch(
                    (x - wide / 2, y - high / 2),
                    wide,
                    high,
                    boxstyle="round,pad=0,rounding_size=0.1",
                    facecolor=SUMMING if sums else PAPER,
                    edgecolor=SUMMING if sums else INK,
                    linewidth=1.4,
                    zorder=4,
                )
            )
            colour = PAPER if sums else INK
            axes.text(x, y, switch.name, size=font, color=colour, weight="bold", **_CENTRED, zorder=5)
            if label:
                place = x, y + high / 2 + 0.2
                axes.text(*place, label, size=0.85 * font, color=SUMMING, **_CENTRED, bbox=_backed(), zorder=6)

    def _draw_hosts(self, axes: Any, font: float) -> None:
        from matplotlib.patches import Circle

        for host in self.topology.hosts:
            x, y = self.places[host.name]
            colour = ROLES.get(self.roles.get(host.name, ""))
            face, edge = colour or PAPER, colour or FAINT
            axes.add_patch(Circle((x, y), 0.3, facecolor=face, edgecolor=edge, linewidth=1.4, zorder=4))
            axes.text(x, y, host.name, size=0.85 * font, color=PAPER if colour else INK, **_CENTRED, zorder=5)

    def _draw_legend(self, figure: Any, axes: Any, font: float, bar_at: tuple[float, float]) -> None:
        from matplotlib.cm import ScalarMappable
        from matplotlib.lines import Line2D

        if self.title:
            axes.text(
                0.02, 0.97, self.title, size=1.3 * font, color=INK, weight="bold", transform=axes.transAxes, va="top"
            )
        marks = [(role, colour, "o") for role, colour in ROLES.items() if role in self.roles.values()]
        if self.summing:
            marks.append(("sums gradients", SUMMING, "s"))
        handles = [
            Line2D([], [], marker=mark, color=colour, linestyle="none", label=label) for label, colour, mark in marks
        ]
        if self.flows:
            handles.append(Line2D([], [], color=FLOW, linestyle=_DASHES, label="background flow"))
        if handles:
            axes.legend(
                handles=handles,
                loc="lower left",
                bbox_to_anchor=(0.01, 0.0),
                ncols=len(handles),
                frameon=False,
                fontsize=0.85 * font,
                handletextpad=0.4,
                labelcolor=INK,
            )
        if self.loads:
            bar = axes.inset_axes((*bar_at, 2.8, 0.14), transform=axes.transData)
            figure.colorbar(ScalarMappable(cmap=_colours()), cax=bar, orientation="horizontal", ticks=[0, 0.5, 1])
            bar.set_xticklabels(["0", "50 %", "100 %"])
            bar.tick_params(labelsize=0.8 * font, length=2, color=FAINT, labelcolor=INK)
            bar.set_title("link load", size=0.85 * font, color=INK, pad=3)
            bar.spines[:].set_visible(False)


_DASHES: Final = (0, (3, 2))
_CENTRED: Final[Mapping[str, str]] = {"ha": "center", "va": "center"}


def _backed() -> dict[str, Any]:
    return {"boxstyle": "round,pad=0.15", "facecolor": PAPER, "edgecolor": "none", "alpha": 0.9}


def _colours() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("load", LOADS)
