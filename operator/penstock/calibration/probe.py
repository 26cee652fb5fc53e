"""Sends the requests of a sweep and records the arrival time of each token."""

import json
import random
from bisect import bisect_right
from dataclasses import dataclass

import httpx

from penstock.clients.machine.clock import monotonic

# Token ids that every vocabulary has, above the special tokens of most.
FIRST_TOKEN_ID, LAST_TOKEN_ID = 300, 900


class ProbeFailed(Exception):
    """The engine could not be reached, refused a request or aborted it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answered request. sent_s, token_s: times of sending and of each token, on the monotonic clock."""

    prompt_tokens: int
    sent_s: float
    token_s: tuple[float, ...]

    @property
    def ttft_s(self) -> float:
        return self.token_s[0] - self.sent_s

    def tokens_until(self, when_s: float) -> int:
        """Count the tokens that had arrived at this time."""
        return bisect_right(self.token_s, when_s)


class Prober:
    """Sends requests to one model. Prompts are random tokens, so that no two share a prefix."""

    def __init__(self, client: httpx.AsyncClient, model: str, seed: int) -> None:
        self._client = client
        self._model = model
        self._random = random.Random(seed)  # noqa: S311 - prompts, not secrets

    async def ask(self, prompt_tokens: int, max_tokens: int) -> Answer:
        """Send a prompt of this length, and read exactly `max_tokens` tokens. Raises ProbeFailed."""
        ids = range(FIRST_TOKEN_ID, LAST_TOKEN_ID)
        body = {
            "model": self._model,
            "prompt": self._random.choices(ids, k=prompt_tokens),
            "max_tokens": max_tokens,
            "ignore_eos": True,
            "stream": True,
            # A token that does not complete a character has no event, so each event counts all tokens.
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "temperature": 0,
        }
        sent_s = monotonic()
        token_s: list[float] = []
        try:
            async with self._client.stream("POST", "/v1/completions", json=body) as answer:
                if answer.status_code != 200:
                    text = (await answer.aread()).decode(errors="replace")[:300]
                    raise ProbeFailed(f"the engine answered {answer.status_code}: {text}")
                async for line in answer.aiter_lines():
                    if line.startswith("data: {"):
                        event = json.loads(line[6:])
                        if "error" in event:
                            raise ProbeFailed(f"the engine aborted the request: {line[6:300]}")
                        received = (event.get("usage") or {}).get("completion_tokens", 0)
                        token_s += [monotonic()] * (received - len(token_s))
        except httpx.HTTPError as error:
            raise ProbeFailed(f"the engine cannot be reached: {error!r}") from error
        if len(token_s) != max_tokens:
            raise ProbeFailed(
                f"received {len(token_s)} tokens instead of {max_tokens}: the engine does not support "
                "ignore_eos, or sends no usage in its stream"
            )
        return Answer(prompt_tokens, sent_s, tuple(token_s))
