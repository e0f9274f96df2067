"""Controllers' streams: who is primary for which role, what waits to be sent to each, and for how long."""
