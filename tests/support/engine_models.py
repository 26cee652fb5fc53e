"""Models of engines that compute prompts at a given rate."""

from penstock.core.engine_time.first_token import FirstTokenModel
from penstock.core.engine_time.iteration import Fit, IterationModel

NO_DOUBT = tuple(4 * (0.0,) for _ in range(4))


def model_of(tokens_per_s: float) -> FirstTokenModel:
    """A model that knows the rate of an engine for sure; its iterations take no time by themselves."""
    return FirstTokenModel(
        Fit(IterationModel(0.0, 1 / tokens_per_s, 0.0, 0.0), NO_DOUBT, windows=50)
    )
