"""How large a regression is, how well that is known, and how strongly it speaks against equality.

With information I (one over the variance of the estimate), the likelihood ratio of a shift of m
against none, exp(I * (m * x - m * m / 2)), is a martingale while there is no shift and a
supermartingale while the shift is negative, so any mixture of them over m > 0 is an e-process for
"no regression": it may be looked at after every block (Johari et al. 2022; Ville's inequality).
The variance is itself an estimate, so likelihoods are those of Student's t: with a variance from ten
intervals, what looks like 50 to 1 is worth 23.
"""

import math
from dataclasses import dataclass, replace

# Shifts that are looked for, as multiples of the tolerance: mostly one to three times.
MULTIPLES = (1.0, 1.4, 2.0, 2.8, 4.0, 6.0, 9.0)
_RAW = [math.exp(-(math.log(multiple / 2) ** 2) / (2 * 0.45**2)) for multiple in MULTIPLES]
PRIOR = tuple(raw / sum(_RAW) for raw in _RAW)
# exp of more than this overflows; the evidence is overwhelming long before.
MAX_LOG = 500.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """difference: canary less control, in logs. information: 1 / variance of it, 0 of no data.
    degrees: of freedom, that the variance is known from."""

    difference: float
    information: float
    degrees: float
    canary_n: int
    control_n: int

    def e_value(self, scale: float, margin: float = 0.0) -> float:
        """Against "the difference is at most `margin`". scale: the tolerance, in logs."""
        x = self.difference - margin
        none = self._log_likelihood(x)
        return sum(
            p * math.exp(min(MAX_LOG, self._log_likelihood(x - m * scale) - none))
            for p, m in zip(PRIOR, MULTIPLES, strict=True)
        )

    def _log_likelihood(self, x: float) -> float:
        """Of being off by x, but for what does not depend on it: Student's t."""
        nu = self.degrees
        return -(nu + 1) / 2 * math.log1p(self.information * x * x / nu)

    def two_sided_e_value(self, scale: float, margin: float) -> float:
        """Against "the difference is within `margin` on either side"."""
        mirrored = replace(self, difference=-self.difference)
        return (self.e_value(scale, margin) + mirrored.e_value(scale, margin)) / 2

    def radius(self, scale: float, alpha: float) -> float:
        """Of a confidence sequence: each of its two bounds holds at all times but for a chance
        alpha. It is narrowest, for the data there is, when it is about as wide as `scale`.

        The normal mixture of Robbins (Howard et al. 2021, eq. 14), one side; as far out as Student's
        t is as unlikely.
        """
        if self.information <= 0:
            return math.inf
        prior = 1 / (scale * scale)
        both = self.information + prior
        log = math.log(both / (4 * prior * alpha * alpha)) * both / self.information
        nu = self.degrees
        return math.sqrt(nu * math.expm1(min(MAX_LOG, log / (nu + 1))) / self.information)


NO_ESTIMATE = Estimate(0.0, 0.0, 1.0, 0, 0)
