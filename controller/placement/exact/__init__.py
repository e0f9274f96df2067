"""Search for one job's tree: growing trees on native graphs (`spanning`, `steiner`, `trees`), the mixed-integer program
of a whole tree (`tree_program`) with its `relaxation` and its heuristic start (`rerouting`), the exact linear program
of streams (`lp`), the program that minimises a maximum over shares (`min_max_lp`), and `fan_in`, the nearest tree
within every node's fan-in, with its heuristic `greedy_fan_in`.
"""
