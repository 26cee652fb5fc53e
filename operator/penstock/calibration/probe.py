"""One request of a sweep, and when each of its tokens came."""

import json
import random
from bisect import bisect_right
from dataclasses import dataclass

import httpx

from penstock.clients.clock import monotonic

# Ids that every vocabulary has, above those that are special in most.
FIRST_TOKEN_ID, LAST_TOKEN_ID = 300, 900


class ProbeFailed(Exception):
    """The engine refused a request, or broke it off."""


@dataclass(frozen=True, slots=True)
class Answer:
    """sent_s, token_s: when it was sent and each token came, on the monotonic clock."""

    prompt_tokens: int
    sent_s: float
    token_s: tuple[float, ...]

    @property
    def ttft_s(self) -> float:
        return self.token_s[0] - self.sent_s

    def tokens_until(self, when_s: float) -> int:
        return bisect_right(self.token_s, when_s)


class Prober:
    """Asks one model. Prompts are random tokens: no two share a beginning."""

    def __init__(self, client: httpx.AsyncClient, model: str, seed: int) -> None:
        self._client = client
        self._model = model
        self._random = random.Random(seed)  # noqa: S311 - prompts, not secrets

    async def ask(self, prompt_tokens: int, max_tokens: int) -> Answer:
        """Raises ProbeFailed."""
        ids = range(FIRST_TOKEN_ID, LAST_TOKEN_ID)
        body = {
            "model": self._model,
            "prompt": self._random.choices(ids, k=prompt_tokens),
            "max_tokens": max_tokens,
            "ignore_eos": True,
            "stream": True,
            # A token that ends no character has no event: each tells how many there were by then.
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "temperature": 0,
        }
        sent_s = monotonic()
        token_s: list[float] = []
        try:
            async with self._client.stream("POST", "/v1/completions", json=body) as answer:
                if answer.status_code != 200:
                    said = (await answer.aread()).decode(errors="replace")[:300]
                    raise ProbeFailed(f"the engine answered {answer.status_code}: {said}")
                async for line in answer.aiter_lines():
                    if line.startswith("data: {"):
                        event = json.loads(line[6:])
                        if "error" in event:
                            raise ProbeFailed(f"the engine broke off: {line[6:300]}")
                        come = (event.get("usage") or {}).get("completion_tokens", 0)
                        token_s += [monotonic()] * (come - len(token_s))
        except httpx.HTTPError as error:
            raise ProbeFailed(f"the engine cannot be reached: {error!r}") from error
        if len(token_s) != max_tokens:
            raise ProbeFailed(
                f"{len(token_s)} tokens came where {max_tokens} were asked for: the engine does not "
                "heed ignore_eos, or tells no usage in its stream"
            )
        return Answer(prompt_tokens, sent_s, tuple(token_s))
