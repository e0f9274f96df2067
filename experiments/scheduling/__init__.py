"""Runs about the order of jobs' traffic: searches of several users, jobs with learning curves, jobs in turns.

`searches` draws hyper-parameter searches, and `play` has them share a fabric of flows in traffic classes. `curves`
trains small models, and `learning` has jobs follow their curves. `crossing` has jobs share devices.
"""
