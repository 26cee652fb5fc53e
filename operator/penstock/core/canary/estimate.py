"""Estimate of a regression: its size, its confidence sequence and its e-value.

With information I (the inverse variance of the estimate x), the likelihood ratio of a shift m against
none, exp(I * (m * x - m * m / 2)), is a martingale if there is no shift and a supermartingale if the shift
is negative. So a mixture over m > 0 is an e-process for "no regression" and may be evaluated after every
block (Johari et al. 2022; Ville's inequality). As the variance is estimated too, the likelihoods are
Student's t: with a variance from ten intervals, odds of 50 to 1 under a normal likelihood become 23 to 1.
"""

import math
from dataclasses import dataclass, replace

# Shifts of the mixture, in multiples of the tolerance, and their prior: most of it on one to three.
MULTIPLES = (1.0, 1.4, 2.0, 2.8, 4.0, 6.0, 9.0)
_RAW = [math.exp(-(math.log(multiple / 2) ** 2) / (2 * 0.45**2)) for multiple in MULTIPLES]
PRIOR = tuple(raw / sum(_RAW) for raw in _RAW)
# exp of more than this overflows; the evidence is overwhelming long before.
MAX_LOG = 500.0
# Largest difference of logs that is shown; with e^9 = 8103 times the control the scale ends.
MAX_SHOWN_LOG = 9.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimated difference between canary and control.

    difference: canary minus control, of logarithms. information: 1 / variance of the difference, 0 without
    data. degrees: degrees of freedom of the variance. canary_n, control_n: requests.
    """

    difference: float
    information: float
    degrees: float
    canary_n: int
    control_n: int

    def e_value(self, scale: float, margin: float = 0.0) -> float:
        """E-value against "the difference is at most `margin`". scale: the tolerance, in logs."""
        x = self.difference - margin
        none = self._log_likelihood(x)
        return sum(
            p * math.exp(min(MAX_LOG, self._log_likelihood(x - m * scale) - none))
            for p, m in zip(PRIOR, MULTIPLES, strict=True)
        )

    def _log_likelihood(self, x: float) -> float:
        """Log likelihood (Student's t) of a deviation x, without terms that do not depend on x."""
        nu = self.degrees
        return -(nu + 1) / 2 * math.log1p(self.information * x * x / nu)

    def two_sided_e_value(self, scale: float, margin: float) -> float:
        """E-value against "the absolute difference is at most `margin`"."""
        mirrored = replace(self, difference=-self.difference)
        return (self.e_value(scale, margin) + mirrored.e_value(scale, margin)) / 2

    def radius(self, scale: float, alpha: float) -> float:
        """Radius of a confidence sequence: each bound holds at all times with probability 1 - alpha.

        The sequence is tuned to be narrowest when its radius is about `scale`. One-sided normal mixture of
        Robbins (Howard et al. 2021, eq. 14), with the quantile of Student's t. Infinite without data.
        """
        if self.information <= 0:
            return math.inf
        prior = 1 / (scale * scale)
        both = self.information + prior
        log = math.log(both / (4 * prior * alpha * alpha)) * both / self.information
        nu = self.degrees
        return math.sqrt(nu * math.expm1(min(MAX_LOG, log / (nu + 1))) / self.information)


def relative_change(difference: float) -> float:
    """The relative change that a difference of logs is."""
    return math.expm1(min(difference, MAX_SHOWN_LOG))


NO_ESTIMATE = Estimate(0.0, 0.0, 1.0, 0, 0)
