"""Switches over P4Runtime: what one is to hold, what it holds, and the fewest updates between the two.

`entries` are the words for what a switch holds, `refusals` what it does not take, `tables` the program's names and
`pipeline` the program itself, which `packing` makes of what a chip's compiler wrote; `session` is one switch's stream
(through `finsy_switch` and `entities`), `reconcile` whole-table replacement, `switches` all of a fabric's sessions.
"""
