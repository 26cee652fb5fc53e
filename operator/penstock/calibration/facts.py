"""Reads an engine's model name, maximum length and KV cache size from its API."""

from dataclasses import dataclass

import httpx

from penstock.calibration.probe import ProbeFailed
from penstock.clients.exposition import Samples, label
from penstock_engine.metric_specs import CACHE_CONFIG


@dataclass(frozen=True, slots=True)
class Facts:
    """An engine's model and KV cache. block_size, kv_tokens: in tokens."""

    model: str
    max_model_len: int
    block_size: int
    kv_tokens: int


async def facts(client: httpx.AsyncClient) -> Facts:
    """Read the facts from /v1/models and /metrics. Raises ProbeFailed."""
    try:
        models = (await client.get("/v1/models")).raise_for_status().json()["data"]
        text = (await client.get("/metrics")).raise_for_status().text
        ((labels, _),) = Samples.read(text, [CACHE_CONFIG.name]).series[CACHE_CONFIG.name]
        block_size = int(label(labels, "block_size"))
        return Facts(
            model=models[0]["id"],
            max_model_len=int(models[0]["max_model_len"]),
            block_size=block_size,
            kv_tokens=int(label(labels, "num_gpu_blocks")) * block_size,
        )
    except httpx.HTTPError as error:
        raise ProbeFailed(f"the engine cannot be reached: {error!r}") from error
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise ProbeFailed(
            f"{client.base_url} does not answer like an engine ({error!r}); give the URL of an "
            "engine's pod, not of a gateway"
        ) from error
