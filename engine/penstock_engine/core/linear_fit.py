"""Linear regression over recent observations, weighted exponentially by age."""

# Weight of an observation after one more: the last hundred or so count.
DECAY = 0.99


class LinearFit:
    """Fits y = fixed + slope · x by weighted least squares, with fixed and slope at least 0."""

    def __init__(self) -> None:
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    def add(self, x: float, y: float) -> None:
        """Add an observation, and let all earlier ones decay."""
        self._n = self._n * DECAY + 1
        self._x = self._x * DECAY + x
        self._y = self._y * DECAY + y
        self._xx = self._xx * DECAY + x * x
        self._xy = self._xy * DECAY + x * y

    def fit(self) -> tuple[float, float] | None:
        """(fixed, slope); None while all x are the same."""
        spread = self._n * self._xx - self._x * self._x
        if spread <= 1e-6 * self._n * self._xx or self._y <= 0:
            return None
        slope = max(0.0, (self._n * self._xy - self._x * self._y) / spread)
        fixed = (self._y - slope * self._x) / self._n
        if fixed < 0:
            return 0.0, self._xy / self._xx
        return fixed, slope
