"""Steps to compute before the first request, so that no kernel compiles in a user's step.

Triton compiles a variant of a kernel when a launch first needs it. Which one a launch needs depends on the
model, which is fixed, and on the step: on its number of tokens, on whether it has chunks, adapters or drafts,
and on how it samples. Some number of tokens stands for each variant.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import ScheduledSequence, Step
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.kernels import grouped_linear, int8_linear
from penstock_engine.kernels.attention_tile import TILE_TOKENS

# Tokens of a prompt that reads all weights once, where there is nothing to compile.
PROMPT_TOKENS = 16
# Name of an adapter without effect, which the steps here need if max_adapters is not 0.
ADAPTER = "warm-up"

GREEDY = SamplingParams(max_tokens=1, temperature=0.0)
PENALIZED = SamplingParams(max_tokens=1, repetition_penalty=1.1, min_p=0.01, top_k=5, logprobs=1)
NUCLEUS = SamplingParams(max_tokens=1, top_p=0.9)


class AnyToken:
    """Constraint that allows every token."""

    is_finished = has_failed = False

    def fill(self, bits: memoryview) -> None:
        bits[:] = b"\xff" * len(bits)

    def accept(self, token_id: int) -> bool:
        return True

    def rollback(self, num_tokens: int) -> None:
        pass


def warm_up_steps(config: RunnerConfig, groupings: Sequence[tuple[int, int]]) -> list[Step]:
    """The steps of a device: `weight_steps` on the CPU, where nothing compiles, or `kernel_steps`."""
    return weight_steps(config) if config.device == "cpu" else kernel_steps(config, groupings)


def weight_steps(config: RunnerConfig) -> list[Step]:
    """Two short steps that read all weights: a prompt, and one token of each sequence."""
    make = _StepMaker(config)
    tokens = min(PROMPT_TOKENS, config.block_size, config.max_model_len, make.most_tokens)
    return [make.chunks(tokens), make.tokens(config.max_num_seqs)]


def kernel_steps(config: RunnerConfig, groupings: Sequence[tuple[int, int]]) -> list[Step]:
    """Steps that need every variant of every kernel that a step can need.

    groupings: (number of groups, rows of a token) of each grouped product of the model, whose groups are
    experts or adapters. All of the steps write to block 0 only.
    """
    make = _StepMaker(config)
    sizes = token_counts(make.most_tokens, groupings)
    tiles = [n for n in TILE_TOKENS if n <= min(make.most_tokens, config.max_model_len)]
    steps = []
    for adapter in ("", ADAPTER) if config.max_adapters else ("",):
        # The largest goes first, so that the others fit into the memory that torch keeps of it.
        steps += [make.chunks(n, adapter) for n in sorted(sizes, reverse=True)]
        steps += [make.tokens(config.max_num_seqs, adapter), make.mixed(adapter)]
    # The head has a row for each sampled token, and its weights may be quantized.
    rows = token_counts(min(config.max_num_seqs, make.most_tokens), ())
    steps += [make.tokens(n) for n in sorted(rows, reverse=True)]
    steps += [make.end_of_context(n) for n in tiles]
    return [*steps, *make.sampling(), *make.drafts()]


def token_counts(most_tokens: int, groupings: Sequence[tuple[int, int]]) -> set[int]:
    """Numbers of tokens for which the products of a step need all of their variants.

    A product has a block size that depends on the number of rows, and splits its inputs if there are few
    blocks. Among the numbers with the same block size, those that split are the smallest ones. So the first
    and the last of them need both variants, if both exist.
    """
    block_sizes = [partial(int8_linear.choose_block_rows, element_size=size) for size in (2, 4)]
    block_sizes += [
        partial(_grouped_block_rows, num_groups=num_groups, rows_of_token=rows_of_token)
        for num_groups, rows_of_token in groupings
    ]
    counts = {1, most_tokens}
    for block_size in block_sizes:
        for n in range(1, most_tokens):
            if block_size(n) != block_size(n + 1):
                counts |= {n, n + 1}
    return counts


def _grouped_block_rows(num_tokens: int, num_groups: int, rows_of_token: int) -> int:
    return grouped_linear.choose_block_rows(num_tokens * rows_of_token, num_groups)


class _StepMaker:
    """Makes steps within the limits of a configuration, all of whose tokens are 0."""

    def __init__(self, config: RunnerConfig) -> None:
        self._config = config
        self.most_tokens = min(
            config.max_num_batched_tokens, config.max_num_seqs * config.max_model_len
        )

    def chunks(self, num_tokens: int, adapter: str = "") -> Step:
        """A prompt of num_tokens tokens, or several if it is longer than a sequence may be."""
        longest = self._config.max_model_len
        lengths = [min(longest, num_tokens - at) for at in range(0, num_tokens, longest)]
        return self._step([self._sequence(length, adapter=adapter) for length in lengths])

    def tokens(self, num_sequences: int, adapter: str = "") -> Step:
        """A step with one token of each sequence."""
        return self._step([self._sequence(1, adapter=adapter)] * num_sequences)

    def end_of_context(self, num_tokens: int) -> Step:
        """The last tokens of a context of maximum length, whose keys are split over programs."""
        length = self._config.max_model_len
        sequence = self._sequence(length)
        tokens = sequence.token_ids[:num_tokens]
        return self._step([sequence._replace(start=length - num_tokens, token_ids=tokens)])

    def mixed(self, adapter: str = "") -> Step:
        """A chunk beside a single token."""
        lengths = (1, min(2, self._config.max_model_len))
        return self._step([self._sequence(length, adapter=adapter) for length in lengths])

    def sampling(self) -> Iterator[Step]:
        """Steps with and without penalties and grammars, with top_k and with top_p."""
        for sampling in (NUCLEUS, PENALIZED):
            for constraint in (None, AnyToken()):
                one = self._sequence(1)._replace(sampling=sampling, constraint=constraint)
                yield self._step([one])

    def drafts(self) -> Iterator[Step]:
        """A step with a draft, or a prompt and its next step, for which the runner makes a draft."""
        if min(self._config.max_model_len, self.most_tokens) < 4:
            return
        if self._config.draft_model_dir is None:
            drafted = self._sequence(2)
            yield self._step([drafted._replace(num_drafts=1, history=(0,), num_prompt_tokens=1)])
            return
        yield self._step([self._sequence(2)])
        history = (0, 0, 0)
        following = self._sequence(1)._replace(start=2, history=history, num_prompt_tokens=2)
        yield self._step([following._replace(num_runner_drafts=1)])

    def _step(self, sequences: Sequence[ScheduledSequence]) -> Step:
        """A step of as many of the sequences as it may have."""
        kept: list[ScheduledSequence] = []
        num_tokens = 0
        for sequence in sequences[: self._config.max_num_seqs]:
            num_tokens += sequence.num_tokens
            if num_tokens <= self.most_tokens:
                kept.append(sequence._replace(request_id=str(len(kept))))
        return Step(tuple(kept))

    def _sequence(self, num_tokens: int, adapter: str = "") -> ScheduledSequence:
        tokens = (0,) * num_tokens
        # Block 0 stands for all blocks. `drafts` needs room for three more tokens.
        num_blocks = -(-(num_tokens + 3) // self._config.block_size)
        return ScheduledSequence(
            "", 0, tokens, (0,) * num_blocks, True, GREEDY, tokens, num_tokens, adapter=adapter
        )
