"""Live view of a running fabric: a picture of the controller's state, and a page that shows it.

`picture` builds the state to show, `events` the changes since the last picture, `server` serves both to browsers and to
`weir top`, from a thread of its own.
"""
