"""A kind of thing for tests of registries."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Colour:
    name: str
