"""Switches over P4Runtime: target state, actual state, and the fewest updates between the two.

`entries` are the contents of a switch, `refusals` its errors, `tables` the program's names and `pipeline` the program
itself, which `packing` builds from the output of a chip's compiler. `session` is one switch's stream (through
`finsy_switch` and `entities`), `reconcile` whole-table replacement, `switches` all of a fabric's sessions.
"""
