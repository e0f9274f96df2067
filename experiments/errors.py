"""The room's root exception."""


class ExperimentError(Exception):
    """A run cannot start or go on; the message is one line that a user can act on."""
