"""Gossip policies: how often each worker of a decentralised job pulls from each other one, and with which weight.

::

    Snapshot (INT) ─▶ rates.transfer_seconds ─┐
    workers' times ─▶ rates.EndToEndAverages ─┴▶ rates.pair_seconds ─▶ publisher ─▶ policies ─▶ GossipPolicy, version n

`policy` is what workers receive, `convergence` judges any policy by its exact rate, `policies` has one module for each
way to compute one, and `publisher` computes again when the network has changed.
"""
