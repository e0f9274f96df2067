"""Authentication of a job's sums: a check that cannot be computed without the job's key (docs/threat-model.md).

Switches add checks as they add lanes. So a sum's check is the sum of the checks, and the receiver compares it with that
of the lanes. With secret coefficients it authenticates the *sum*. Each worker also adds its round's secret pad. A sum
of k workers then has k pads, and neither zeros nor another round's numbers are accepted. After the loss of a worker
rounds hold other numbers than before, so pads differ by the number of lost workers, too (`pad_numbers`). How checks are
computed depends on what the lanes hold:

* If a lane's sum cannot wrap (finite floating numbers, and integers as digits), checks are Σ rᵢ·vᵢ + pad modulo p over
  the integers. The prime p is secret and below 2^(32 − ⌈log₂ n⌉), so that the sum of n of them does not wrap either.
  The rᵢ are secret, and uniform below p. Every change of one lane is detected, except by a multiple of p.
* If it may wrap (counted or poisoned chunks, lossy codes, and the signature in a scale round), checks are
  Σ rᵢ·vᵢ + pad modulo 2³² with secret odd rᵢ, so that damage to one lane is always found. Lanes of which several
  differ, by multiples of 2^b and not all of 2^(b + 1), pass with probability 2^(b − 31) at most.

All hosts of a job derive the same from its key. Its draw d (1, 2, …) of c numbers below m is 8·c bytes of
SHAKE256("weir sum check" ‖ d in 4 bytes ‖ key), read as c big-endian numbers and each taken modulo m. The draws are, in
this order: the 257 coefficients below 2³², made odd in their lowest bit; their pad's factor and constant. Then come
numbers x below 2^(b − 2), for b = 32 − ⌈log₂ n⌉, until p = 2^(b − 1) + 2·x + 1 is a prime. Last are p's pad and the 257
coefficients below p.

Without a key the coefficients are public (docs/design.md §2.2), modulo 2³²: that detects damage only.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...wire.aggregation import CHUNKS, LANE_COEFFICIENTS, LANES
from ..array_types import BoolArray, IntArray

Checks = NDArray[np.int64]

_WORD: Final = 1 << 32
_CHECK_BITS: Final = 32
_PART_BITS: Final = 11
"""Coefficients are multiplied in parts: 32 bits of a lane, 11 of a part and 8 for adding up are exact in float64."""
_PARTS: Final = 3
_MASK: Final = (1 << _PART_BITS) - 1
_WITNESSES: Final = (2, 7, 61)
"""Bases by which Miller's test decides for all numbers below 4.7·10⁹ (Jaeschke, On strong pseudoprimes, 1993)."""


def pad_numbers(rounds: IntArray, lost: IntArray | int) -> IntArray:
    """Return the numbers of the pads of rounds that are summed after the loss of so many workers.

    A round of before the loss never has the number of a later one: that one is at most a window behind it.
    """
    numbers: IntArray = rounds + np.asarray(lost) * CHUNKS
    return numbers


class SumCheck:
    """One job's check; the same in all its hosts and generations."""

    def __init__(self, key: str, workers: int) -> None:
        """`key`: hexadecimal, or "" for none; `workers`: the job's size at its start."""
        self._made_of = key, workers
        self.prime = 0
        """p: the secret prime that checks are taken modulo where lanes cannot wrap; 0 where there is no key."""
        self._wrapping = LANE_COEFFICIENTS
        self._word_pad = (0, 0)
        if not key:
            return
        stream = _Stream(bytes.fromhex(key))
        self._wrapping = stream.below(_WORD, LANES + 1).astype(np.uint32) | np.uint32(1)
        self._word_pad = _pair(stream.below(_WORD, 2))
        bits = _CHECK_BITS - (workers - 1).bit_length()
        while not _is_prime(self.prime):
            self.prime = (1 << (bits - 1)) + 1 + 2 * stream.below(1 << (bits - 2), 1).item()
        self._prime_pad = _pair(stream.below(self.prime, 2))
        coefficients = stream.below(self.prime, LANES + 1).astype(np.int64)
        self._of_weight = np.uint64(coefficients[LANES])
        split = coefficients[:LANES, None] >> _PART_BITS * np.arange(_PARTS) & _MASK
        self._parts = split.astype(np.float64)
        self._powers = 1 << _PART_BITS * np.arange(_PARTS)

    def __reduce__(self) -> tuple[type[SumCheck], tuple[str, int]]:
        return SumCheck, self._made_of

    def of(
        self, numbers: IntArray, lanes: NDArray[np.int32] | None, weights: NDArray[Any], wraps: BoolArray | bool
    ) -> Checks:
        """Return the checks of one worker's messages.

        Args:
            numbers: Numbers of the pads, (n,), as `pad_numbers` returns them.
            lanes: Lanes (n, lanes); None: all are 0, or the rounds are scale rounds.
            weights: Weights of the messages, (n,).
            wraps: True if a sum of these lanes may wrap, for all messages or (n,); True for scale rounds.

        Returns:
            Checks in 0…2³² − 1, int64 (n,).
        """
        checks, modulus = self._without_pads(lanes, weights, wraps)
        return (checks + self._pads(numbers, modulus)) % modulus

    def passes(
        self,
        numbers: IntArray,
        lanes: NDArray[np.int32] | None,
        weights: NDArray[Any],
        checks: NDArray[Any],
        wraps: BoolArray | bool,
        counts: IntArray,
    ) -> BoolArray:
        """Return whether each message's check is that of its lanes and weight, (n,).

        Args:
            numbers: Numbers of the pads, (n,), or (n, m) if they differ by the possibilities in `counts`.
            lanes: Summed lanes (n, lanes); None: all are 0, or the rounds are scale rounds.
            weights: Summed weights, (n,).
            checks: Received checks, (n,).
            wraps: True if a sum of these lanes may wrap, for all messages or (n,); True for scale rounds.
            counts: Possible numbers of workers whose checks were added, (m,) for all messages or (n, m). One match
                suffices. Not used without a key.
        """
        right, modulus = self._without_pads(lanes, weights, wraps)
        pads: Checks = (np.asarray(checks).astype(np.int64) - right) % modulus
        if not self.prime:
            good: BoolArray = pads == 0
            return good
        every = modulus if isinstance(modulus, int) else modulus[:, None]
        pad = self._pads(numbers if numbers.ndim > 1 else numbers[:, None], every)
        expected = pad * counts % every
        good = (expected == pads[:, None]).any(axis=1)
        return good

    def may_pass(
        self,
        numbers: IntArray,
        lanes: NDArray[np.int32] | None,
        weights: NDArray[Any],
        checks: NDArray[Any],
        counts: IntArray,
    ) -> BoolArray:
        """Return whether each message's check passes if its lanes may wrap, or if they may not, (n,).

        For hosts that do not know which of the two holds, such as a parameter server.

        Args:
            numbers: Numbers of the pads, (n,) or (n, m).
            lanes: Summed lanes (n, lanes); None: all are 0, or the rounds are scale rounds.
            weights: Summed weights, (n,).
            checks: Received checks, (n,).
            counts: Possible numbers of workers whose checks were added, (n, m).
        """
        good = self.passes(numbers, lanes, weights, checks, lanes is None, counts)
        if lanes is not None and self.prime and not good.all():
            bad = ~good
            good[bad] = self.passes(numbers[bad], lanes[bad], weights[bad], checks[bad], True, counts[bad])
        return good

    def _without_pads(
        self, lanes: NDArray[np.int32] | None, weights: NDArray[Any], wraps: BoolArray | bool
    ) -> tuple[Checks, IntArray | int]:
        """Return Σ rᵢ·vᵢ, (n,), up to multiples of its modulus, which is one number for all or (n,)."""
        values = np.asarray(weights)
        if not self.prime or wraps is True:
            return self._modulo_word(lanes, values), _WORD
        checks = self._modulo_prime(lanes, values)
        if isinstance(wraps, bool):
            return checks, self.prime
        if wraps.any():
            checks[wraps] = self._modulo_word(None if lanes is None else lanes[wraps], values[wraps])
        return checks, np.where(wraps, _WORD, self.prime)

    def _pads(self, numbers: IntArray, modulus: IntArray | int) -> Checks:
        if not isinstance(modulus, int):
            return np.where(modulus == _WORD, self._pads(numbers, _WORD), self._pads(numbers, self.prime))
        slope, start = self._word_pad if modulus == _WORD else self._prime_pad
        pads: Checks = (numbers % modulus * slope + start) % modulus  # 2³² divides what int64 wraps by
        return pads

    def _modulo_word(self, lanes: NDArray[np.int32] | None, weights: NDArray[Any]) -> Checks:
        checks = self._wrapping[LANES] * weights.astype(np.uint32)
        if lanes is not None:
            checks = checks + np.einsum("ij,j->i", lanes.view(np.uint32), self._wrapping[: lanes.shape[1]])
        words: Checks = checks.astype(np.int64)
        return words

    def _modulo_prime(self, lanes: NDArray[np.int32] | None, weights: NDArray[Any]) -> Checks:
        checks: Checks = (weights.astype(np.uint64) * self._of_weight % np.uint64(self.prime)).astype(np.int64)
        if lanes is not None:
            sums = lanes.astype(np.float64) @ self._parts[: lanes.shape[1]]
            checks = checks + sums.astype(np.int64) % self.prime @ self._powers  # below 2^(32 + 22 + 2)
        return checks


class _Stream:
    """Pseudo-random numbers that only holders of the key can draw."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._drawn = 0

    def below(self, bound: int, count: int) -> NDArray[np.uint64]:
        """Draw numbers uniform below a bound of at most 2³², up to a bias of 2⁻³²."""
        self._drawn += 1
        words = hashlib.shake_256(b"weir sum check" + self._drawn.to_bytes(4, "big") + self._key).digest(8 * count)
        return np.frombuffer(words, ">u8").astype(np.uint64) % np.uint64(bound)


def _pair(drawn: NDArray[np.uint64]) -> tuple[int, int]:
    first, second = drawn.tolist()
    return first, second


def _is_prime(number: int) -> bool:
    """Return whether a number is prime; it must be 0 or odd, and not one of the witnesses."""
    if not number:
        return False
    odd, twos = number - 1, 0
    while not odd & 1:
        odd, twos = odd >> 1, twos + 1
    return all(
        pow(base, odd, number) == 1 or any(pow(base, odd << shift, number) == number - 1 for shift in range(twos))
        for base in _WITNESSES
    )
