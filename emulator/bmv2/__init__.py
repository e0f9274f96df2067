"""BMv2 JSON, p4c's output for v1model: `reader` makes a typed `document` of it, `check` says whether it can be run, and
`schema` is what the program offers to a control plane.
"""
