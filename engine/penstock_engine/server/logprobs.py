"""Builds the JSON of log-probabilities: OpenAI's for chat and completions, vLLM's for prompts.

Each token's entry is encoded immediately (json_text.py explains why).
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from penstock_engine.core.step import TokenLogprobs
from penstock_engine.server.json_text import JsonText, to_text
from penstock_engine.tokens import Tokenizer

Json = dict[str, Any]
TokenToText = Callable[[int], str]

# Log-probability of a token that cannot be sampled. JSON has no infinity; OpenAI and vLLM write this.
MIN_LOGPROB = -9999.0


def token_to_text(tokenizer: Tokenizer, *, as_ids: bool) -> TokenToText:
    """Returns a function from a token id to its text or, with as_ids, to `token_id:N`.

    The function caches all texts: use it for one request only.
    """
    if as_ids:
        return lambda token_id: f"token_id:{token_id}"
    return cache(lambda token_id: tokenizer.decode([token_id], skip_special_tokens=False))


def chat_logprobs(logprobs: Sequence[TokenLogprobs], to_name: TokenToText) -> Json:
    """Returns the `logprobs` of a chat choice or delta."""
    return {
        "content": [
            to_text(
                _chat_token(entry.token_id, entry.logprob, to_name)
                | {
                    "top_logprobs": [
                        _chat_token(token, value, to_name) for token, value in entry.top
                    ]
                }
            )
            for entry in logprobs
        ]
    }


def _chat_token(token_id: int, logprob: float, to_name: TokenToText) -> Json:
    text = to_name(token_id)
    return {"token": text, "logprob": max(logprob, MIN_LOGPROB), "bytes": list(text.encode())}


def completion_logprobs(
    logprobs: Sequence[TokenLogprobs | None],
    tokens: Sequence[int],
    offset: int,
    to_name: TokenToText,
) -> Json:
    """Returns the `logprobs` of a completion choice.

    logprobs: one entry per token; None for the first token of an echoed prompt. offset: characters
    before the first token.
    """
    texts = [to_name(token) for token in tokens]
    offsets = []
    for text in texts:
        offsets.append(offset)
        offset += len(text)
    return {
        "tokens": texts,
        "text_offset": offsets,
        "token_logprobs": [entry and max(entry.logprob, MIN_LOGPROB) for entry in logprobs],
        "top_logprobs": [entry and to_text(_by_text(entry, to_name)) for entry in logprobs],
    }


def _by_text(entry: TokenLogprobs, to_name: TokenToText) -> dict[str, float]:
    """Returns log-probabilities by text: the sampled token, then the most likely ones.

    Of two tokens with the same text, the more likely one counts.
    """
    values: dict[str, float] = {}
    for token, value in ((entry.token_id, entry.logprob), *entry.top):
        text = to_name(token)
        values[text] = max(value, values.get(text, MIN_LOGPROB))
    return values


def prompt_logprobs(
    logprobs: Sequence[TokenLogprobs], to_name: TokenToText
) -> list[JsonText | None]:
    """Returns prompt_logprobs in vLLM's format: null for the first token, then objects by token id."""

    def as_json(token: int, value: float, rank: int) -> Json:
        return {"logprob": max(value, MIN_LOGPROB), "rank": rank, "decoded_token": to_name(token)}

    return [
        None,
        *(
            to_text(
                {str(entry.token_id): as_json(entry.token_id, entry.logprob, entry.rank)}
                | {
                    str(token): as_json(token, value, rank)
                    for rank, (token, value) in enumerate(entry.top, start=1)
                }
            )
            for entry in logprobs
        ),
    ]
