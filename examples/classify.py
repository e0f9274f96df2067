"""Digits read by the switches that helped to learn them: `sudo .venv/bin/python examples/classify.py`.

It builds a fabric in Mininet with `weir controller`. A job of three workers grows a forest of decision trees on
scikit-learn's digits, from counts that the switches add up (examples/grow_forest.py). The forest is loaded into the
workers' switches. Then a second job trains (examples/train.py), and meanwhile the first worker's switch is asked, from
that worker's host, for the classes of 450 held-out images. `--switch bmv2` puts simple_switch_grpc in the place of
weir-switch.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from on_a_fabric import HERE, TOPOLOGY, WORKERS, start_controller  # type: ignore[import-not-found]  # in this folder
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from weir import ControlClient, Forest, HostError, TopologyError, load_topology
from weir.topologies.mininet.fabric import MininetFabric, SwitchKind


def start_job(fabric: MininetFabric, client: ControlClient, control: str, *words: str) -> list[subprocess.Popen[str]]:
    """Start a worker at each host of `WORKERS`: a program of this folder, with its arguments."""
    job = client.register(WORKERS)
    workers = []
    for seat in job.seats:
        seated = {"WEIR_CONTROL": control, "WEIR_JOB": str(job.job), "WEIR_TOKEN": seat.token}
        command = [sys.executable, str(HERE / words[0]), *words[1:]]
        workers.append(fabric.popen(seat.host, command, env={**os.environ, **seated}))
    return workers


def main() -> None:
    parser = argparse.ArgumentParser(description="Classify digits in a switch, beside a job (root).")
    parser.add_argument("--switch", type=SwitchKind, choices=list(SwitchKind), default=SwitchKind.WEIR)
    kind = parser.parse_args().switch
    _, held_out, _, of_held_out = train_test_split(*load_digits(return_X_y=True), test_size=450, random_state=0)
    topology = load_topology(TOPOLOGY)
    switches = sorted({topology.attached_switch(worker).name for worker in WORKERS})
    asked = topology.attached_switch(WORKERS[0])
    with TemporaryDirectory() as folder, MininetFabric(topology, kind, sockets=Path(folder)) as fabric:
        control, samples, model = f"unix:{folder}/control", Path(folder, "held_out.csv"), Path(folder, "digits.json")
        np.savetxt(samples, held_out, fmt="%d", delimiter=",")
        controller = start_controller(control, folder)
        try:
            with ControlClient(control) as client:
                failed = [worker.wait() for worker in start_job(fabric, client, control, "grow_forest.py", str(model))]
                if any(failed):
                    raise SystemExit(f"the workers that grow the forest ended with status {failed}")
                forest = Forest.load(model)
                client.load_model(switches, forest.as_json())
                workers = start_job(fabric, client, control, "train.py")
                words = ["infer", str(samples), "--switch", str(asked.address), "--timeout", "1", "--json"]
                command = [str(Path(sys.executable).with_name("weir")), *words]
                asking = fabric.popen(WORKERS[0], command, stdout=subprocess.PIPE, text=True)
                answers = asking.communicate()[0]
                failed = [worker.wait() for worker in workers]
        finally:
            controller.terminate()
            controller.wait()
    if asking.returncode or any(failed):
        raise SystemExit(f"weir infer ended with status {asking.returncode}, the workers with {failed}")
    classes = np.array(json.loads(answers))
    print(f"{(classes == forest.predict(held_out)).sum()} of 450 classes by {asked.name} are the forest's")
    print(f"{(classes == of_held_out).mean():.1%} of them are the digits'")


if __name__ == "__main__":
    try:
        main()
    except (TopologyError, HostError) as error:  # no root, no Mininet, no such switch: the message says what to do
        raise SystemExit(f"classify.py: {error}") from None
