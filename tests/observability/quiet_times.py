"""Series of metrics of times in which no alert may fire, in promtool's notation."""

import random
from dataclasses import dataclass
from datetime import timedelta

from tests.observability.alert_scenarios import (
    DEADLINE,
    POD,
    REQUESTS,
    SERVICE,
    level,
    minutes,
    misses,
    rate,
)


@dataclass(frozen=True)
class QuietTime:
    """A time in which no alert may fire."""

    name: str
    series: dict[str, str]
    length: timedelta


def noisy_gauge(mean: int, spread: int, count: int) -> str:
    """A gauge that varies around a mean, for so many steps."""
    values = random.Random(1)
    return " ".join(str(values.randint(mean - spread, mean + spread)) for _ in range(count))


def _healthy(count: int) -> dict[str, str]:
    return {
        f"penstock_operator_leading{{{POD}}}": level((1, count)),
        REQUESTS: rate((60, count)),
        f'penstock_gateway_responses_total{{{SERVICE},revision="b1",code="200"}}': rate((60, count)),
        f'penstock_gateway_responses_total{{{SERVICE},revision="b1",code="503"}}': rate((0.1, count)),
        f'penstock_gateway_rejections_total{{{SERVICE},reason="invalid_request"}}': rate((20, count)),
        **misses("ttft", rate((60, count)), rate((0.3, count))),
        f"penstock_gateway_requests_waiting{{{SERVICE}}}": " ".join(["0 3 1 0 2"] * (count // 5)),
        f'penstock_gateway_endpoints{{{SERVICE},state="ejected"}}': level((0, count)),
        f"penstock_gateway_snapshot_age_seconds{{{POD}}}": level((20, count)),
        f"penstock_operator_scaling_blind{{{SERVICE}}}": level((0, count)),
        f"penstock_operator_scaling_at_maximum{{{SERVICE}}}": level((0, count)),
        f'vllm:kv_cache_usage_perc{{{SERVICE},pod="chat-1"}}': level((0.7, count)),
        f'vllm:num_preemptions_total{{{SERVICE},pod="chat-1"}}': rate((0, count)),
        f'penstock_operator_credential_expiry_timestamp_seconds{{{POD},credential="token"}}':
            "3600+60x" + str(count),
    }  # fmt: skip


QUIET = [
    QuietTime("a quiet hour", _healthy(60), minutes(60)),
    QuietTime(
        "a canary of an hour",
        _healthy(120)
        | {
            DEADLINE: f"_x10 {level((1200, 10), (4800, 60))} stale",
            f'penstock_operator_rollout_phase{{{SERVICE},phase="Starting"}}': "_x9 1x10 stale",
            f'penstock_operator_rollout_phase{{{SERVICE},phase="Judging"}}': "_x19 1x60 stale",
            f'penstock_operator_rollout_phase{{{SERVICE},phase="Stable"}}': "1x9 _x70 1x40",
            f"penstock_operator_longest_unready_seconds{{{SERVICE}}}": "0x10 0+60x9 0x100",
            f'penstock_gateway_responses_total{{{SERVICE},revision="c2",code="200"}}': rate((6, 120)),
        },
        minutes(120),
    ),
    QuietTime(
        "a canary of ten hours that may take twelve",
        {
            DEADLINE: level((12 * 3600, 600)),
            f'penstock_operator_rollout_phase{{{SERVICE},phase="Judging"}}': level((1, 600)),
        },
        minutes(600),
    ),
    QuietTime(
        "a queue that is neither empty nor grows",
        {f"penstock_gateway_requests_waiting{{{SERVICE}}}": noisy_gauge(40, 9, 360)},
        minutes(360),
    ),
    QuietTime(
        "each of two gateways ejects an engine once",
        {
            f'penstock_gateway_ejections_total{{{SERVICE},pod="{pod}"}}': level((3, 30), (4, 60))
            for pod in ("gateway-1", "gateway-2")
        },
        minutes(90),
    ),
    QuietTime(
        "two failures among few requests",
        {
            REQUESTS: rate((0.2, 60)),
            f'penstock_gateway_responses_total{{{SERVICE},revision="b1",code="502"}}':
                rate((0, 20), (1, 2), (0, 38)),
            f'penstock_gateway_rejections_total{{{SERVICE},reason="timeout"}}':
                rate((0, 20), (1, 2), (0, 38)),
        },
        minutes(60),
    ),
    QuietTime(
        "one slow request in an hour without others",
        misses("ttft", rate((0, 10), (1, 1), (0, 109)), rate((0, 10), (1, 1), (0, 109))),
        minutes(120),
    ),
]  # fmt: skip
