"""Workers' and servers' processes that several synchronisation modes have in common.

::

    collectives:  every worker ──all-reduce of all──▶ mean gradient, or mean weights
    served:       a worker ──update──▶ server ──weights──▶ the worker, each over a job of these two; when the
                  server takes and gives is the rule's (`rules`)
    peers:        a worker ──pull, or weights there and back──▶ another one, over the point-to-point transport

`local_steps` has the steps that a worker makes alone between two exchanges.
"""
