"""The largest rate of one replica, by hand."""

from dataclasses import replace

import pytest

from penstock.core.engine_time.iteration import IterationModel
from penstock.core.scaling.learned.capacity import EngineLimits, Mix, capacity
from penstock.core.spec.objectives import Objectives

# 20 ms for any iteration; 0.1 ms a prompt token; nothing for a sequence, 0.1 us a KV token.
MODEL = IterationModel(0.020, 1e-4, 0.0, 1e-7)
# 1,000 tokens in are 0.1 s; 200 out over 1,100 KV tokens are 200 * 0.11 ms = 0.022 s.
MIX = Mix(1000, 1000, 200)
WORK_S = 0.1 + 0.022


@pytest.mark.parametrize(
    ("tpot_s", "kv_tokens", "seqs", "limit", "rate"),
    [
        # Engines take 90 of 100 ms for a step: 1 - 20/90 of the time is left for work.
        (0.100, 1e9, 1e9, "TPOT", 7 / 9 / WORK_S),
        # No objective to speak of: nearly all of the time.
        (10.0, 1e9, 1e9, "engine time", 0.96 / WORK_S),
        # 45,000 of 50,000 tokens hold 40.9 requests, each for 200 * x; x = 0.02 / (1 - 0.122 r).
        (10.0, 50_000, 1e9, "KV cache", 45_000 / (200 * 0.02 * 1100 + 45_000 * WORK_S)),
        # 10 at a time, each for 200 * x.
        (10.0, 1e9, 10, "batch size", 10 / (200 * 0.02 + 10 * WORK_S)),
    ],
)
def test_each_limit(tpot_s: float, kv_tokens: float, seqs: float, limit: str, rate: float) -> None:
    found = capacity(MODEL, MIX, EngineLimits(kv_tokens, seqs), Objectives(3.0, tpot_s))
    assert found.limit == limit
    assert found.rate == pytest.approx(rate)
    assert found.work_s == pytest.approx(WORK_S)


@pytest.mark.parametrize(
    ("objectives", "limit"),
    [(Objectives(ttft_s=3.0), "engine time"), (Objectives(tpot_s=0.1), "TPOT")],
)
def test_one_objective_alone(objectives: Objectives, limit: str) -> None:
    assert capacity(MODEL, MIX, EngineLimits(1e9, 1e9), objectives).limit == limit


def test_tpot_that_only_a_lone_request_keeps_leaves_a_sliver() -> None:
    """An idle engine takes 20.11 ms for a token."""
    found = capacity(MODEL, MIX, EngineLimits(1e9, 1e9), Objectives(3.0, 0.0202))
    assert found.limit == "TPOT"
    assert 0 < found.rate < 0.1 / WORK_S


def test_tpot_that_an_idle_engine_misses_is_no_limit() -> None:
    """More replicas would not keep it, so engine time decides."""
    found = capacity(MODEL, MIX, EngineLimits(1e9, 1e9), Objectives(3.0, 0.010))
    assert (found.limit, found.rate) == ("engine time", pytest.approx(0.96 / WORK_S))
    assert found.time_limit == pytest.approx(0.96)


def test_outputs_that_differ_are_attended_to_for_longer() -> None:
    """Longer outputs attend to more tokens: 1.5 times those halfway through the mean request. The number
    of tokens held in the KV cache is independent of that."""
    assert Mix(1000, 1000, 200).kv_tokens == 1100
    assert Mix(1000, 1000, 200, held=0.5).kv_tokens == 1100
    assert Mix(1000, 1000, 200, held=0.5).held_tokens == 550
    longer = capacity(
        MODEL, replace(MIX, attended=1.5), EngineLimits(1e9, 1e9), Objectives(3.0, 0.1)
    )
    assert longer.work_s == pytest.approx(WORK_S + 200 * 550 * 1e-7)
