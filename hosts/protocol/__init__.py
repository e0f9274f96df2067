"""The aggregation protocol as state machines: `worker` and `server` take bytes and the time, and give bytes and the
next deadline. Nothing here opens a socket, reads a clock or draws a random number.
"""
