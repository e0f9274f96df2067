"""Placement problem and predicted cost: `problem` has the question and the answer, `links` the fabric as arrays, `cost`
the predicted completion time, `network` the streams' choices as a flow network, `pipes` the limits of chips with
several pipelines, and `strategy` the interface of a strategy.
"""
