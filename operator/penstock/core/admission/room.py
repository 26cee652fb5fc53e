"""Room at engines: which of them may take a request now.

A request may go to an engine while its first token is predicted within a part of the TTFT objective. The part
is smaller for requests that yield to others, so that one of these is in time when it comes:

    requests that can be in time     what is left of their own objective, less MARGIN
    late ones                        YIELD_SHARE
    those of a lower class           YIELD_SHARE, while a higher class is active
    of a tenant beyond its share     YIELD_SHARE, while other tenants of its class are active
    batches                          BATCH_SHARE; also less KV cache, and few sequences (`batch_window.py`)

An engine without prompts to compute takes any request that its KV cache has room for.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.core.admission.engine_load import EngineLoad, Waiting

# Share of the objective reserved for the running iteration, which the prediction does not include.
MARGIN = 0.1
# Share of an engine's prefill time within the objective that yielding requests may use. The rest is for
# requests that can still be in time.
YIELD_SHARE = 0.5
BATCH_SHARE = 0.25
# Fraction of the KV cache up to which batches are sent. A batch's sequences stay for minutes, and what is
# above has to be enough for the requests that come meanwhile.
BATCH_KV_LIMIT = 0.5


@dataclass(frozen=True, slots=True)
class Fit:
    """Engines that may take a request. is_beyond_share: others would, if its tenant had less there."""

    engines: list[EngineLoad]
    is_beyond_share: bool = False


@dataclass(frozen=True, slots=True)
class Bounds:
    """The part of an engine that a request may use.

    ttft_s: predicted time to its first token. tenant_ttft_s: time of its tenant's prompts alone, above which
    yield_s holds instead; None: the tenant has the engines alone.
    """

    ttft_s: float
    yield_s: float
    tenant_ttft_s: float | None = None


def find_fit(engines: Iterable[EngineLoad], waiting: Waiting, bounds: Bounds, now: float) -> Fit:
    """Find the engines that may take a request."""
    fitting, is_beyond_share = [], False
    for engine in engines:
        if not engine.has_kv_for(waiting.kv_tokens) or not engine.is_sure():
            continue
        if waiting.is_batch and not _has_room_for_batch(engine, waiting):
            continue
        if engine.prefill_tokens:
            ttft_s = engine.ttft_s(waiting.uncached_tokens(engine.pod), now)
            if ttft_s > bounds.ttft_s:
                continue
            if ttft_s > bounds.yield_s and _is_beyond_share(engine, waiting, bounds.tenant_ttft_s):
                is_beyond_share = True
                continue
        fitting.append(engine)
    return Fit(fitting, is_beyond_share)


def _is_beyond_share(engine: EngineLoad, waiting: Waiting, tenant_ttft_s: float | None) -> bool:
    """Whether the tenant would have more than its share of an engine. One prompt it may always have."""
    own = engine.prefill_by_tenant.get(waiting.requester.tenant, 0.0)
    if tenant_ttft_s is None or not own:
        return False
    if not engine.kind.model.is_known:
        return False
    tokens = own + waiting.uncached_tokens(engine.pod)
    return tokens * engine.token_s > tenant_ttft_s


def _has_room_for_batch(engine: EngineLoad, waiting: Waiting) -> bool:
    has_kv = engine.kv_tokens + waiting.kv_tokens <= BATCH_KV_LIMIT * engine.kv_capacity_tokens
    return engine.num_batch < engine.batch_window.num_requests and (has_kv or not engine.kv_tokens)
