"""A job of real processes, to be broken: a controller, a parameter server and workers, each killed or stopped at will.

The hosts' addresses are on the loopback interface of a network namespace of its own, so nothing else is needed to carry
their datagrams; jobs are summed by their server. Run as a module, with the SCENARIO.
"""

from __future__ import annotations

import copy
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from weir.emulator.p4runtime import P4RuntimeServer
from weir.emulator.switch import Switch
from weir.hosts import ControlClient, ControlRefused
from weir.p4src import FABRIC_JSON
from weir.topologies import dump_topology, leaf_spine
from weir.topologies.mininet.processes import ends_with_us

TOPOLOGY: Final = leaf_spine(1, 1, 5)
WORKERS: Final = ("h1", "h2", "h3")
SERVER: Final = "h4"
SPARE: Final = "h5"
LEASE_S: Final = 6.0
"""A process that runs is heard within it, on a machine with ten times the processes that it has cores for."""
PATIENCE_S: Final = 100.0
"""Time limit in seconds, which only a hang exceeds."""
ACTS: Final = 8
MAX_CONTROLLERS: Final = 3
LONGEST_S: Final = 3.0
"""Between two acts."""


class Worker:
    """One process with its output so far."""

    def __init__(self, process: subprocess.Popen[str], token: str) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        assert process.stdin is not None
        process.stdin.write(token + "\n")
        process.stdin.close()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    @property
    def steps(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if "step" in line]

    def until(self, steps: int) -> None:
        wait(lambda: len(self.steps) >= steps or "error" in (self.lines or [{}])[-1], f"{steps} steps")

    def end(self) -> int:
        status = self.process.wait(PATIENCE_S)
        self._reader.join()
        return status


def wait(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE_S:g} s for {what}")
        time.sleep(0.02)


class Controller:
    """A `weir controller` that was started, with its output so far."""

    def __init__(self, process: subprocess.Popen[str], said: list[str]) -> None:
        self.process = process
        self.said: list[str] = []
        threading.Thread(target=self._listen, args=[said], daemon=True).start()

    def _listen(self, said: list[str]) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            said.append(line)

    @property
    def serves(self) -> bool:
        """Return whether it serves, and has not ended."""
        return self.process.poll() is None and any("jobs are served at" in line for line in self.said)

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None


class Job:
    """A registered job with all its processes."""

    def __init__(self, stack: ExitStack, folder: Path, switches: str, timeout_s: float, **fields: Any) -> None:
        self.said: list[str] = []
        """Log lines of the controllers."""
        self._stack = stack
        self._switches = switches
        self._folder = folder
        self._timeout_s = timeout_s
        self.control = f"unix:{folder}/control"
        self.start_controller()
        self.client = stack.enter_context(ControlClient(self.control))
        self._register(**fields)

    def beside(self) -> Job:
        """Another job of the same hosts, each of which has a process of its own for it."""
        another = copy.copy(self)
        another._register()
        return another

    def _register(self, **fields: Any) -> None:
        """Register a job and start all its processes."""
        spares = fields.pop("spares", ())
        registration = self.client.register(WORKERS, SERVER, spares=spares, **fields)
        self.number = registration.job
        self._stop = self._folder / f"stop-{self.number}"
        self.workers: list[Worker] = []
        self.servers: list[subprocess.Popen[str]] = []
        for seat in registration.seats:
            if seat.HasField("rank"):
                words = [
                    "weir.tests.experiments.backends.summing_worker",
                    self.control,
                    str(self.number),
                    str(self._stop),
                    str(self._timeout_s),
                ]
                self.workers.append(Worker(self._start(words), seat.token))
            else:
                server = self._start(["weir.hosts.drivers.agent", self.control, str(self.number)])
                assert server.stdin is not None
                server.stdin.write(seat.token + "\n")
                server.stdin.close()
                self.servers.append(server)

    def start_controller(self) -> None:
        """Start `weir controller`, and wait until it serves."""
        self.controller = self.another_controller()
        wait(lambda: self.controller.serves or self.controller.ended, "the controller to serve")
        assert self.controller.serves, "".join(self.said)

    def another_controller(self, *more: str) -> Controller:
        """Start `weir controller` with more options: it waits for its turn where one has the journal."""
        code = "from weir.cli.main import main; main()"
        options = ["--strategy", "ps", "--lease", f"{LEASE_S}s", "--probe", "1000s", "--solve", "0ms", *more]
        options += [word for node in TOPOLOGY.switches for word in ("--switch", f"{node.name}={self._switches}")]
        options += ["--listen", self.control, "--journal", str(self._folder / "journal")]
        command = [sys.executable, "-c", code, "controller", str(self._folder / "fabric.yaml"), *options]
        return Controller(self._popen(command, stderr=subprocess.PIPE), self.said)

    def stop(self, *ranks: int) -> list[int]:
        """Have all stop after the same step, a few steps from now; how these end."""
        first = self.workers[ranks[0]]
        first.until(len(first.steps) + 5)
        self._stop.touch()
        return [self.workers[rank].end() for rank in ranks]

    def until_generation(self, rank: int, generation: int) -> None:
        """A step of this worker was in that generation."""
        wait(lambda: self.workers[rank].steps[-1]["generation"] >= generation, f"generation {generation}")

    def state(self) -> Any:
        (state,) = self.client.jobs()
        return state

    def all_attend(self) -> bool:
        try:
            return all(host.attending for host in self.state().hosts)
        except ControlRefused:
            return False

    def tell_where_all_are(self) -> None:
        """Have every worker and server that runs end with its threads' stacks on stderr."""
        running = [each for each in (*self.servers, *(w.process for w in self.workers)) if each.poll() is None]
        for process in running:
            sys.stderr.write(f"{process.pid} runs: {process.args!r}\n")
            process.send_signal(signal.SIGABRT)
            process.send_signal(signal.SIGCONT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(LEASE_S)

    def _start(self, words: list[str]) -> subprocess.Popen[str]:
        return self._popen([sys.executable, "-m", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def _popen(self, command: list[str], **options: Any) -> subprocess.Popen[str]:
        told = {**os.environ, "PYTHONFAULTHANDLER": "1"}
        process = subprocess.Popen([*ends_with_us("KILL"), *command], text=True, env=told, **options)

        def end() -> None:
            process.kill()
            process.wait()

        self._stack.callback(end)
        return process


@contextmanager
def job(*, timeout_s: float = PATIENCE_S, **fields: Any) -> Iterator[Job]:
    """`fields` are those of `ControlClient.register`."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weir-test-")))
        dump_topology(TOPOLOGY, folder / "fabric.yaml")
        for host in TOPOLOGY.hosts:
            subprocess.run(["ip", "address", "add", f"{host.address}/32", "dev", "lo"], check=True)
        switches = []
        for node in TOPOLOGY.switches:
            switch = Switch(node.device_id)
            switch.load(FABRIC_JSON.read_bytes())
            switches.append(switch)
        rpc = P4RuntimeServer(switches)
        rpc.start()
        stack.callback(rpc.stop)
        running = Job(stack, folder, rpc.address, timeout_s, **fields)
        try:
            yield running
        except Exception:
            running.tell_where_all_are()
            sys.stderr.write("".join(running.said) + "".join(map(str, running.client.jobs())))
            raise


def killed_worker_continue() -> dict[str, Any]:
    with job() as running:
        running.workers[2].until(10)
        running.workers[2].process.kill()
        running.until_generation(0, 2)
        statuses = running.stop(0, 1)
        return {"statuses": statuses, "workers": [worker.lines for worker in running.workers]}


def stopped_worker_abort() -> dict[str, Any]:
    with job(policy="abort") as running:
        running.workers[2].until(10)
        os.kill(running.workers[2].process.pid, signal.SIGSTOP)
        statuses = [worker.end() for worker in running.workers[:2]]
        servers = [server.wait(PATIENCE_S) for server in running.servers]
        os.kill(running.workers[2].process.pid, signal.SIGCONT)  # it comes to itself, and is told
        statuses.append(running.workers[2].end())
        last = [worker.lines[-1] for worker in running.workers]
        return {"statuses": statuses, "last": last, "servers": servers, "jobs": len(running.client.jobs())}


def stopped_worker_wait() -> dict[str, Any]:
    with job(policy="wait") as running:
        running.workers[2].until(10)
        os.kill(running.workers[2].process.pid, signal.SIGSTOP)
        wait(lambda: "silent" in running.state().waiting_for, "the job to wait for the silent one")
        said = running.state().waiting_for
        os.kill(running.workers[2].process.pid, signal.SIGCONT)
        running.until_generation(0, 2)
        statuses = running.stop(0, 1, 2)
        return {"statuses": statuses, "workers": [worker.lines for worker in running.workers], "said": said}


def killed_server() -> dict[str, Any]:
    with job(spares=[SPARE]) as running:
        running.workers[0].until(10)
        running.servers[0].kill()
        running.until_generation(0, 2)
        statuses = running.stop(0, 1, 2)
        return {"statuses": statuses, "workers": [worker.lines for worker in running.workers]}


def jobs_beside_each_other() -> dict[str, Any]:
    """The process that was the first at its host hangs, and is killed; a job that comes later needs that port, too."""
    with job() as first:
        second = first.beside()
        for each in (first, second):
            each.workers[0].until(10)
        first.workers[1].process.send_signal(signal.SIGSTOP)
        second.workers[0].until(len(second.workers[0].steps) + 20)
        first.until_generation(0, 2)
        first.workers[1].process.kill()
        third = first.beside()
        third.workers[0].until(10)
        jobs = (first, second, third)
        statuses = [first.stop(0, 2), second.stop(0, 1, 2), third.stop(0, 1, 2)]
        return {"statuses": statuses, "jobs": [[worker.lines for worker in each.workers] for each in jobs]}


def restarted_controller() -> dict[str, Any]:
    with job() as running:
        running.workers[0].until(10)
        running.controller.process.kill()
        running.controller.process.wait()
        running.workers[0].until(len(running.workers[0].steps) + 20)  # nobody needs a controller meanwhile
        running.start_controller()
        wait(running.all_attend, "all to come back")
        generation = running.state().generation
        after_restart = len(running.workers[0].steps)
        running.workers[2].process.kill()  # and it rules again: the others go on without this one
        running.until_generation(0, 2)
        statuses = running.stop(0, 1)
        return {
            "statuses": statuses,
            "workers": [worker.lines for worker in running.workers],
            "generation": generation,
            "after_restart": after_restart,
        }


def several_controllers(seed: int) -> dict[str, Any]:
    """Controllers started, stopped, continued, killed and ended in a random order while the workers sum; the survivor
    controls.
    """
    rng = random.Random(seed)
    signals = {"stop": signal.SIGSTOP, "continue": signal.SIGCONT, "kill": signal.SIGKILL, "end": signal.SIGTERM}
    done = []
    with job() as running:
        controllers = [running.controller]

        def alive() -> list[Controller]:
            return [controller for controller in controllers if not controller.ended]

        running.workers[0].until(10)
        for _ in range(ACTS):
            act, number = rng.choice(["start", "take over", "stop", *signals]), rng.randrange(MAX_CONTROLLERS)
            done.append(f"{act} {number}")
            if act in signals:
                if number < len(alive()):
                    alive()[number].process.send_signal(signals[act])
            elif len(alive()) < MAX_CONTROLLERS:
                options = ["--election-id", str(rng.randrange(1, 100))]
                options += ["--take-over"] if act == "take over" else []
                controllers.append(running.another_controller(*options))
            time.sleep(rng.uniform(0, LONGEST_S))
        for process in alive():
            process.process.send_signal(signal.SIGCONT)
        time.sleep(0.2)  # the one that was signalled while it was stopped ends now
        if not alive():
            controllers.append(running.another_controller())
        wait(lambda: sum(process.serves for process in alive()) == 1 and running.all_attend(), f"one to serve: {done}")
        generation = running.state().generation
        by_then = len(running.workers[0].steps)
        running.workers[2].process.kill()
        running.until_generation(0, generation + 1)
        statuses = running.stop(0, 1)
        return {
            "done": done,
            "statuses": statuses,
            "workers": [worker.lines for worker in running.workers],
            "generation": generation,
            "by_then": by_then,
            "serving": sum(process.serves for process in alive()),
        }


SCENARIOS: Final = {
    each.__name__: each
    for each in (
        killed_worker_continue,
        stopped_worker_abort,
        stopped_worker_wait,
        killed_server,
        restarted_controller,
        jobs_beside_each_other,
    )
}

if __name__ == "__main__":
    name, *seeds = sys.argv[1].split("-")
    play: Callable[..., dict[str, Any]] = SCENARIOS.get(name, several_controllers)
    sys.stdout.write(json.dumps(play(*map(int, seeds))) + "\n")
