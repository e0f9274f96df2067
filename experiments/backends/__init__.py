"""Where a run's job takes place: on the emulated fabric in virtual time, or in Mininet with processes and packets."""
