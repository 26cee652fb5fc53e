"""A simulated request and its outcome."""

from typing import Literal

from penstock.core.admission.requester import ANYBODY, Requester
from penstock.core.routing.prefix.prompt_prefix import PromptPrefix
from penstock.core.routing.prompt_kinds import MESSAGES, Prompt
from penstock.core.routing.request_attributes import RequestAttributes

Outcome = Literal["open", "ended", "shed", "failed"]


class Request:
    """A simulated request. Times are on the simulated clock; None until they are known.

    prefix: ids of the shared blocks at the start of its prompt; equal ids mean equal tokens. answer: ids of
    the blocks behind them, if a later prompt holds the answer. session: key of its conversation; "": its
    first shared block. turn: its number in the conversation, from 0. user: index of the closed-loop client.
    adapter: its name in engines; "" for the model itself. requester: whom it counts for in admission. ahead:
    requests without a first token at its engine when it was sent. beside: open requests at its engine, the
    mean of when it was sent and when it ended. predicted_s: time from sent_s to its first token, as the
    routing predicted it.
    """

    __slots__ = (
        "adapter",
        "ahead",
        "answer",
        "arrival_s",
        "beside",
        "cached_tokens",
        "end_s",
        "first_token_s",
        "num_tries",
        "outcome",
        "output_tokens",
        "pod",
        "predicted_s",
        "prefix",
        "prompt_tokens",
        "request_id",
        "requester",
        "sent_s",
        "session",
        "turn",
        "user",
    )

    def __init__(
        self,
        request_id: str,
        arrival_s: float,
        prompt_tokens: int,
        output_tokens: int,
        prefix: tuple[int, ...] = (),
        user: int = 0,
        adapter: str = "",
        requester: Requester = ANYBODY,
        session: str = "",
        turn: int = 0,
        answer: tuple[int, ...] | None = None,
    ) -> None:
        self.request_id = request_id
        self.arrival_s = arrival_s
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.prefix = prefix
        self.user = user
        self.adapter = adapter
        self.requester = requester
        self.session = session
        self.turn = turn
        self.answer = answer
        self.outcome: Outcome = "open"
        self.pod = ""
        self.num_tries = 0
        self.ahead = 0
        self.beside = 0.0
        self.sent_s = arrival_s
        self.predicted_s: float | None = None
        self.cached_tokens = 0
        self.first_token_s: float | None = None
        self.end_s: float | None = None

    def attributes(self, prefix_block_tokens: int) -> RequestAttributes:
        """Attributes for the choice of an engine. prefix_block_tokens: as in `prompt_of`."""
        prefix = prefix_of(self, prefix_block_tokens)
        return RequestAttributes(None, self.conversation_key, prefix)

    @property
    def conversation_key(self) -> bytes | None:
        """Digest of the session, or of the first block of a prompt without one, as of a first message."""
        opening = [self.session] if self.session else [str(block) for block in self.prefix[:1]]
        messages = [{"role": "user", "content": text} for text in opening]
        return RequestAttributes.of({}, Prompt([(MESSAGES, messages)])).conversation_key

    @property
    def ttft_s(self) -> float | None:
        return None if self.first_token_s is None else self.first_token_s - self.arrival_s

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; 0 for a single token."""
        if self.end_s is None or self.first_token_s is None:
            return None
        return (self.end_s - self.first_token_s) / max(1, self.output_tokens - 1)

    def meets(self, ttft_s: float, tpot_s: float) -> bool:
        if self.outcome != "ended":
            return False
        first, each = self.ttft_s, self.tpot_s
        return first is not None and each is not None and first <= ttft_s and each <= tpot_s


def prefix_of(request: Request, prefix_block_tokens: int) -> PromptPrefix:
    """Beginnings of the prompt, whose length is in tokens instead of bytes."""
    hashes, ends, last = [], [], 0
    for number, block in enumerate(request.prefix, 1):
        if not prefix_block_tokens or number * prefix_block_tokens > request.prompt_tokens:
            break
        last = hash((last, block))
        hashes.append(last)
        ends.append(number * prefix_block_tokens)
    return PromptPrefix(tuple(hashes), tuple(ends), request.prompt_tokens)


def block_token(request: Request, index: int) -> int:
    """Token id of all tokens of a block of the prompt."""
    return request.prefix[index] + 1 if index < len(request.prefix) else 0


def prompt_of(request: Request, prefix_block_tokens: int) -> list[int]:
    """Prompt token ids. Two prompts are equal exactly where their prefix ids are."""
    length = request.prompt_tokens
    if not prefix_block_tokens:
        return [0] * length
    tokens: list[int] = []
    for index in range(len(request.prefix)):
        tokens += [block_token(request, index)] * prefix_block_tokens
    del tokens[length:]
    return tokens + [0] * (length - len(tokens))
