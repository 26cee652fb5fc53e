"""The model of times to the first token follows the answers of engines."""

import random

import pytest

from penstock.core.engine_time.first_token import STEP_TOKENS, FirstTokenModel, PromptWork
from penstock.core.engine_time.prompt_slowdown import MAX_SLOWDOWN, PromptSlowdown
from penstock.core.engine_time.relative_speed import MAX_FACTOR, RelativeSpeed


def true_s(work, factor=1.0):
    """8 ms an iteration, 30,000 tokens/s, and 0.1 ms for each sequence."""
    steps = 1 + work.tokens / STEP_TOKENS
    return factor * (steps * (0.008 + 1e-4 * work.sequences) + work.tokens / 30_000)


def draws(seed, count):
    draw = random.Random(seed)
    for _ in range(count):
        sequences = draw.randrange(40)
        yield (
            PromptWork(draw.choice([30.0, 400.0, 2000.0, 9000.0]), sequences, 1000.0 * sequences),
            draw,
        )


def learned(seed, count, noise=0.1, factor=1.0):
    model = FirstTokenModel()
    for work, draw in draws(seed, count):
        model = model.after_first_token(work, true_s(work, factor) * draw.gauss(1, noise))
    return model


@pytest.mark.parametrize("factor", [0.01, 1.0, 50.0])
def test_few_answers_of_any_engine_are_enough(factor):
    model = learned(3, 40, factor=factor)
    errors = sorted(
        abs(model.predict_s(work) / true_s(work, factor) - 1) for work, _ in draws(4, 100)
    )
    assert errors[50] < 0.1
    assert errors[95] < 0.4


def test_nothing_is_known_before_the_first_answer():
    assert not FirstTokenModel().is_known
    assert FirstTokenModel().after_first_token(PromptWork(100.0, 0, 0.0), 0.0).is_known


def test_one_answer_that_took_very_long_says_little():
    before = learned(5, 60)
    work = PromptWork(2000.0, 8, 8000.0)
    after = before.after_first_token(work, 100 * true_s(work))
    assert after.predict_s(work) == pytest.approx(before.predict_s(work), rel=0.05)


def test_answers_to_work_that_is_all_alike_keep_what_is_known_of_other_work():
    """The coefficients that such work says nothing about stay, however many answers there are."""
    model, alike, draw = learned(6, 60), PromptWork(500.0, 2, 2000.0), random.Random(6)
    for _ in range(20_000):
        model = model.after_first_token(alike, true_s(alike) * draw.gauss(1, 0.1))
    other = PromptWork(2000.0, 30, 30_000.0)
    expected_s = model.predict_s(other)
    assert expected_s == pytest.approx(true_s(other), rel=0.4)
    model = model.after_first_token(other, 5 * true_s(other))
    assert model.predict_s(other) < 3 * expected_s


def test_an_engine_that_is_slower_than_the_others_is_found_out():
    speed = RelativeSpeed()
    assert speed.factor == 1.0
    for _ in range(200):
        speed.note(3.0)
    assert speed.factor == pytest.approx(2.4, abs=0.4)


def test_few_slow_answers_do_not_make_an_engine_slow():
    """A slow engine gets no further request, and cannot show that it is as fast as the others."""
    speed = RelativeSpeed()
    for _ in range(2):
        speed.note(2.0)
    assert speed.factor < 1.25


@pytest.mark.parametrize("ratio", [0.0, 1e-300, 1e300])
def test_a_speed_is_bounded(ratio):
    speed = RelativeSpeed()
    for _ in range(5000):
        speed.note(ratio)
    assert 1 / MAX_FACTOR <= speed.factor <= MAX_FACTOR


def test_prompts_that_wait_for_more_than_tokens_are_late():
    slowdown = PromptSlowdown()
    assert slowdown.factor == 1.0
    for _ in range(20):
        slowdown.note(gap_s=0.5, prompt_s=0.1)
    assert slowdown.factor == pytest.approx(5.0)
    slowdown.reset()
    slowdown.note(gap_s=0.1, prompt_s=0.5)
    assert slowdown.factor == 1.0
    slowdown.note(gap_s=1e9, prompt_s=0.0)
    assert slowdown.factor == MAX_SLOWDOWN
