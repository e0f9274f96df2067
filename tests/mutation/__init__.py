"""The code broken on purpose, in ways that nobody chose: does a test say so?

    a module's source ──mutants─▶ one place changed ─plugin─▶ imported in its stead by the tests that run its line
    the program's JSON ─program─▶ one entry changed ─┘         (lines): killed, or it lives

`python -m weir.tests.mutation --count 200 --seed 7` breaks that many places of the pure cores, the controller's jobs
and moves, and the P4 program's constant tables, and fails where less than 95 % are killed. Those that live are printed,
with what was changed; `equivalent.txt` lists changes that change nothing, each with the reason.
"""
