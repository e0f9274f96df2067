"""The life of a job: who takes part, who is lost, its moves, and what must outlive the controller.

`job` is one running job and `registry` all of them. `moves` is what the hosts of one job are told and answer in a move,
as a state machine; `mover` begins such moves, takes lost hosts out of jobs and has the switches written in between;
`membership` takes what hosts say of themselves. `journal` writes down what a controller that begins anew needs, in
`journal_records`, to the lines of a `journal_file`; `restore` goes on from there.
"""
