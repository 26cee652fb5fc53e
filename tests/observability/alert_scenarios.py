"""Series of metrics that make each alert fire and clear, in promtool's notation."""

from dataclasses import dataclass
from datetime import timedelta

SERVICE = 'service="team-a/chat"'


def minutes(count: int) -> timedelta:
    return timedelta(minutes=count)


@dataclass(frozen=True)
class Scenario:
    """Series of an incident, and the alert on it.

    fires_at: time at which the alert must fire. clears_at: time at which it must not any more. window: label
    of the alert, if it has one. step: time between two values.
    """

    alert: str
    severity: str
    series: dict[str, str]
    fires_at: timedelta
    clears_at: timedelta
    window: str = ""
    step: timedelta = timedelta(minutes=1)


def rate(*spans: tuple[float, int]) -> str:
    """Values of a counter. spans: growth in each step, and number of steps."""
    values = [0.0]
    for per_step, count in spans:
        values += [values[-1] + per_step * each for each in range(1, count + 1)]
    return " ".join(f"{value:g}" for value in values)


def level(*spans: tuple[float, int]) -> str:
    """Values of a gauge. spans: value, and number of steps."""
    return " ".join(f"{value:g}x{count - 1}" for value, count in spans)


def misses(objective: str, requests: str, missed: str, target: float = 0.99) -> dict[str, str]:
    """Requests and misses of one objective, and the attainment that the service asks for."""
    labels = f'{{{SERVICE},revision="b1",objective="{objective}"}}'
    return {
        f"penstock_gateway_objective_requests_total{labels}": requests,
        f"penstock_gateway_objective_misses_total{labels}": missed,
        f"penstock_operator_objective_target_ratio{{{SERVICE}}}": level((target, 5000)),
    }


def burn_rate_scenarios(alert: str, objective: str, target: float = 0.99) -> list[Scenario]:
    """An incident for each pair of windows: a burn rate a little above the one that fires the alert."""
    budget = 1 - target

    def incident(
        window: str, severity: str, factor: float, steps: int, clears: int, step_min: int
    ) -> Scenario:
        missed = 60 * step_min * min(1.0, factor * budget)
        every, lasts = rate((60 * step_min, 2 * steps)), rate((missed, steps), (0, steps))
        return Scenario(
            alert, severity, misses(objective, every, lasts, target),
            fires_at=minutes(steps * step_min), clears_at=minutes((steps + clears) * step_min),
            window=window, step=minutes(step_min),
        )  # fmt: skip

    return [
        incident("1h", "critical", 20, steps=70, clears=10, step_min=1),
        incident("6h", "critical", 8, steps=100, clears=10, step_min=5),
        incident("1d", "warning", 4, steps=110, clears=14, step_min=15),
        incident("3d", "warning", 1.5, steps=160, clears=20, step_min=30),
    ]


REQUESTS = f"penstock_gateway_requests_total{{{SERVICE}}}"
READY = f'penstock_operator_ready_replicas{{{SERVICE},revision="b1",variant=""}}'
POD = 'pod="penstock-0"'
DEADLINE = f"penstock_operator_rollout_deadline_timestamp_seconds{{{SERVICE}}}"

INCIDENTS = [
    *burn_rate_scenarios("PenstockTTFTBurnRate", "ttft"),
    *burn_rate_scenarios("PenstockTPOTBurnRate", "tpot"),
    *burn_rate_scenarios("PenstockTTFTBurnRate", "ttft", target=0.8),
    Scenario(
        "PenstockQueueGrowing", "warning",
        {f"penstock_gateway_requests_waiting{{{SERVICE}}}": "0x10 1+2x40 0x30"},
        fires_at=minutes(40), clears_at=minutes(55),
    ),
    Scenario(
        "PenstockRequestsRejected", "critical",
        {
            REQUESTS: rate((60, 90)),
            f'penstock_gateway_rejections_total{{{SERVICE},reason="queue_full"}}':
                rate((0, 20), (6, 30), (0, 40)),
        },
        fires_at=minutes(45), clears_at=minutes(60),
    ),
    *(
        Scenario(
            "PenstockRequestsRejected", "critical",  # before the gateways know the service
            {
                'penstock_gateway_responses_total{service="",revision="",code="503"}': rate((60, 90)),
                f'penstock_gateway_rejections_total{{service="",reason="{reason}"}}':
                    rate((0, 20), (6, 30), (0, 40)),
            },
            fires_at=minutes(45), clears_at=minutes(60),
        )
        for reason in ("connections", "memory")
    ),
    Scenario(
        "PenstockErrorRate", "critical",
        {
            REQUESTS: rate((60, 90)),
            f'penstock_gateway_responses_total{{{SERVICE},revision="b1",code="502"}}':
                rate((0, 20), (6, 30), (0, 40)),
        },
        fires_at=minutes(45), clears_at=minutes(60),
    ),
    Scenario(
        "PenstockEndpointEjected", "warning",
        {f'penstock_gateway_endpoints{{{SERVICE},state="ejected"}}': level((0, 10), (1, 10), (0, 20))},
        fires_at=minutes(15), clears_at=minutes(25),
    ),
    Scenario(
        "PenstockEndpointEjected", "warning",  # again and again, never for two minutes
        {f"penstock_gateway_ejections_total{{{SERVICE}}}": rate((0, 10), (1, 10), (0, 40))},
        fires_at=minutes(20), clears_at=minutes(40),
    ),
    Scenario(
        "PenstockScalerBlind", "warning",
        {
            READY: level((1, 50)),
            f"penstock_operator_scaling_blind{{{SERVICE}}}": level((0, 5), (1, 20), (0, 20)),
        },
        fires_at=minutes(15), clears_at=minutes(30),
    ),
    Scenario(
        "PenstockScalerBlind", "warning",
        {
            READY: level((1, 50)),
            f"penstock_operator_unreadable_engines{{{SERVICE}}}": level((0, 5), (2, 20), (0, 20)),
        },
        fires_at=minutes(15), clears_at=minutes(30),
    ),
    Scenario(
        "PenstockScalerAtMaximum", "warning",
        {f"penstock_operator_scaling_at_maximum{{{SERVICE}}}": level((0, 5), (1, 30), (0, 20))},
        fires_at=minutes(30), clears_at=minutes(40),
    ),
    Scenario(
        "PenstockSlowStart", "warning",
        {f"penstock_operator_longest_unready_seconds{{{SERVICE}}}": "0+60x30 0x20"},
        fires_at=minutes(20), clears_at=minutes(35),
    ),
    Scenario(  # a canary of at most an hour, whose next phase is in time
        "PenstockRolloutStuck", "warning",
        {
            DEADLINE: level((4200, 200), (12600, 60)),
            f'penstock_operator_rollout_phase{{{SERVICE},phase="Judging"}}': level((1, 200)) + " stale",
            f'penstock_operator_rollout_phase{{{SERVICE},phase="Growing"}}': "_x200 1x60",
        },
        fires_at=minutes(140), clears_at=minutes(201),
    ),
    Scenario(  # until a person pauses the canary
        "PenstockRolloutStuck", "warning",
        {
            DEADLINE: level((4200, 200)) + " stale",
            f'penstock_operator_rollout_phase{{{SERVICE},phase="Judging"}}': level((1, 200)) + " stale",
            f'penstock_operator_rollout_phase{{{SERVICE},phase="Paused"}}': "_x200 1x60",
        },
        fires_at=minutes(140), clears_at=minutes(201),
    ),
    Scenario(  # of an adapter's version, until a person promotes it
        "PenstockRolloutStuck", "warning",
        {
            f'penstock_operator_adapter_rollout_deadline_timestamp_seconds{{{SERVICE},adapter="sql"}}':
                level((4200, 200)) + " stale",
            f'penstock_operator_adapter_rollout_phase{{{SERVICE},adapter="sql",phase="Judging"}}':
                level((1, 200)) + " stale",
        },
        fires_at=minutes(140), clears_at=minutes(207),
    ),
    Scenario(
        "PenstockServiceStalled", "warning",
        {
            f'penstock_operator_condition{{{SERVICE},type="Stalled",status="True"}}':
                "_x5 1x19 stale",
            f'penstock_operator_condition{{{SERVICE},type="Stalled",status="False"}}':
                "1x4 stale _x19 1x20",
        },
        fires_at=minutes(15), clears_at=minutes(26),
    ),
    Scenario(
        "PenstockKVCachePressure", "warning",
        {
            f'vllm:kv_cache_usage_perc{{{SERVICE},pod="chat-1"}}': level((0.5, 5), (0.99, 30), (0.5, 20)),
            f'vllm:num_preemptions_total{{{SERVICE},pod="chat-1"}}': rate((0, 5), (3, 30), (0, 20)),
        },
        fires_at=minutes(25), clears_at=minutes(40),
    ),
    Scenario(
        "PenstockAdapterThrash", "warning",
        {
            f'penstock:lora_resident{{{SERVICE},pod="chat-1",adapter="sql"}}':
                "0x5 " + "1 0 " * 15 + "0x40",
        },
        fires_at=minutes(33), clears_at=minutes(60),
    ),
    Scenario(
        "PenstockAdapterLoadFails", "warning",
        {
            f'penstock_gateway_adapter_load_failures_total{{{SERVICE},adapter="sql"}}':
                "0x5 0+1x10 10x30",
        },
        fires_at=minutes(14), clears_at=minutes(35),
    ),
    Scenario(
        "PenstockNoLeader", "critical",
        {f"penstock_operator_leading{{{POD}}}": level((1, 5), (0, 10), (1, 10))},
        fires_at=minutes(10), clears_at=minutes(17),
    ),
    Scenario(  # of two installations, all operators of one vanish
        "PenstockNoLeader", "critical",
        {
            f'penstock_operator_leading{{{POD},namespace="pen-a"}}': level((1, 60)),
            f'penstock_operator_leading{{{POD},namespace="pen-b"}}': "1x4 stale _x9 1x30",
        },
        fires_at=minutes(10), clears_at=minutes(17),
    ),
    Scenario(  # Prometheus has never read an operator
        "PenstockNoLeader", "critical",
        {f"penstock_operator_leading{{{POD}}}": "_x10 1x30"},
        fires_at=minutes(8), clears_at=minutes(12),
    ),
    Scenario(
        "PenstockReconcileErrors", "warning",
        {f'penstock_operator_reconciles_total{{{POD},outcome="error"}}': rate((0, 5), (1, 30), (0, 30))},
        fires_at=minutes(30), clears_at=minutes(50),
    ),
    Scenario(
        "PenstockGatewayBehind", "warning",
        {f"penstock_gateway_snapshot_age_seconds{{{POD}}}": "1x10 60+60x10 1x20"},
        fires_at=minutes(18), clears_at=minutes(25),
    ),
    Scenario(
        "PenstockCredentialExpires", "critical",
        {
            'penstock_gateway_credential_expiry_timestamp_seconds{pod="g",credential="ca"}':
                level((606000, 60), (6000000, 60)),
        },
        fires_at=minutes(40), clears_at=minutes(62),
    ),
    Scenario(
        "PenstockCredentialExpires", "critical",
        {
            'penstock_operator_credential_expiry_timestamp_seconds{pod="o",credential="token"}':
                level((3600, 64), (36000, 60)),
        },
        fires_at=minutes(62), clears_at=minutes(66),
    ),
    Scenario(
        "PenstockGatewayCertificateExpires", "critical",
        {
            'penstock_gateway_tls_certificate_expiry_timestamp_seconds{pod="g"}':
                level((88200, 60), (880000, 60)),
            'penstock_gateway_tls_certificate_expiry_timestamp_seconds{pod="plain"}': "0x120",
        },
        fires_at=minutes(36), clears_at=minutes(62),
    ),
    Scenario(
        "PenstockCredentialsRefused", "warning",
        {
            'penstock_gateway_rejections_total{service="",reason="credentials_invalid"}':
                rate((0, 5), (180, 30), (0, 30)),
        },
        fires_at=minutes(30), clears_at=minutes(55),
    ),
    Scenario(  # one gateway does not reach it, and another one was late once
        "PenstockQuotaStoreDown", "warning",
        {
            'penstock_gateway_quota_store_failures_total{pod="a"}': rate((0, 10), (55, 30), (0, 30)),
            'penstock_gateway_quota_store_failures_total{pod="b"}': rate((0, 10), (4, 1), (0, 59)),
        },
        fires_at=minutes(16), clears_at=minutes(48),
    ),
    Scenario(  # the server runs, and no line gets done until the gateway takes them again
        "PenstockBatchStuck", "warning",
        {
            'penstock_batch_oldest_age_seconds{namespace="p"}': "0+60x150",
            'penstock_batch_lines_total{namespace="p",outcome="completed"}':
                rate((0, 100), (5, 50)),
            'penstock_batch_lines_total{namespace="p",outcome="repeated"}': rate((5, 150)),
        },
        fires_at=minutes(80), clears_at=minutes(110),
    ),
    Scenario(
        "PenstockBatchLate", "warning",
        {
            'penstock_batch_oldest_age_seconds{namespace="p"}': "61200+60x90 0x30",
            'penstock_batch_lines_total{namespace="p",outcome="completed"}': rate((5, 120)),
        },
        fires_at=minutes(80), clears_at=minutes(95),
    ),
]  # fmt: skip
