"""Finds state that a gateway without requests still holds: counts, gauges, slots, counts of the store."""

from collections import Counter
from collections.abc import Iterator

from redis.asyncio import Redis

from penstock.gateway.app import Gateway
from penstock.gateway.quotas.ledger import read_entries
from penstock.gateway.quotas.store_call import PREFIX


def find_leftovers(gateway: Gateway) -> list[str]:
    """Return the state that a gateway without requests should not have; empty: there is none."""
    return [f"left: {name} {value}" for name, value in _held(gateway) if value]


def _held(gateway: Gateway) -> Iterator[tuple[str, object]]:
    state = gateway.state
    yield "scopes", len(state.cancel_scopes)
    yield "open requests", state.open_requests.total
    yield "waiting requests", state.waiting_requests.total
    yield "tokens at endpoints", dict(state.engines.tokens)
    yield "connections of requests", state.limits.connections.held
    yield "bytes of bodies", state.limits.body_bytes.held
    yield "bytes of answers", state.upstream.held_bytes
    for service in state.snapshots.current.services:
        stats = state.stats.get(service.key)
        yield f"in flight of {service.key}", len(stats.in_flight)
        yield f"queued of {service.key}", len(stats.queued)
        for side in service.weights:
            queue = state.admission_queues.get(service.key, side)
            if queue is not None:
                yield f"grants of {service.key}", len(queue._grants)
                for load in queue._loads.values():
                    yield f"prompts at {load.pod}", load.prefill_tokens
                    yield f"KV cache of {load.pod}", load.kv_tokens
    metrics = state.metrics
    gauges = metrics.in_flight, metrics.waiting, metrics.connections
    for gauge in (*gauges, metrics.held_body_bytes, metrics.held_answer_bytes):
        for family in gauge.collect():
            for sample in family.samples:
                yield f"{sample.name} {sample.labels}", sample.value
    for account in state.quotas.accounts:
        assert account.slots is not None
        yield f"slots of {account.name}", account.slots.num_running


async def store_problems(url: str, *, has_failed: bool) -> list[str]:
    """Return differences between the counts of the store and its ledger, after the gateway has ended.

    has_failed: whether calls have failed. What these were granted stays used, so the counts may then be
    larger, and slots may be left, which count for nobody.
    """
    redis = Redis.from_url(url, decode_responses=True)
    try:
        running = [] if has_failed else await redis.keys(f"{PREFIX}running:*")
        problems = [f"in the store: {each}" for each in running]
        used, entered = await _used(redis), await _entered(redis)
    finally:
        await redis.aclose()
    problems += [
        f"used {used[each]} of {each}, and the ledger has {entered[each]}"
        for each in sorted(used.keys() | entered.keys())
        if used[each] < entered[each] or (used[each] > entered[each] and not has_failed)
    ]
    if not entered:
        problems.append("the ledger is empty")
    return problems


async def _used(redis: "Redis") -> Counter[tuple[str, str]]:
    """The counts of monthly limits, by tenant and resource."""
    used: Counter[tuple[str, str]] = Counter()
    for key in await redis.keys(f"{PREFIX}used:*:Month:*"):
        tenant, _, resource, *_ = key.removeprefix(f"{PREFIX}used:").split(":")
        used[tenant, resource] += int(await redis.get(key))
    return used


async def _entered(redis: "Redis") -> Counter[tuple[str, str]]:
    """Return the amounts in the ledger, by tenant and resource."""
    entered: Counter[tuple[str, str]] = Counter()
    for key in await redis.keys(f"{PREFIX}usage:*"):
        fields = {name: int(amount) for name, amount in (await redis.hgetall(key)).items()}
        for entry, usage in read_entries(int(key.rpartition(":")[2]), fields).items():
            entered[entry.tenant, "Requests"] += usage.requests
            entered[entry.tenant, "Tokens"] += usage.prompt_tokens + usage.output_tokens
    return entered
