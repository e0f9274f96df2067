"""Ownership of the rounds in a switch's registers: if another controller may own them, the program is loaded again.

A switch keeps a slot's last round until the slot is overwritten, and not every target lets P4Runtime read or write
registers. But on every target a program starts with empty registers when it is loaded. So the cookie that P4Runtime
keeps with a switch's program names the program and its loader. A controller with a journal keeps its identity when it
restarts; one without gets a new one each time. A controller that finds another's cookie loads the program again.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Final

OWNER_BITS: Final = 40
"""The cookie's lower part is the owner, the rest is of the program's."""

_OWNERS: Final = (1 << OWNER_BITS) - 1


@dataclass(slots=True)
class Loading:
    """Program that one session loads into its switch, and why. Programs are named by 64-bit hashes."""

    owner: int = 0
    """Loader's id, in 1…2⁴⁰ − 1; 0: a loader that leaves nothing in registers, and accepts them as they are."""
    forgetful: bool = False
    """It does not know what it has left there in the past, so nothing is taken that this session has not loaded."""
    loads: int = 0
    """Number of times that this session has loaded the program for this owner."""
    left: set[tuple[int, int]] = field(default_factory=set)
    """Job and generation of another owner's entries found when the program was loaded: their hosts may not know yet
    that they are gone.
    """

    def claim(self, owner: int, *, forgetful: bool) -> None:
        """Make the switch this owner's; a program loaded by another is loaded again."""
        if self.owner != owner:
            self.loads = 0
        self.owner, self.forgetful = owner, forgetful

    def cookie(self, program: int) -> int:
        """Return the cookie of this program and owner."""
        return program & ~_OWNERS | self.owner if self.owner else program

    def accepts(self, cookie: int, program: int) -> bool:
        """Return True if the switch can keep its present program."""
        if self.owner == 0:
            return runs(cookie, program)
        return cookie == self.cookie(program) and (self.loads > 0 or not self.forgetful)


def new_owner() -> int:
    """Draw an owner that no other controller has."""
    return 1 + secrets.randbelow(_OWNERS)


def runs(cookie: int, program: int) -> bool:
    """Return True if a switch with this cookie runs this program, whoever loaded it."""
    return cookie & ~_OWNERS == program & ~_OWNERS
