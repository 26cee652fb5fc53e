"""Windows of an engine's work, from the readings of its metrics."""

from penstock.core.engine_time.iteration import Window
from penstock.core.scaling.signals import EngineReading

# Least number of iterations in a window, so that its means are not those of a few of them.
MIN_STEPS = 4


def window_between(
    earlier: EngineReading, later: EngineReading, kv_tokens: float, prompt_tokens: float
) -> Window | None:
    """The window between two readings; None if too little was computed or the engine restarted.

    kv_tokens: in the cache, mean over iterations. prompt_tokens: of the mean request; a decoding
    sequence attends to so many, though it may share blocks with others. If the engine does not report
    its busy time, the mean time between tokens counts as the iteration time. The two are equal if all
    iterations have the same number of sequences.
    """
    steps = later.steps - earlier.steps
    gaps = later.itl_s.increase_over(earlier.itl_s)
    if (
        steps < MIN_STEPS
        or gaps.count < MIN_STEPS
        or gaps.total <= 0
        or later.prompt_tokens < earlier.prompt_tokens
    ):
        return None
    computed = later.prompt_tokens - later.cached_tokens
    computed -= earlier.prompt_tokens - earlier.cached_tokens
    decoding, time_s = gaps.count / steps, gaps.total / gaps.count
    if earlier.busy_s is not None and later.busy_s is not None:
        time_s = (later.busy_s - earlier.busy_s) / steps
    if time_s <= 0:
        return None
    return Window(
        steps=steps,
        prefill_tokens=max(0, computed) / steps,
        sequences=decoding,
        kv_tokens=max(kv_tokens, decoding * prompt_tokens),
        time_s=time_s,
    )
