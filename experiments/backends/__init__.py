"""Backends of a run's job: the emulated fabric in virtual time, or Mininet with processes and packets."""
