"""A runner without a model: the tokens it samples, and the content of its KV blocks."""

from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.step import ScheduledSequence, SequenceOutput, Step


# Two possible tokens, so that prompts share prefixes and outputs equal other prompts.
def next_token(seed: int, position: int) -> int:
    return (seed + position) % 2


def token_at(position: int, end_at: int | None) -> int:
    """Token of the simulated model at a position; 5, the end token, from end_at on."""
    return 5 if end_at is not None and position >= end_at else next_token(0, position)


def guessed_drafts(
    s: ScheduledSequence, num_guessed: int, end_at: int | None = None
) -> tuple[int, ...]:
    """Draft tokens, known or guessed by the runner; all are accepted."""
    first = s.end - s.num_drafts
    open_drafts = range(min(num_guessed, s.num_runner_drafts))
    return s.drafts or tuple(token_at(first + i, end_at) for i in open_drafts)


def sampled(s: ScheduledSequence, num_guessed: int, end_at: int | None = None) -> SequenceOutput:
    drafts = guessed_drafts(s, num_guessed, end_at)
    first = s.end - s.num_drafts
    tokens = [token_at(first, end_at)]
    while len(tokens) <= len(drafts) and drafts[len(tokens) - 1] == tokens[-1]:
        tokens.append(token_at(first + len(tokens), end_at))
    return SequenceOutput(tuple(tokens), len(drafts))


class Memory:
    """Content of device blocks and host slots per token, moved as a runner would.

    A token's keys and values depend on all tokens before it and on the adapter. So that is its content here,
    and every position that a step attends to must have it.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self.size = config.block_size
        self.window_tokens = config.window_tokens
        self.device: list[list[object]] = [[None] * self.size for _ in range(config.num_blocks)]
        self.host: list[list[object]] = [[None] * self.size for _ in range(config.num_host_blocks)]

    def compute(
        self, step: Step, tokens_of: dict[str, list[int]], num_guessed: int, end_at: int | None
    ) -> None:
        """Write the content of a step. tokens_of: known and sampled tokens by sequence id."""
        for block, slot in step.block_copies.saves:
            self.host[slot] = list(self.device[block])
        for slot, block in step.block_copies.restores:
            self.device[block] = list(self.host[slot])
        for source, target in step.block_copies.forks:
            self.device[target] = list(self.device[source])
        for s in step.sequences:
            drafts = guessed_drafts(s, num_guessed, end_at)
            tokens = [*tokens_of[s.request_id], *drafts]
            end = s.end - s.num_drafts + len(drafts)
            for position in range(s.start, end):
                block, offset = divmod(position, self.size)
                self.device[s.block_table[block]][offset] = self.meaning(s, tokens, position)
            first = 0 if self.window_tokens is None else max(0, s.start - self.window_tokens + 1)
            for position in range(first, end):
                block, offset = divmod(position, self.size)
                found = self.device[s.block_table[block]][offset]
                assert found == self.meaning(s, tokens, position), "a block holds something else"

    def meaning(self, s: ScheduledSequence, tokens: list[int], position: int) -> object:
        return s.adapter, tuple(tokens[: position + 1])
