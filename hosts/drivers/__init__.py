"""Drivers of the protocol cores on the wall clock: UDP sockets, seats in jobs of the control service, agents."""
