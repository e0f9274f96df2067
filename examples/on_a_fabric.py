"""A job of real processes over switches in Mininet: `sudo .venv/bin/python examples/on_a_fabric.py`.

It builds the fabric, starts `weir controller` for it, registers a job and runs examples/train.py at each of the job's
hosts. `--switch bmv2` puts simple_switch_grpc in the place of weir-switch.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from threading import Thread

from weir import ControlClient, HostError, TopologyError, load_topology
from weir.topologies.mininet.fabric import MininetFabric, SwitchKind

HERE = Path(__file__).parent
TOPOLOGY = "leaf_spine.yaml"  # which ships with Weir
WORKERS = ("h1", "h2", "h4")


def start_controller(listen: str, sockets: str) -> subprocess.Popen[str]:
    """`weir controller` for the fabric with these sockets, which serves jobs when this returns."""
    probe = "500ms"  # bmv2 on few cores is slow to send on what tells the controller that links are up
    command = [
        str(Path(sys.executable).with_name("weir")),
        "controller",
        TOPOLOGY,
        "--sockets",
        sockets,
        "--listen",
        listen,
        "--probe",
        probe,
    ]
    controller = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert controller.stderr is not None
    for line in controller.stderr:
        if "jobs are served at" in line:  # pass later output on, since a full pipe would block it
            Thread(target=copyfileobj, args=(controller.stderr, sys.stderr), daemon=True).start()
            return controller
        sys.stderr.write(line)
    raise SystemExit(f"weir controller ended with status {controller.wait()}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train at three hosts of a fabric in Mininet (root).")
    parser.add_argument("--switch", type=SwitchKind, choices=list(SwitchKind), default=SwitchKind.WEIR)
    kind = parser.parse_args().switch
    with (
        TemporaryDirectory() as folder,
        MininetFabric(load_topology(TOPOLOGY), kind, sockets=Path(folder)) as fabric,
    ):
        control = f"unix:{folder}/control"  # a path is reached from every host's network namespace
        controller = start_controller(control, folder)
        try:
            with ControlClient(control) as client:
                job = client.register(WORKERS)  # no parameter server: a switch is the root
                workers = []
                for seat in job.seats:
                    seated = {"WEIR_CONTROL": control, "WEIR_JOB": str(job.job), "WEIR_TOKEN": seat.token}
                    command = [sys.executable, str(HERE / "train.py")]
                    start = {"env": {**os.environ, **seated}, "stdout": subprocess.PIPE, "text": True}
                    workers.append(fabric.popen(seat.host, command, **start))
                print(f"job {job.job} of {', '.join(WORKERS)}, summed at {', '.join(client.jobs()[0].switches)}")
                for worker in workers:
                    print(worker.communicate()[0], end="")
                failed = [worker.returncode for worker in workers]
        finally:
            controller.terminate()
            controller.wait()
    if any(failed):
        raise SystemExit(f"the workers ended with status {failed}")


if __name__ == "__main__":
    try:
        main()
    except (TopologyError, HostError) as error:  # no root, no Mininet, no such switch: the message says what to do
        raise SystemExit(f"on_a_fabric.py: {error}") from None
