"""Prefix-cache hit rate of the engines between two scrapes."""

from typing import TypeAlias

from penstock.core.scaling.signals import Observation
from penstock.sim.baselines.load import readings_by_pod

Prefixes: TypeAlias = dict[str, tuple[int, int]]
"""Prompt and cached tokens by pod."""


def prefixes(seen: Observation) -> Prefixes:
    """Prompt and cached tokens of each ready pod."""
    return {n: (r.prompt_tokens, r.cached_tokens) for n, r in readings_by_pod(seen).items()}


def hit_rate(before: Prefixes | None, now: Prefixes) -> float:
    """Share of cached prompt tokens; 0 without prompts. A new pod counts from its start."""
    past = before or {}
    prompts = sum(p - past.get(name, (0, 0))[0] for name, (p, _) in now.items())
    cached = sum(c - past.get(name, (0, 0))[1] for name, (_, c) in now.items())
    return min(1.0, max(0.0, cached / prompts)) if prompts > 0 else 0.0
