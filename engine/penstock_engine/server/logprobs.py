"""Log-probabilities as JSON: OpenAI's for chat and completions, and vLLM's for prompts.

Each token's entry is encoded at once (json_text.py).
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from penstock_engine.core.step import TokenLogprobs
from penstock_engine.server.json_text import JsonText, to_text
from penstock_engine.tokens import Tokenizer

Json = dict[str, Any]
Spell = Callable[[int], str]

# JSON has no infinity; this is what OpenAI and vLLM write for what cannot come.
LEAST = -9999.0


def speller(tokenizer: Tokenizer, *, as_ids: bool) -> Spell:
    """A function from a token id to its name: its text or, with as_ids, `token_id:N`.

    It caches texts, so it is meant for one request.
    """
    if as_ids:
        return lambda token_id: f"token_id:{token_id}"
    return cache(lambda token_id: tokenizer.decode([token_id], skip_special_tokens=False))


def chat_logprobs(told: Sequence[TokenLogprobs], spell: Spell) -> Json:
    return {
        "content": [
            to_text(
                _chat_token(one.token_id, one.logprob, spell)
                | {"top_logprobs": [_chat_token(token, value, spell) for token, value in one.top]}
            )
            for one in told
        ]
    }


def _chat_token(token_id: int, logprob: float, spell: Spell) -> Json:
    text = spell(token_id)
    return {"token": text, "logprob": max(logprob, LEAST), "bytes": list(text.encode())}


def completion_logprobs(
    told: Sequence[TokenLogprobs | None], tokens: Sequence[int], offset: int, spell: Spell
) -> Json:
    """told: None for the first token of an echoed prompt. offset: characters before the first."""
    texts = [spell(token) for token in tokens]
    offsets = []
    for text in texts:
        offsets.append(offset)
        offset += len(text)
    return {
        "tokens": texts,
        "text_offset": offsets,
        "token_logprobs": [one and max(one.logprob, LEAST) for one in told],
        "top_logprobs": [one and to_text(_by_text(one, spell)) for one in told],
    }


def _by_text(one: TokenLogprobs, spell: Spell) -> dict[str, float]:
    """The sampled token, then the best ones; of two with the same text, the more probable one."""
    values: dict[str, float] = {}
    for token, value in ((one.token_id, one.logprob), *one.top):
        text = spell(token)
        values[text] = max(value, values.get(text, LEAST))
    return values


def prompt_logprobs(told: Sequence[TokenLogprobs], spell: Spell) -> list[JsonText | None]:
    """prompt_logprobs in vLLM's format: null for the first token, then objects by token id."""

    def entry(token: int, value: float, rank: int) -> Json:
        return {"logprob": max(value, LEAST), "rank": rank, "decoded_token": spell(token)}

    return [
        None,
        *(
            to_text(
                {str(one.token_id): entry(one.token_id, one.logprob, one.rank)}
                | {
                    str(token): entry(token, value, rank)
                    for rank, (token, value) in enumerate(one.top, start=1)
                }
            )
            for one in told
        ),
    ]
