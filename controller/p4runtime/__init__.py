"""Switches over P4Runtime: what one is to hold, what it holds, and the fewest updates between the two.

`entries` are the words for what a switch holds, `tables` the program's names, `session` one switch's stream (through
`finsy_switch` and `entities`), `reconcile` whole-table replacement, `switches` all of a fabric's sessions.
"""
