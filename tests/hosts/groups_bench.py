"""Groups of a real job: a controller, its service, and hosts that join over it and sum over sockets.

`python -m tests.hosts.groups_bench`, in a network namespace of its own; prints what each worker got, as JSON.
"""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from hosts import Membership, UdpHost
from hosts.client import serve
from hosts.control_groups import ControlGroups
from hosts.groups import new_groups
from tests.experiments.process_bench import SERVER, TOPOLOGY, WORKERS, job

PORT = 30_001
"""Another than that of the processes which the bench starts."""
GROUPS = [[0, 1], [2, 1], [0, 2], [2, 0, 1], [1]]


def main() -> dict[str, Any]:
    with job() as running:
        addresses = {host.name: int(host.address) for host in TOPOLOGY.hosts}
        server_host = UdpHost(addresses[SERVER], PORT)
        failures: list[str] = []

        def serve_job(number: int, token: str) -> None:
            def run() -> None:
                try:
                    serve(running.control, number, token, host=server_host)
                except Exception as error:  # noqa: BLE001 (told at the end)
                    failures.append(repr(error))

            threading.Thread(target=run, daemon=True).start()

        registration = running.client.register(WORKERS, SERVER)
        tokens = {}
        for seat in registration.seats:
            if seat.HasField("rank"):
                tokens[seat.rank] = seat.token
            else:
                serve_job(registration.job, seat.token)

        def work(rank: int) -> list[Any]:
            with (
                Membership(running.control, registration.job, tokens[rank], port=PORT, linger_s=5.0) as world,
                ControlGroups(
                    running.control, world, WORKERS, server=SERVER, start_server=serve_job, slots=8
                ) as registrar,
            ):
                groups = new_groups(world.communicator, GROUPS, registrar)
                members = [group for group in groups if group is not None]
                handles = [group.all_gather_async(np.array([rank, group.rank])) for group in reversed(members)]
                gathered = [handle.wait().tolist() for handle in reversed(handles)]
                total = world.communicator.allreduce(np.full(3000, float(rank)), op="mean")
                return [gathered, np.unique(total).tolist()]

        with ThreadPoolExecutor(len(WORKERS)) as pool:
            results = list(pool.map(work, range(len(WORKERS))))
        return {"results": results, "failures": failures, "jobs": len(running.client.jobs())}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main()) + "\n")
