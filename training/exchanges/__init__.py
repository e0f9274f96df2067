"""Workers' and servers' processes that several synchronisation modes have in common.

::

    collectives:  every worker ──all-reduce of all──▶ mean gradient, or mean weights
    served:       a worker ──update──▶ server ──weights──▶ the worker, each over a job of these two; when the
                  server takes and gives is the rule's (`rules`)
"""
