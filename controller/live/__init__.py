"""The fabric as people see it while it runs: a picture of what the controller knows, and a page that shows it.

`picture` says what is to be seen, `events` what has changed since the last picture, `server` gives both to browsers and
to `weir top`, from a thread of its own.
"""
