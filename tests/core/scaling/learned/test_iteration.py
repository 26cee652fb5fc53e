"""Iteration times are estimated from the metrics that engines report."""

import random
from dataclasses import replace

import numpy as np
import pytest

from penstock.core.engine_time.iteration import (
    CHANGED_AFTER,
    FORGETTING,
    Fit,
    IterationModel,
    Window,
)
from penstock.core.scaling.histogram import Histogram
from penstock.core.scaling.learned.windows import window_between
from penstock.core.scaling.signals import EngineReading

TRUE = IterationModel(base_s=0.016, prefill_token_s=64e-6, sequence_s=50e-6, kv_token_s=70e-9)
WRONG = IterationModel(base_s=0.025, prefill_token_s=40e-6, sequence_s=80e-6, kv_token_s=40e-9)


def windows(model: IterationModel, count: int, seed: int, noise: float = 0.03) -> list[Window]:
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        prefill, sequences = draw.uniform(0, 400), draw.uniform(2, 60)
        kv = sequences * draw.uniform(1000, 6000)
        time_s = model.time_s(prefill, sequences, kv) * draw.gauss(1, noise)
        made.append(Window(40, prefill, sequences, kv, time_s))
    return made


def fitted(fit: Fit, seen: list[Window]) -> Fit:
    for window in seen:
        fit = fit.updated(window)
    return fit


@pytest.mark.parametrize("seed", range(5))
def test_the_model_comes_near_what_engines_do(seed: int) -> None:
    fit = fitted(Fit.around(WRONG), windows(TRUE, 300, seed))
    for window in windows(TRUE, 50, seed + 100, noise=0):
        said = fit.model.time_s(window.prefill_tokens, window.sequences, window.kv_tokens)
        assert said == pytest.approx(window.time_s, rel=0.05)


def test_an_outlier_is_passed_over() -> None:
    fit = fitted(Fit.around(WRONG), windows(TRUE, 200, 1))
    strange = replace(windows(TRUE, 1, 2)[0], time_s=1.0)
    assert fit.updated(strange).model == fit.model


def test_an_engine_that_has_changed_is_believed_after_a_while() -> None:
    slower = IterationModel(*(2 * term for term in TRUE.terms))
    fit = fitted(Fit.around(WRONG), windows(TRUE, 200, 1))
    fit = fitted(fit, windows(slower, CHANGED_AFTER + 60, 3))
    for window in windows(slower, 20, 4, noise=0):
        said = fit.model.time_s(window.prefill_tokens, window.sequences, window.kv_tokens)
        assert said == pytest.approx(window.time_s, rel=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_windows_that_do_not_agree_change_no_belief(seed: int) -> None:
    """Prompts of several iterations each: half of the windows count their tokens, the others none."""
    fit = fitted(Fit.around(WRONG), windows(TRUE, 200, seed))
    burst = []
    for index in range(4 * CHANGED_AFTER):
        counted = (0.0, 800.0)[index % 2]
        burst.append(Window(7, counted, 4.0, 5000.0, TRUE.time_s(4000.0, 4.0, 5000.0)))
    assert fitted(fit, burst).model == fit.model


def test_what_agrees_is_believed_after_what_does_not() -> None:
    slower = IterationModel(*(2 * term for term in TRUE.terms))
    fit = fitted(Fit.around(WRONG), windows(TRUE, 200, 1))
    strange = [replace(w, time_s=40 * w.time_s) for w in windows(TRUE, CHANGED_AFTER - 1, 2)]
    fit = fitted(fit, [*strange, *windows(slower, 2 * CHANGED_AFTER + 60, 3)])
    for window in windows(slower, 20, 4, noise=0):
        said = fit.model.time_s(window.prefill_tokens, window.sequences, window.kv_tokens)
        assert said == pytest.approx(window.time_s, rel=0.1)


def test_no_term_becomes_negative() -> None:
    flat = [Window(40, p, b, 0.0, 0.02) for p in (0.0, 300.0) for b in (1.0, 60.0)] * 40
    assert min(fitted(Fit.around(TRUE), flat).model.terms) >= 0


@pytest.mark.parametrize("factor", [0.02, 0.2, 0.6, 1.7, 5.0, 50.0])
def test_a_belief_of_another_order_of_magnitude_is_soon_overruled(factor: float) -> None:
    fit = fitted(Fit.around(WRONG.times(factor)), windows(TRUE, 60, 1))
    for window in windows(TRUE, 20, 2, noise=0):
        said = fit.model.time_s(window.prefill_tokens, window.sequences, window.kv_tokens)
        assert said == pytest.approx(window.time_s, rel=0.15)


@pytest.mark.parametrize(
    ("factor", "is_overruled"),
    [(0.45, True), (0.55, False), (1.0, False), (1.9, False), (2.1, True)],
)
def test_the_first_window_overrules_a_prior_that_is_off_by_a_factor_of_two(
    factor: float, is_overruled: bool
) -> None:
    """A prior that is far off is rescaled; one that is about right is only corrected by the window."""
    window = Window(40, 0.0, 1.0, 0.0, factor * TRUE.time_s(0.0, 1.0, 0.0))
    fit = Fit.around(TRUE).updated(window)
    assert fit.windows == 1
    scaled = fit.model.prefill_token_s == pytest.approx(factor * TRUE.prefill_token_s)
    assert scaled == (is_overruled or factor == 1.0)
    # A window that says nothing of prompts changes nothing of theirs, but when all is scaled.
    assert is_overruled or fit.model.prefill_token_s == TRUE.prefill_token_s


def test_the_fit_is_that_of_weighted_least_squares() -> None:
    """Recursive or at once: the minimum of squared relative errors, of which each step fades the older
    ones and the belief that it began with."""
    noise, count = 0.01, 8
    seen = windows(TRUE, count, 5, noise=0.0)
    features = np.array([(1.0, w.prefill_tokens, w.sequences, w.kv_tokens) for w in seen])
    times = np.array([w.time_s for w in seen])
    ages = np.arange(count - 1, -1, -1)
    roots = np.sqrt(FORGETTING**ages / noise) / times
    faded = FORGETTING ** ((count - 1) / 2)
    believed = [faded / (0.5 * term) for term in WRONG.terms]
    rows = np.vstack([np.diag(believed), features * roots[:, None]])
    wanted = np.concatenate([np.array(believed) * WRONG.terms, times * roots])
    expected, *_ = np.linalg.lstsq(rows * np.array(WRONG.terms), wanted)  # in alike numbers
    fit = Fit.around(WRONG)
    for window in seen:
        fit = replace(fit.updated(window), noise=noise)
    assert fit.windows == count
    assert fit.model.terms == pytest.approx(expected * WRONG.terms, rel=1e-6)


def reading(at_s: float, running: int, tokens: int, seconds: float) -> EngineReading:
    """Reading of an engine that has generated `tokens` tokens, with `seconds` as the sum of the gaps
    between them."""
    gaps = Histogram((1.0,), (tokens, 0), seconds)
    return EngineReading(
        at_s=at_s, running=running, waiting=0, kv_usage=0.2, kv_capacity_tokens=100_000,
        prefill_tokens_pending=0, prompt_tokens=tokens, cached_tokens=0, output_tokens=tokens,
        steps=tokens // 10, finished=0, output_tokens_finished=0, preemptions=0,
        ttft_s=Histogram((1.0,), (0, 0), 0.0), itl_s=gaps,
    )  # fmt: skip


def test_the_mean_gap_is_the_time_of_an_iteration_where_nothing_better_is_told() -> None:
    """40 iterations of 10 tokens, 20 ms between the tokens of each; the engine was busy for a second."""
    earlier, later = reading(0, 8, 1000, 20.0), reading(2, 8, 1400, 28.0)
    window = window_between(earlier, later, 20_000.0, 0.0)
    assert window is not None
    assert (window.steps, window.sequences, window.time_s) == (40, 10, pytest.approx(0.02))
    told = window_between(replace(earlier, busy_s=7.0), replace(later, busy_s=8.0), 20_000.0, 0.0)
    assert told == replace(window, time_s=pytest.approx(0.025))
    assert window_between(replace(earlier, busy_s=7.0), later, 20_000.0, 0.0) == window
