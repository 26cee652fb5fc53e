"""Reads an engine's model name, maximum length and KV cache size from its API."""

from dataclasses import dataclass

import httpx

from penstock.calibration.probe import ProbeFailed
from penstock.clients.pods.exposition import Samples, label
from penstock_engine.contract.metric_specs import CACHE_CONFIG, MAX_BATCHED_TOKENS, MAX_SEQS


@dataclass(frozen=True, slots=True)
class Facts:
    """An engine's model and KV cache. block_size, kv_tokens: in tokens.

    max_num_seqs, max_num_batched_tokens: limits of a step; None if the engine does not report them.
    """

    model: str
    max_model_len: int
    block_size: int
    kv_tokens: int
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None


async def facts(client: httpx.AsyncClient) -> Facts:
    """Read the facts from /v1/models and /metrics. Raises ProbeFailed."""
    try:
        models = (await client.get("/v1/models")).raise_for_status().json()["data"]
        text = (await client.get("/metrics")).raise_for_status().text
        limits = MAX_SEQS.name, MAX_BATCHED_TOKENS.name
        samples = Samples.read(text, [CACHE_CONFIG.name, *limits])
        ((labels, _),) = samples.series[CACHE_CONFIG.name]
        max_num_seqs, max_num_batched_tokens = (int(samples.sum(name)) or None for name in limits)
        block_size = int(label(labels, "block_size"))
        return Facts(
            model=models[0]["id"],
            max_model_len=int(models[0]["max_model_len"]),
            block_size=block_size,
            kv_tokens=int(label(labels, "num_gpu_blocks")) * block_size,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
        )
    except httpx.HTTPError as error:
        raise ProbeFailed(f"the engine cannot be reached: {error!r}") from error
    except (ValueError, KeyError, IndexError, TypeError, OverflowError) as error:
        raise ProbeFailed(
            f"{client.base_url} does not answer like an engine ({error!r}); give the URL of an "
            "engine's pod, not of a gateway"
        ) from error
