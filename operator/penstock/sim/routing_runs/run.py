"""Runs one routing rule on one scenario, and sums it up."""

from dataclasses import dataclass

from penstock.sim.report import quantile
from penstock.sim.request import Request
from penstock.sim.routing.registry import make_picker
from penstock.sim.routing_runs.pool import Pool
from penstock.sim.routing_runs.recovery import Recovery, recovery
from penstock.sim.routing_runs.reuse import reusable_tokens
from penstock.sim.routing_runs.scenario import RoutingScenario
from penstock.sim.run import rare_collections

# Time after the last arrival, in seconds, until which answers count.
DRAIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Summary:
    """Results of the requests after the warm-up.

    Those without a first token DRAIN_S after the last arrival, and those that failed, count with their wait
    until then.
    """

    ttft_p50_s: float
    ttft_p90_s: float
    ttft_p99_s: float
    ttft_mean_s: float
    tpot_p90_s: float
    tokens_per_s: float  # of answers that ended while load arrived
    hit_rate: float  # cached tokens of all prompt tokens
    reusable_share: float  # the hit rate of one cache without end
    imbalance: float  # requests at the fullest engine over the mean, over time
    requests: int
    lost: int  # shed, failed or without an end
    # Quantiles of |predicted / measured - 1| of the time to the first token; None: nothing was predicted
    error_p50: float | None
    error_p95: float | None
    recoveries: tuple[Recovery | None, ...]  # of each event


def run(scenario: RoutingScenario, rule: str, seed: int) -> Summary:
    """Run one rule with one seed. Raises ValueError for an unknown rule."""
    pool = Pool(scenario, make_picker(rule), seed)
    with rare_collections():
        pool.run(DRAIN_S)
    return summarize(pool)


def summarize(pool: Pool) -> Summary:
    """Summary of a finished run."""
    scenario = pool.scenario
    warm_up_s, duration_s = scenario.warm_up_s, scenario.duration_s
    ordered = sorted(pool.requests, key=lambda request: request.arrival_s)
    reusable = reusable_by_id(ordered, pool.block_tokens)
    counted = [request for request in ordered if request.arrival_s >= warm_up_s]
    begun = [request for request in counted if request.first_token_s is not None]
    end_s = duration_s + DRAIN_S
    ttft_s = sorted(
        end_s - r.arrival_s if r.ttft_s is None or r.outcome == "failed" else r.ttft_s
        for r in counted
    )
    tpot_s = sorted(r.tpot_s for r in counted if r.outcome == "ended" and r.tpot_s is not None)
    tokens = sum(
        r.output_tokens
        for r in ordered
        if r.outcome == "ended" and r.end_s is not None and warm_up_s <= r.end_s < duration_s
    )
    prompt_tokens = sum(r.prompt_tokens for r in begun) or 1
    errors = prediction_errors(begun)
    return Summary(
        ttft_p50_s=quantile(ttft_s, 0.5),
        ttft_p90_s=quantile(ttft_s, 0.9),
        ttft_p99_s=quantile(ttft_s, 0.99),
        ttft_mean_s=sum(ttft_s) / max(1, len(ttft_s)),
        tpot_p90_s=quantile(tpot_s, 0.9),
        tokens_per_s=tokens / (duration_s - warm_up_s),
        hit_rate=sum(r.cached_tokens for r in begun) / prompt_tokens,
        reusable_share=sum(reusable[r.request_id] for r in begun) / prompt_tokens,
        imbalance=sum(pool.imbalance) / max(1, len(pool.imbalance)),
        requests=len(counted),
        lost=sum(r.outcome != "ended" for r in counted),
        error_p50=quantile(errors, 0.5) if errors else None,
        error_p95=quantile(errors, 0.95) if errors else None,
        recoveries=tuple(recovery(ordered, reusable, at_s, pod) for at_s, _, pod in pool.effects),
    )


def reusable_by_id(requests: list[Request], block_tokens: int) -> dict[str, int]:
    """Tokens that could be hits, by request id; 0 where nothing is shared."""
    if not block_tokens:
        return {request.request_id: 0 for request in requests}
    tokens = reusable_tokens(requests, block_tokens)
    return {request.request_id: each for request, each in zip(requests, tokens, strict=True)}


def prediction_errors(requests: list[Request]) -> list[float]:
    """|predicted / measured - 1| of the time from sending to the first token, ascending."""
    errors = []
    for request in requests:
        if request.predicted_s is not None and request.first_token_s is not None:
            measured_s = request.first_token_s - request.sent_s
            errors.append(abs(request.predicted_s / measured_s - 1))
    return sorted(errors)
