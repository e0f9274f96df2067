"""The life of a job: its members, lost hosts, migrations, and the state that must survive the controller.

`job` is one running job and `registry` all of them. `migration` is the message exchange with one job's hosts in a move,
as a state machine; `migrator` begins such moves, removes lost hosts from jobs and has the switches written in between.
`membership` handles hosts' heartbeats. `journal` stores the state that a restarted controller needs, as
`journal_records` in the lines of a `journal_file`; `restore` resumes from there.
"""
