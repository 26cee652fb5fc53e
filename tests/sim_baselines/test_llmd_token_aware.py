"""max(ceil(backlog / 1.5 s), ceil(sum of KV / 0.8)), one replica up in three minutes."""

import pytest

from penstock.core.scaling.rule import Bounds
from penstock.sim.baselines.llmd_token_aware import TokenBacklog, llmd_token_aware


@pytest.mark.parametrize(
    ("tokens", "kv", "proposed"),
    [
        (0, (0.5, 0.5), (0, 2)),  # 1.0 / 0.8 = 1.25
        (60_000, (0.5, 0.5), (4, 2)),  # 60,000 / 10,000 = 6 s; 6 / 1.5
        (45_000, (0.9, 0.9), (3, 3)),  # 4.5 / 1.5; 1.8 / 0.8 = 2.25
        (20_000, (0.8, 0.8), (2, 2)),  # 2 / 1.5 = 1.33; exactly 2
    ],
)
def test_both_metrics(gateway, engine, observe_pods, tokens, kv, proposed):
    source = TokenBacklog(10_000.0, 1.5, 0.8)
    seen = observe_pods(
        0.0, [engine(kv_usage=u) for u in kv], gateway=gateway(in_flight_prefill_tokens=tokens)
    )
    series = source.scrape(None, Bounds(1, 8), seen, source.initial())
    assert tuple(m.propose(9, 0.0).replicas for m in source.metrics(series)) == proposed


def test_v_p_is_a_full_chunk_on_an_idle_replica(profile):
    """8,192 tokens in 10 ms + 8,192 x 50 us + one sequence's 1 ms."""
    assert profile.prefill_tokens_per_s == pytest.approx(8192 / (0.01 + 0.4096 + 0.001))


def test_one_up_in_three_minutes(profile, gateway, engine, observe_pods, simulate):
    def load(now, n):
        return observe_pods(
            now, [engine()] * n, gateway=gateway(in_flight_prefill_tokens=10_000_000)
        )

    course = simulate(llmd_token_aware(profile), load, 560)
    rises = [5 * i for i in range(1, len(course)) if course[i] > course[i - 1]]
    assert rises == [10, 190, 370, 550]
    assert course[-1] == 5
