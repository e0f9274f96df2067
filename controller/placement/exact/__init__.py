"""Search for one job's tree.

`spanning`, `steiner` and `trees` grow trees on native graphs. `tree_program` is the mixed-integer program of a whole
tree, with its `relaxation` and its heuristic start (`rerouting`). `lp` is the exact linear program of streams,
`min_max_lp` the program that minimises a maximum over shares. `fan_in` finds the nearest tree within every node's
fan-in, with its heuristic `greedy_fan_in`.
"""
