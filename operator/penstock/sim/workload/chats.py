"""Conversations of several turns: each prompt holds the whole conversation before it."""

from dataclasses import dataclass
from itertools import accumulate
from math import log
from random import Random
from typing import Literal

from pydantic import Field

from penstock.sim.profile import Record
from penstock.sim.request import Request
from penstock.sim.workload.arrivals import times
from penstock.sim.workload.lengths import Length

# Ids of a conversation's own blocks begin at its number + 1 times this; ids below are of the system prompt.
MAX_BLOCKS = 100_000


class Chats(Record):
    """Conversations that begin as a Poisson process.

    chats_per_s: of conversations. mean_turns: of their geometric number of requests. think_s: mean of the
    exponential time from an answer to the next request. system_tokens: of the beginning that all share.
    message, answer: lengths of each turn. max_tokens: a conversation ends before it is longer. block_tokens:
    tokens of a KV block.
    """

    kind: Literal["chats"] = "chats"
    chats_per_s: float = Field(gt=0)
    mean_turns: float = Field(default=8.0, ge=1)
    think_s: float = Field(default=20.0, gt=0)
    system_tokens: int = Field(default=1024, ge=0)
    message: Length
    answer: Length
    max_tokens: int = Field(default=32_768, ge=1)
    block_tokens: int = Field(default=64, ge=16)


@dataclass(frozen=True, slots=True)
class Turn:
    """Turn of a conversation. prompt_tokens: of the whole prompt. think_s: before it."""

    prompt_tokens: int
    output_tokens: int
    think_s: float


class Conversations:
    """All conversations of a run, drawn beforehand: answers change only when a turn begins."""

    def __init__(self, workload: Chats, duration_s: float, random: Random) -> None:
        self._block_tokens = workload.block_tokens
        self._system_blocks = workload.system_tokens // workload.block_tokens
        rate = [(0.0, workload.chats_per_s), (duration_s, workload.chats_per_s)]
        self._begins_s = list(times(rate, 1.0, random))
        self._turns = [draw_turns(workload, random) for _ in self._begins_s]

    def first(self) -> list[Request]:
        """First requests of all conversations, in order of arrival."""
        return [self._request(chat, 0, at_s) for chat, at_s in enumerate(self._begins_s)]

    def next_after(self, request: Request, now: float) -> Request | None:
        """Next request of a conversation; None after its last turn, or one that failed."""
        following = request.turn + 1
        turns = self._turns[request.user]
        if request.outcome != "ended" or following >= len(turns):
            return None
        return self._request(request.user, following, now + turns[following].think_s)

    def _request(self, chat: int, number: int, at_s: float) -> Request:
        turn = self._turns[chat][number]
        size = self._block_tokens
        num_prompt = -(-turn.prompt_tokens // size)
        num_all = -(-(turn.prompt_tokens + turn.output_tokens) // size)
        own = (chat + 1) * MAX_BLOCKS
        blocks = [i if i < self._system_blocks else own + i for i in range(num_all)]
        return Request(
            f"c{chat}-{number}",
            at_s,
            turn.prompt_tokens,
            turn.output_tokens,
            tuple(blocks[:num_prompt]),
            user=chat,
            session=f"c{chat}",
            turn=number,
            answer=tuple(blocks[num_prompt:]),
        )


def draw_turns(workload: Chats, random: Random) -> list[Turn]:
    """Turns of one conversation, at least one."""
    num_turns = 1
    if workload.mean_turns > 1:
        stay = 1 - 1 / workload.mean_turns
        num_turns += int(log(1 - random.random()) / log(stay))
    messages = [workload.message.draw(random) for _ in range(num_turns)]
    answers = [workload.answer.draw(random) for _ in range(num_turns)]
    thinks_s = [random.expovariate(1 / workload.think_s) for _ in range(num_turns)]
    lengths = accumulate(m + a for m, a in zip(messages, answers, strict=True))
    turns: list[Turn] = []
    for length, answer, think_s in zip(lengths, answers, thinks_s, strict=True):
        total = workload.system_tokens + length
        if turns and total > workload.max_tokens:
            break
        turns.append(Turn(total - answer, answer, think_s))
    return turns
