"""The controller's state for Prometheus: links, queues and their ages, switches, jobs, generations, moves, leases,
heartbeats.

Everything is read at the moment of a scrape, in the controller's own event loop, so a figure is never half of a change.
`text` builds the page, `serve` serves it on a port.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from ...wire.control import JobReport
from ..controller import Controller
from ..errors import ControllerError
from ..listener import Listener
from .heartbeats import HeartbeatReader

_REQUEST_BYTES: Final = 8_192
_REQUEST_S: Final = 5.0
MAX_SEATS: Final = 1_000
"""Maximum number of seats whose heartbeats a page lists: those that were silent for longest."""

_REPORTED: Final[tuple[tuple[str, str, Callable[[JobReport], float | None]], ...]] = (
    ("step", "Newest step that its program has reported", lambda report: report.step),
    ("stage_steps_left", "Remaining steps of the reported stage", lambda report: report.steps_left),
    ("loss", "Reported loss", lambda report: report.loss),
    ("accuracy", "Reported accuracy", lambda report: report.accuracy),
    ("step_compute_seconds", "Computation of a step", lambda report: report.compute_ns / report.steps / 1e9 or None),
    (
        "step_exposed_seconds",
        "Communication of a step that computation did not hide",
        lambda report: report.exposed_ns / report.steps / 1e9 or None,
    ),
    (
        "step_waiting_seconds",
        "Wait of a step for turns on shared devices",
        lambda report: report.waiting_ns / report.steps / 1e9 or None,
    ),
    ("step_bytes", "Bytes of a step's collectives", lambda report: report.bytes / report.steps),
)
"""Reported values: the metric's name, its description, and the value, None if it is unknown."""


class _Reading(Collector):
    """One controller at one time."""

    def __init__(self, controller: Controller, heartbeats: HeartbeatReader | None, now_ns: int) -> None:
        self._controller = controller
        self._heartbeats = heartbeats
        self._now_ns = now_ns

    def collect(self) -> Iterable[Metric]:
        yield from self._links()
        yield from self._switches()
        yield from self._jobs()
        if self._heartbeats is not None:
            yield from self._beats(self._heartbeats)

    def _links(self) -> Iterable[Metric]:
        controller = self._controller
        snapshot = controller.links.snapshot(self._now_ns)
        names = ("link",)
        load = GaugeMetricFamily("weir_link_load_ratio", "Traffic as a share of the link's rate", labels=names)
        rate = GaugeMetricFamily("weir_link_bits_per_second", "Traffic on the link", labels=names)
        queue = GaugeMetricFamily("weir_link_queue_packets", "Depth of the egress queue", labels=names)
        bound = GaugeMetricFamily("weir_link_promised_packets", "The most that the queue is to hold", labels=names)
        classes = GaugeMetricFamily(
            "weir_class_promised_packets", "The same for queues of jobs' traffic classes", labels=("link", "class")
        )
        latency = GaugeMetricFamily("weir_link_hop_latency_seconds", "From ingress to egress", labels=names)
        loss = GaugeMetricFamily("weir_link_probe_loss_ratio", "Of the least lossy probe over the link", labels=names)
        age = GaugeMetricFamily("weir_link_report_age_seconds", "Since the newest report's probe left", labels=names)
        trust = GaugeMetricFamily("weir_link_confidence_ratio", "How far the values can be relied on", labels=names)
        stale = GaugeMetricFamily("weir_link_stale", "1: placement uses the last good values", labels=names)
        for link, view in snapshot.links.items():
            label = [str(link)]
            load.add_metric(label, view.rate_bps / controller.topology.link_at(link).rate_bps)
            rate.add_metric(label, view.rate_bps)
            queue.add_metric(label, view.queue_packets)
            latency.add_metric(label, view.latency_us / 1e6)
            loss.add_metric(label, view.loss)
            if view.age_ns is not None:
                age.add_metric(label, view.age_ns / 1e9)
            trust.add_metric(label, view.confidence)
            stale.add_metric(label, float(link in snapshot.stale))
        for link, budget in controller.windows.budgets.items():
            if not budget.refusal:
                bound.add_metric([str(link)], int(budget.bound))
        for (link, priority), packets in controller.windows.class_bounds.items():
            classes.add_metric([str(link), str(priority)], packets)
        yield from (load, rate, queue, bound, classes, latency, loss, age, trust, stale)
        down = GaugeMetricFamily("weir_links_down", "Directed links between switches that let no probe through")
        down.add_metric([], len(controller.prober.link_watch.down))
        rejected = CounterMetricFamily("weir_packet_ins_rejected", "Packet-ins that were no probe of ours")
        rejected.add_metric([], controller.prober.reports.rejected)
        yield from (down, rejected)

    def _switches(self) -> Iterable[Metric]:
        controller, names = self._controller, ("switch",)
        up = GaugeMetricFamily("weir_switch_session_up", "1: this controller may write to it", labels=names)
        lost = GaugeMetricFamily("weir_switch_lost", "1: its lease has run out", labels=names)
        free = GaugeMetricFamily("weir_switch_slots_free", "Aggregation slots that no job has", labels=names)
        opened = CounterMetricFamily("weir_switch_session_openings", "Sessions begun with it", labels=names)
        outs = CounterMetricFamily("weir_switch_packet_outs", "Packets sent to it", labels=names)
        ins = CounterMetricFamily("weir_switch_packet_ins", "Packets received from it", labels=names)
        free_slots = controller.planner.memory.free_slots
        for name, session in controller.switches.sessions.items():
            up.add_metric([name], float(session.is_primary))
            lost.add_metric([name], float(name in controller.switches.lost))
            free.add_metric([name], free_slots[name])
            opened.add_metric([name], session.openings)
            outs.add_metric([name], session.packet_outs_sent)
            ins.add_metric([name], session.packet_ins_received)
        yield from (up, lost, free, opened, outs, ins)

    def _jobs(self) -> Iterable[Metric]:
        controller, names = self._controller, ("job",)
        jobs = controller.jobs
        running = GaugeMetricFamily("weir_jobs", "Jobs that run")
        running.add_metric([], len(jobs))
        generation = GaugeMetricFamily("weir_job_generation", "1 to 255, then 1 again", labels=names)
        workers = GaugeMetricFamily("weir_job_workers", "Workers that take part", labels=names)
        rounds = GaugeMetricFamily("weir_job_rounds_per_second", "Of the slowest worker", labels=names)
        moving = GaugeMetricFamily("weir_job_moving", "1: on its way to another generation", labels=names)
        silent = GaugeMetricFamily("weir_job_silent_workers", "Workers that the job waits for", labels=names)
        streams = GaugeMetricFamily("weir_job_link_streams", "Streams on all links, up and down", labels=names)
        for number, job in jobs.items():
            label = [str(number)]
            generation.add_metric(label, job.plan.generation)
            workers.add_metric(label, len(job.active))
            rounds.add_metric(label, job.rounds_per_second)
            moving.add_metric(label, float(job.move is not None))
            silent.add_metric(label, len(job.silent))
            streams.add_metric(label, sum(job.plan.streams.values()))
        yield from (running, generation, workers, rounds, moving, silent, streams)
        yield from self._reports()
        counts = jobs.counts
        for name, description, count in (
            ("admitted", "Jobs admitted", counts.admitted),
            ("aborted", "Jobs aborted", counts.aborted),
            ("moves", "Moves begun", counts.moves),
            ("leases_expired", "Leases of hosts that ran out", counts.leases_expired),
        ):
            family = CounterMetricFamily(
                f"weir_{'jobs_' if name in ('admitted', 'aborted') else ''}{name}", description
            )
            family.add_metric([], count)
            yield family
        leases = GaugeMetricFamily("weir_leases", "Leases of hosts in force")
        leases.add_metric([], len(jobs.leases))
        yield leases

    def _reports(self) -> Iterable[Metric]:
        """Metrics of the newest report of each job's program; a value that was not reported is absent."""
        told = [(str(number), job.reports.newest) for number, job in self._controller.jobs.items()]
        for name, what, value_of in _REPORTED:
            gauge = GaugeMetricFamily(f"weir_job_{name}", what, labels=("job",))
            for job, report in told:
                if report is not None and (value := value_of(report)) is not None:
                    gauge.add_metric([job], value)
            yield gauge

    def _beats(self, heard: HeartbeatReader) -> Iterable[Metric]:
        """Metrics of heartbeats through the fabric. A seat is a job's number and a rank, or a host's name without
        one.
        """
        for name, what, count in (
            ("received", "Heartbeats that keep a host alive", heard.came),
            ("late", "Of these, later than the fastest of their host by an interval and more", heard.late),
            ("missing", "Heartbeats that newer ones came without", heard.sent - heard.came),
        ):
            counter = CounterMetricFamily(f"weir_heartbeats_{name}", what)
            counter.add_metric([], count)
            yield counter
        refused = CounterMetricFamily("weir_heartbeats_refused", "Datagrams that keep nobody alive", labels=("reason",))
        for reason, count in (("damaged", heard.damaged), ("token", heard.foreign), ("sequence", heard.repeated)):
            refused.add_metric([reason], count)
        names = ("job", "rank")
        age = GaugeMetricFamily("weir_heartbeat_age_seconds", "Since the last heartbeat", labels=names)
        delay = GaugeMetricFamily("weir_heartbeat_delay_seconds", "Of the last, beyond the fastest one's", labels=names)
        seats = [(seat, job, host) for (job, host), seat in heard.seats.items() if job in self._controller.jobs]
        for seat, job, host in sorted(seats, key=lambda entry: entry[0].heard_ns)[:MAX_SEATS]:
            label = [str(job), str(self._controller.jobs[job].ranks.get(host, host))]
            age.add_metric(label, (self._now_ns - seat.heard_ns) / 1e9)
            delay.add_metric(label, seat.delay_ns / 1e9)
        yield from (refused, age, delay)


def text(controller: Controller, now_ns: int, heartbeats: HeartbeatReader | None = None) -> bytes:
    """Return the page, in Prometheus' text format.

    `now_ns` is the time on the controller's clock; `heartbeats` has those received through the fabric, or None.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Reading(controller, heartbeats, now_ns))
    return generate_latest(registry)


@asynccontextmanager
async def serve(
    controller: Controller,
    clock: Callable[[], int],
    port: int,
    host: str = "127.0.0.1",
    heartbeats: HeartbeatReader | None = None,
) -> AsyncIterator[int]:
    """Serve the page at `/metrics` in this event loop, and yield its port.

    Args:
        controller: Controller whose state the page shows.
        clock: Returns the time on the controller's clock, in ns.
        port: TCP port; 0: a free one.
        host: Address to listen on.
        heartbeats: Heartbeats received through the fabric; None: they do not use it.

    Raises:
        ControllerError: The port cannot be bound.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_S):
                request = await reader.readuntil(b"\r\n\r\n")
                method, path, *_ = request.split(b" ", 2)
                if method != b"GET" or path.split(b"?")[0] not in (b"/metrics", b"/"):
                    status, kind, body = "404 Not Found", "text/plain", b"ask for /metrics\n"
                else:
                    status, kind, body = "200 OK", CONTENT_TYPE_LATEST, text(controller, clock(), heartbeats)
                head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
                await writer.drain()
        except (TimeoutError, ValueError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # requests that are not HTTP get no answer
        finally:
            writer.close()

    def connection() -> asyncio.Protocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=_REQUEST_BYTES), answer)

    listener = Listener("metrics", connection)
    try:
        port = await listener.start(host, port)
    except OSError as error:
        raise ControllerError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another port",
            place="metrics",
            value=f"{host}:{port}",
        ) from None
    try:
        yield port
    finally:
        listener.close()
