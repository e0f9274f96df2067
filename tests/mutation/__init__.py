"""Mutation tests: the code with random changes, each of which a test should detect.

    a module's source ──mutants─▶ one place changed ─plugin─▶ imported in its stead by the tests that run its line
    the program's JSON ─program─▶ one entry changed ─┘         (lines): killed, or it lives

`python -m weir.tests.mutation --count 200 --seed 7` breaks that many places of the pure cores, the controller's jobs
and moves, and the P4 program's constant tables. It fails if less than 95 % are killed. Surviving mutants are printed
with their change; `equivalent.txt` lists changes without effect, each with the reason.
"""
