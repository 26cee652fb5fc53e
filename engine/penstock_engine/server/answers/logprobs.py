"""Builds the JSON of log-probabilities: OpenAI's for chat and completions, vLLM's for prompts.

Each token's entry is encoded immediately (transport/json_text.py explains why).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from penstock_engine.core.step import TokenLogprobs
from penstock_engine.server.transport.json_text import Json, JsonText, to_text
from penstock_engine.text.tokens import Tokenizer

# Log-probability of a token that cannot be sampled. JSON has no infinity; OpenAI and vLLM write this.
MIN_LOGPROB = -9999.0


@dataclass(frozen=True, slots=True)
class NamedToken:
    """A token as clients see it. name: its text, or `token_id:N`. content: its bytes."""

    name: str
    content: bytes

    @property
    def num_chars(self) -> int:
        """Number of characters whose first byte is in the token: a text's tokens add up to its length."""
        return sum(byte & 0xC0 != 0x80 for byte in self.content)


NameToken = Callable[[int], NamedToken]


def token_namer(tokenizer: Tokenizer, *, as_ids: bool) -> NameToken:
    """Returns a function from a token id to the token. as_ids: whether names are `token_id:N`.

    The function caches all tokens: use it for one request only.
    """

    def name_token(token_id: int) -> NamedToken:
        content = tokenizer.token_bytes(token_id)
        name = f"token_id:{token_id}" if as_ids else content.decode(errors="replace")
        return NamedToken(name, content)

    return cache(name_token)


def text_offsets(widths: Iterable[int], start: int) -> list[int]:
    """Returns where tokens begin in a text, in characters, never before it.

    widths: number of characters of each token. start: where the first one begins.
    """
    return [max(0, end) for end in accumulate(widths, initial=start)][:-1]


def chat_logprobs(logprobs: Sequence[TokenLogprobs], name_token: NameToken) -> Json:
    """Returns the `logprobs` of a chat choice or delta."""
    return {
        "content": [
            to_text(
                _chat_token(entry.token_id, entry.logprob, name_token)
                | {
                    "top_logprobs": [
                        _chat_token(token, value, name_token) for token, value in entry.top
                    ]
                }
            )
            for entry in logprobs
        ]
    }


def _chat_token(token_id: int, logprob: float, name_token: NameToken) -> Json:
    token = name_token(token_id)
    return {
        "token": token.name, "logprob": max(logprob, MIN_LOGPROB), "bytes": list(token.content),
    }  # fmt: skip


def completion_logprobs(
    logprobs: Sequence[TokenLogprobs | None],
    tokens: Sequence[int],
    offsets: Sequence[int],
    name_token: NameToken,
) -> Json:
    """Returns the `logprobs` of a completion choice.

    logprobs: one entry per token; None for the first token of an echoed prompt. offsets: where the tokens
    begin in the text, in characters.
    """
    return {
        "tokens": [name_token(token).name for token in tokens],
        "text_offset": list(offsets),
        "token_logprobs": [entry and max(entry.logprob, MIN_LOGPROB) for entry in logprobs],
        "top_logprobs": [entry and to_text(_by_name(entry, name_token)) for entry in logprobs],
    }


def _by_name(entry: TokenLogprobs, name_token: NameToken) -> dict[str, float]:
    """Returns log-probabilities by name: the sampled token, then the most likely ones.

    Of two tokens with the same name, the more likely one counts.
    """
    values: dict[str, float] = {}
    for token, value in ((entry.token_id, entry.logprob), *entry.top):
        name = name_token(token).name
        values[name] = max(value, values.get(name, MIN_LOGPROB))
    return values


def prompt_logprobs(
    logprobs: Sequence[TokenLogprobs], name_token: NameToken
) -> list[JsonText | None]:
    """Returns prompt_logprobs in vLLM's format: null for the first token, then objects by token id."""

    def as_json(token: int, value: float, rank: int) -> Json:
        name = name_token(token).name
        return {"logprob": max(value, MIN_LOGPROB), "rank": rank, "decoded_token": name}

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
