"""Kalman filter of a local linear trend: Dynamo's `kalman` predictor with its published noise."""

from dataclasses import dataclass

Q_LEVEL, Q_TREND, R = 1.0, 0.1, 10.0
MIN_POINTS = 5


@dataclass(frozen=True, slots=True)
class Trend:
    """Estimated level and slope per step, with their covariance (p_level, p_both, p_slope)."""

    level: float
    slope: float = 0.0
    p_level: float = 1000.0
    p_both: float = 0.0
    p_slope: float = 1000.0
    last: float | None = None
    points: int = 1

    @property
    def next(self) -> float:
        """Forecast one step ahead; the last value while there are fewer than MIN_POINTS."""
        if self.points < MIN_POINTS:
            return self.level if self.last is None else self.last
        return max(0.0, self.level + self.slope)

    def then(self, value: float) -> "Trend":
        """Advance one step and correct by the observed value."""
        level = self.level + self.slope
        p_level = self.p_level + 2 * self.p_both + self.p_slope + Q_LEVEL
        p_both = self.p_both + self.p_slope
        p_slope = self.p_slope + Q_TREND
        gain_level, gain_slope = p_level / (p_level + R), p_both / (p_level + R)
        error = value - level
        return Trend(
            level + gain_level * error,
            self.slope + gain_slope * error,
            (1 - gain_level) * p_level,
            (1 - gain_level) * p_both,
            p_slope - gain_slope * p_both,
            value,
            self.points + 1,
        )
