"""Whose rounds a switch may still hold in its registers: where they are another's, its program is loaded anew.

A switch keeps a slot's last round until somebody writes the slot, and not every target lets P4Runtime read or write
registers. But on every target a program begins with empty registers when it is loaded. So the cookie that P4Runtime
keeps with a switch's program names the program and the one that loaded it: a controller with a journal is the same one
after it was started anew, one without is another each time. Whoever finds another's cookie loads the program anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

OWNER_BITS: Final = 40
"""The cookie's lower part is the owner, the rest is of the program's."""

_OWNERS: Final = (1 << OWNER_BITS) - 1


@dataclass(slots=True)
class Loading:
    """What one session loads into its switch, and why. Programs are named by 64-bit hashes."""

    owner: int = 0
    """Who loads, in 1…2⁴⁰ − 1; 0: somebody who leaves nothing in registers, and takes them as they are."""
    forgetful: bool = False
    """It does not know what it has left there in the past, so nothing is taken that this session has not loaded."""
    loads: int = 0
    """How often this session has loaded the program for this owner."""
    left: set[tuple[int, int]] = field(default_factory=set)
    """Job and generation of the entries that another owner's jobs had in the switch when it was loaded anew: their
    hosts may not know yet that they are no more.
    """

    def claim(self, owner: int, *, forgetful: bool) -> None:
        """The switch is this owner's from now on, and what another one has loaded is loaded anew."""
        if self.owner != owner:
            self.loads = 0
        self.owner, self.forgetful = owner, forgetful

    def cookie(self, program: int) -> int:
        """Of this program of this owner."""
        return program & ~_OWNERS | self.owner if self.owner else program

    def accepts(self, cookie: int, program: int) -> bool:
        """Whether the switch can go on with what it runs."""
        if self.owner == 0:
            return runs(cookie, program)
        return cookie == self.cookie(program) and (self.loads > 0 or not self.forgetful)


def runs(cookie: int, program: int) -> bool:
    """Whether a switch with this cookie runs this program, whoever has loaded it."""
    return cookie & ~_OWNERS == program & ~_OWNERS
