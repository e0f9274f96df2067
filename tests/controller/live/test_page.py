"""The live page: published state reaches every watcher, over broken connections too, and a browser shows it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("plotly")

from weir.controller.errors import ControllerError
from weir.controller.live.picture import fabric_picture
from weir.controller.live.server import LiveServer
from weir.tests.browser import chromium
from weir.tests.support.errors import raises
from weir.topologies.generators import leaf_spine

TOPOLOGY = leaf_spine(2, 2, 2)
FABRIC = fabric_picture(TOPOLOGY, "a test")


def state(generation: int, *, sums: str = "s1", stale: bool = False, event: str = "nothing") -> dict[str, Any]:
    return {
        "time_ns": 10**8 * generation,
        "doing": "testing",
        "telemetry": "1 stale" if stale else "all fresh",
        "links": [
            [0.1 * index % 1, 3.0 * index, 7.5, 0.0, 4.0, 1.0, stale and index == 2]
            for index in range(len(FABRIC["links"]))
        ],
        "bounds": [
            {"bulk": None if index == 4 else 20 + index, "classes": {"4": 6, "5": 8} if index == 5 else {}}
            for index in range(len(FABRIC["links"]))
        ],
        "jobs": [
            {
                "number": 7,
                "generation": generation,
                "moving": False,
                "workers": ["h1", "h2"],
                "server": "h4",
                "tree": {"h1": sums, "h2": sums, sums: "h4"},
                "sums": [sums],
                "rounds_per_s": 5.0,
                "says": "waits for nothing",
                "phases": {"steps": 0, "compute_ns": 0, "exposed_ns": 0, "waiting_ns": 0},
                "traffic_class": 1,
            }
        ],
        "switches": [{"name": s.name, "lost": False, "free_slots": 9} for s in TOPOLOGY.switches],
        "gossip": None,
        "drops": {"no_route": 3, "late": 0},
        "overhead": {"says": "12 probe packets"},
        "events": [{"number": generation, "time_ns": 5, "kind": "move", "text": event}],
    }


def heard(stream: Any) -> tuple[str, Any]:
    """The next event of a stream."""
    kind = ""
    for line in stream:
        if line.startswith(b"event: "):
            kind = line[7:].strip().decode()
        elif line.startswith(b"data: "):
            return kind, json.loads(line[6:])
    raise AssertionError("the stream has ended")


def test_every_watcher_gets_fabric_state_and_updates() -> None:
    with LiveServer(port=0) as server:
        server.show_fabric(FABRIC)
        server.show_state(state(1))
        server.show_state(state(2))
        streams = [urlopen(f"{server.url}live", timeout=20) for _ in range(3)]
        for stream in streams:
            kind, fabric = heard(stream)
            assert (kind, fabric["title"], len(fabric["links"])) == ("fabric", "a test", len(FABRIC["links"]))
            assert heard(stream) == ("state", state(2))
        server.show_state(state(3))
        assert [heard(stream) for stream in streams] == [("state", state(3))] * 3
        streams[0].close()
        server.show_fabric({**FABRIC, "title": "another"})
        server.show_state(state(1))
        for stream in streams[1:]:
            assert heard(stream)[1]["title"] == "another"
            assert heard(stream) == ("state", state(1))
        with raises(ControllerError, place="live page", value=f"127.0.0.1:{server.port}"):
            LiveServer(port=server.port).__enter__()
    with (
        LiveServer(port=server.port) as again,  # the port is free at once
        urlopen(again.url, timeout=20) as page,
    ):
        text = page.read().decode()
        assert page.headers["Content-Security-Policy"].startswith("default-src 'self'")
    assert "http://" not in text
    assert "https://" not in text


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("attacker.example:8265", 403),
        ("localhost:8265", 200),
        ("[::1]:8265", 200),
        ("127.0.0.2", 200),
        ("10.0.0.1", 403),
    ],
)
def test_a_page_for_this_machine_has_no_other_name(name: str, status: int) -> None:
    """Else another site's page could have its name lead here, and read what is served."""
    with LiveServer(port=0) as server:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request("GET", "/", headers={"Host": name})
        answer = connection.getresponse()
        assert (answer.status, b"this page is " in answer.read()) == (status, status == 403)
        connection.close()


def answer_to(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as asking:
        asking.sendall(request)
        return b"".join(iter(lambda: asking.recv(4096), b""))


@pytest.mark.parametrize(
    "request_line",
    [b"GET /\0 HTTP/1.1", b"\x16\x03\x01", b"GET / HTTP/9.9", b"G\0T / HTTP/1.1", b"GET / HTTP/1.1\r\nA\0: b"],
)
def test_what_is_no_request_is_answered_and_not_logged(request_line: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A stranger may send any number of them, and would fill the log."""
    with LiveServer(port=0) as server:
        assert answer_to(server.port, request_line + b"\r\nHost: 127.0.0.1\r\n\r\n").split()[1] == b"400"
    assert caplog.records == []


def test_a_fault_of_the_page_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def fails(*_: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(LiveServer, "_answer_page", fails)
    with LiveServer(port=0) as server:
        assert answer_to(server.port, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").split()[1] == b"500"
    assert "a fault" in caplog.text


@pytest.fixture
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


def test_a_browser_shows_a_move_and_reconnects(browser: Any, tmp_path: Path) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    wait = WebDriverWait(browser, 60)

    def shown(script: str, value: object) -> None:
        wait.until(lambda browser: browser.execute_script(f"return {script}") == value)

    job = 'document.querySelector("#jobs tr")?.dataset'
    summing = (
        'document.getElementById("fabric").data?.find(t => t.marker?.symbol === "square")?.marker.color'
        '.map((colour, at) => colour === "#7fd1c7" ? fabric.nodes.filter(n => n.switch)[at].name : "").join("")'
    )
    with LiveServer(port=0) as server:
        server.show_fabric(FABRIC)
        server.show_state(state(1))
        browser.get(server.url)
        shown(f"{job}?.generation", "1")
        shown(summing, "s1")
        server.show_state(state(2, sums="s3", stale=True, event="<b>moved</b> & gone"))
        shown(f"{job}.sums", "s3")
        shown(summing, "s3")
        shown('document.querySelector("#events li").textContent', "0.000 s move <b>moved</b> & gone")
        shown('document.getElementById("telemetry").className', "stale")
        shown('document.getElementById("drops").textContent', "no_route: 3")
        shown('document.getElementById("link").textContent', "live")
        browser.execute_script("chosen = 5; drawSparks()")
        shown('document.getElementById("queue").data[0].y.join()', "15,15")
        shown('document.getElementById("queue").data[1].y.join()', "25,25")
        bounds = "at most 25 packets; class 4: at most 6 packets; class 5: at most 8 packets"
        shown('document.getElementById("bounds").textContent', bounds)
        text = 'document.getElementById("fabric").data.find(t => t.customdata).text'
        shown(f"{text}[5].includes('{bounds.replace('; ', '<br>')}')", True)
        shown(f"{text}[4].includes('no bound')", True)
        assert browser.save_screenshot(str(tmp_path / "page.png"))
        for event, told in (("error", "connection lost; trying again"), ("open", "live")):  # as if the network failed
            browser.execute_script(f'stream.dispatchEvent(new Event("{event}"))')
            shown('document.getElementById("link").textContent', told)
    shown('document.getElementById("link").textContent', "this run has ended")
    with LiveServer(port=server.port) as again:
        again.show_fabric(FABRIC)
        again.show_state(state(3, sums="s2"))
        shown(f"{job}.generation", "3")
        shown('document.getElementById("link").textContent', "live")
    complaints = [entry["message"] for entry in browser.get_log("browser") if "favicon" not in entry["message"]]
    assert all("/live" in message for message in complaints), complaints


def reported(generation: int, **losses: tuple[int, float | None]) -> dict[str, Any]:
    """A state whose jobs have reported a step and its loss."""
    one = state(generation)
    (job,) = one["jobs"]
    jobs = []
    for name, (step, loss) in losses.items():
        report = {"stage": "warm-up", "step": step, "steps_left": 9, "loss": loss, "accuracy": None}
        jobs.append({**job, "number": int(name[3:]), "report": report})
    return {**one, "jobs": jobs}


def test_a_browser_draws_each_jobs_losses_by_step(browser: Any) -> None:
    """A repeated step or one without a loss adds no point; a restarted job begins anew; an ended one is removed."""
    from selenium.webdriver.support.ui import WebDriverWait

    curves = (
        'document.getElementById("losses").hidden ? [] : '
        'document.getElementById("losses").data.map(t => [t.name, t.x, t.y])'
    )

    def drawn(*expected: list[Any]) -> None:
        WebDriverWait(browser, 60).until(lambda browser: browser.execute_script(f"return {curves}") == [*expected])

    with LiveServer(port=0) as server:
        server.show_fabric(FABRIC)
        server.show_state(state(1))
        browser.get(server.url)
        drawn()
        server.show_state(reported(2, job7=(1, 2.5)))
        drawn(["job 7", [1], [2.5]])
        server.show_state(reported(3, job7=(1, 2.5), job9=(10, 0.5)))
        drawn(["job 7", [1], [2.5]], ["job 9", [10], [0.5]])
        server.show_state(reported(4, job7=(2, None), job9=(12, 0.25)))
        drawn(["job 7", [1], [2.5]], ["job 9", [10, 12], [0.5, 0.25]])
        assert "warm-up, step 2, 9 left" in browser.execute_script('return document.getElementById("jobs").textContent')
        server.show_state(reported(5, job7=(3, 1.5), job9=(1, 3.0)))
        drawn(["job 7", [1, 3], [2.5, 1.5]], ["job 9", [1], [3.0]])
        server.show_state(reported(6, job9=(2, 2.0)))
        drawn(["job 9", [1, 2], [3.0, 2.0]])
        server.show_fabric({**FABRIC, "title": "another run"})
        server.show_state(state(1))
        drawn()
    complaints = [entry["message"] for entry in browser.get_log("browser") if "favicon" not in entry["message"]]
    assert all("/live" in message for message in complaints), complaints


def spent(generation: int, **phases: tuple[int, int, int, int]) -> dict[str, Any]:
    """A state whose jobs have spent time in phases: steps, and tenths of a second of each phase since the start."""
    one = state(generation)
    (job,) = one["jobs"]
    names = ("steps", "compute_ns", "exposed_ns", "waiting_ns")
    jobs = [
        {
            **job,
            "number": int(name[3:]),
            "phases": dict(zip(names, (steps, *(10**8 * tenths for tenths in times)), strict=True)),
            "traffic_class": int(name[3:]) - 5,
        }
        for name, (steps, *times) in phases.items()
    ]
    return {**one, "jobs": jobs}


def test_a_browser_draws_the_phases_of_each_job_over_time(browser: Any) -> None:
    """The time between two states in which a job reports steps is divided by its phases; the rest of it stays blank."""
    from selenium.webdriver.support.ui import WebDriverWait

    drawing = """
        const plot = document.getElementById("timelines")
        if (plot.hidden) return []
        const round = values => values.map(value => value === null ? null : Number(value.toFixed(6)))
        return [plot.layout.yaxis.ticktext, ...plot.data.map(trace => [trace.name, round(trace.x), round(trace.y)])]
    """
    names = ("computing", "exposed communication", "waiting for a turn")

    def boxes(*drawn: tuple[float, float, float, float]) -> list[list[float | None]]:
        """Corners of boxes from x to x, from y to y."""
        xs = [x for a, b, _, _ in drawn for x in (a, b, b, a, a, None)]
        return [xs, [y for _, _, a, b in drawn for y in (a, a, b, b, a, None)]]

    def drawn(rows: list[str], *phases: list[list[float | None]]) -> None:
        expected = [rows, *([name, *each] for name, each in zip(names, phases, strict=True))] if rows else []
        WebDriverWait(browser, 60).until(lambda browser: browser.execute_script(drawing) == expected)

    with LiveServer(port=0) as server:
        server.show_fabric(FABRIC)
        server.show_state(spent(10, job6=(0, 0, 0, 0)))
        browser.get(server.url)
        drawn([])
        server.show_state(spent(20, job6=(4, 5, 2, 3), job8=(7, 70, 0, 0)))  # at 2 s; job 8's earlier steps count not
        first = ((1, 2, 0, 0.425), (1, 2, 0.425, 0.595), (1, 2, 0.595, 0.85))
        drawn(["job 6, class 1"], *(boxes(box) for box in first))
        server.show_state(spent(25, job6=(4, 5, 2, 3), job8=(7, 70, 0, 0)))  # nothing new
        server.show_state(spent(30, job6=(5, 10, 2, 3), job8=(8, 75, 15, 0)))  # job 8's times are more than the 1 s
        drawn(
            ["job 8, class 3", "job 6, class 1"],  # from below
            boxes((2, 3, 0, 0.2125), (1, 2, 1, 1.425), (2, 3, 1, 1.425)),
            boxes((2, 3, 0.2125, 0.85), (1, 2, 1.425, 1.595)),
            boxes((1, 2, 1.595, 1.85)),
        )
        table = browser.execute_script('return document.getElementById("jobs").textContent')
        assert "50 % computing, 10 % exposed communication, 15 % waiting for a turn" in table
        assert "25 % computing, 75 % exposed communication" in table
        server.show_state(spent(40, job6=(2, 0, 0, 0), job8=(8, 75, 15, 0)))  # job 6 has begun again
        drawn(["job 8, class 3"], boxes((2, 3, 0, 0.2125)), boxes((2, 3, 0.2125, 0.85)), boxes())
        server.show_state(state(41))
        drawn([])
    complaints = [entry["message"] for entry in browser.get_log("browser") if "favicon" not in entry["message"]]
    assert all("/live" in message for message in complaints), complaints


def test_a_browser_draws_the_gossip_policy(browser: Any) -> None:
    """Rows are workers and columns those that they pull from; a run without gossip has no figure."""
    from selenium.webdriver.support.ui import WebDriverWait

    figure = (
        'document.getElementById("gossip").hidden ? null : [document.getElementById("policy-name").textContent, '
        '...document.getElementById("policy").data.map(t => [t.type, t.x, t.y, t.z])]'
    )

    def drawn(expected: object) -> None:
        WebDriverWait(browser, 60).until(lambda browser: browser.execute_script(f"return {figure}") == expected)

    def gossip(version: int, probabilities: list[list[float]]) -> dict[str, Any]:
        return {"policy": "steady", "version": version, "workers": ["h1", "h2"], "probabilities": probabilities}

    with LiveServer(port=0) as server:
        server.show_fabric(FABRIC)
        server.show_state(state(1))
        browser.get(server.url)
        drawn(None)
        for version, rows in ((1, [[0.25, 0.75], [0.5, 0.5]]), (2, [[1.0, 0.0], [0.125, 0.875]])):
            server.show_state({**state(1 + version), "gossip": gossip(version, rows)})
            drawn([f"steady, version {version}", ["heatmap", ["h1", "h2"], ["h1", "h2"], rows]])
        server.show_fabric({**FABRIC, "title": "another run"})
        server.show_state(state(1))
        drawn(None)
    complaints = [entry["message"] for entry in browser.get_log("browser") if "favicon" not in entry["message"]]
    assert all("/live" in message for message in complaints), complaints
