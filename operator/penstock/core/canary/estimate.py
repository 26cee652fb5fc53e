"""How large a regression is, how well that is known, and how strongly it speaks against equality.

With information I (one over the variance of the estimate), the likelihood ratio of a shift of m
against none, exp(I * (m * x - m * m / 2)), is a martingale while there is no shift and a
supermartingale while the shift is negative, so any mixture of them over m > 0 is an e-process for
"no regression": it may be looked at after every block (Johari et al. 2022; Ville's inequality).
"""

import math
from dataclasses import dataclass

# Shifts that are looked for, as multiples of the tolerance: mostly one to three times.
MULTIPLES = (1.0, 1.4, 2.0, 2.8, 4.0, 6.0, 9.0)
_RAW = [math.exp(-(math.log(multiple / 2) ** 2) / (2 * 0.45**2)) for multiple in MULTIPLES]
PRIOR = tuple(raw / sum(_RAW) for raw in _RAW)
# exp of more than this overflows; the evidence is overwhelming long before.
MAX_LOG = 500.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """difference: canary less control, in logs. information: 1 / variance of it, 0 of no data."""

    difference: float
    information: float
    canary_n: int
    control_n: int

    def e_value(self, scale: float, margin: float = 0.0) -> float:
        """Against "the difference is at most `margin`". scale: the tolerance, in logs."""
        x = self.difference - margin
        return sum(
            p * math.exp(min(MAX_LOG, self.information * m * scale * (x - m * scale / 2)))
            for p, m in zip(PRIOR, MULTIPLES, strict=True)
        )

    def two_sided_e_value(self, scale: float, margin: float) -> float:
        """Against "the difference is within `margin` on either side"."""
        mirrored = Estimate(-self.difference, self.information, self.canary_n, self.control_n)
        return (self.e_value(scale, margin) + mirrored.e_value(scale, margin)) / 2

    def radius(self, scale: float, alpha: float) -> float:
        """Of a confidence sequence: each of its two bounds holds at all times but for a chance
        alpha. It is narrowest, for the data there is, when it is about as wide as `scale`.

        The normal mixture of Robbins (Howard et al. 2021, eq. 14), one side.
        """
        if self.information <= 0:
            return math.inf
        prior = 1 / (scale * scale)
        both = self.information + prior
        return math.sqrt(both * math.log(both / (4 * prior * alpha * alpha))) / self.information


NO_ESTIMATE = Estimate(0.0, 0.0, 0, 0)
