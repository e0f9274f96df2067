"""Hyper-parameter searches that share a fabric: their file, and runs in virtual time and as processes.

`search_file` is the schema. `course` trains a search's configurations, whose values do not depend on time. `virtual`
plays the traffic of all stages on a fabric of flows, once per order of jobs.
"""
