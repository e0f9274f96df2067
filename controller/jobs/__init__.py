"""The life of a job: who takes part, who is lost, its moves, and what must outlive the controller.

`moves` is one move as a state machine, `job` one running job, `registry` all of them; `journal` writes down what a
controller that begins anew needs, in `journal_records`, to the lines of a `journal_file`.
"""
