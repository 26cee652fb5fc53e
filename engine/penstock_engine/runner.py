"""Step -> drafts -> forward pass -> drawn tokens."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import Sampled, ScheduledSequence, Step, TokenLogprobs
from penstock_engine.device import num_threads
from penstock_engine.draft_model import DraftModel
from penstock_engine.lora.adapted import Adapters
from penstock_engine.models.shard import ONE_RANK, Layout
from penstock_engine.paged_model import PagedModel, row_order
from penstock_engine.parallel.messages import Part
from penstock_engine.parallel.model import ParallelModel, SpreadAdapters
from penstock_engine.quantization.rounding import Quantization
from penstock_engine.sampling.logprobs import token_logprobs
from penstock_engine.sampling.sampler import sample

WARM_UP_TOKENS = 16
# Rows of logits of a prompt that exist at once: 150,000 tokens of vocabulary are 40 MB then.
PROMPT_LOGPROB_ROWS = 64


class Runner:
    """Owns the model, and the draft model if there is one. One thread at a time."""

    def __init__(
        self, model: PagedModel | ParallelModel, draft_model: DraftModel | None = None
    ) -> None:
        self._model = model
        self._draft_model = draft_model

    @classmethod
    def load(
        cls,
        model_dir: Path,
        *,
        device: str,
        dtype: str,
        num_blocks: int,
        block_size: int,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_model_len: int,
        draft_model_dir: Path | None = None,
        quantization: Quantization | None = None,
        kv_dtype: str | None = None,
        num_host_blocks: int = 0,
        max_adapters: int = 0,
        layout: Layout = ONE_RANK,
        on_weights: Callable[[], None] = lambda: None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> "Runner":
        """device: cpu or cuda; dtype: float32, bfloat16 or float16. Raises ModelError.

        quantization: of the model; a draft model stays as it is. kv_dtype: int8, float8_e4m3fn, or
        None for dtype.
        layout: where it has several ranks, the others' processes are started, and end with this
        runner. A draft model is rank 0's alone.
        on_weights: called, on another thread, when all is read and the warm-up begins.
        on_lost: called at most once, on another thread, when a rank ends by itself.

        Loads in a thread of its own, and so frees the OpenMP workers of loading with it. As long
        as they existed, those of the thread that calls `run` would sleep instead of spin between
        products: with two cores, a small model would take twice as long for a step.
        """

        def load_one(
            folder: Path, quantization: Quantization | None = None, max_adapters: int = 0
        ) -> PagedModel:
            return PagedModel.load(
                folder,
                device=device,
                dtype=dtype,
                num_blocks=num_blocks,
                block_size=block_size,
                max_num_tokens=max_num_batched_tokens,
                max_model_len=max_model_len,
                quantization=quantization,
                kv_dtype=kv_dtype,
                num_host_blocks=num_host_blocks,
                max_adapters=max_adapters,
            )

        num_threads_each = max(1, min(torch.get_num_threads(), num_threads()) // layout.num_ranks)

        def load_spread() -> ParallelModel:
            part = Part(
                rank=0,
                layout=layout,
                model_dir=str(model_dir),
                device=device,
                dtype=dtype,
                num_blocks=num_blocks,
                block_size=block_size,
                max_num_tokens=max_num_batched_tokens,
                max_model_len=max_model_len,
                quantization=quantization,
                kv_dtype=kv_dtype,
                num_host_blocks=num_host_blocks,
                max_adapters=max_adapters,
                num_threads=num_threads_each,
            )
            return ParallelModel.load(part, on_lost)

        def load_model() -> PagedModel | ParallelModel:
            if layout.num_ranks > 1:
                return load_spread()
            return load_one(model_dir, quantization, max_adapters)

        def load_all() -> "Runner":
            if device == "cpu":
                torch.set_num_threads(num_threads_each)
            draft = None if draft_model_dir is None else DraftModel(load_one(draft_model_dir))
            runner = cls(load_model(), draft)
            on_weights()
            num_tokens = min(WARM_UP_TOKENS, block_size, max_model_len, max_num_batched_tokens)
            runner.warm_up(num_tokens, min(max_num_seqs, max_num_batched_tokens))
            return runner

        with ThreadPoolExecutor(1) as executor:
            return executor.submit(load_all).result()

    @torch.inference_mode()
    def run(self, step: Step) -> dict[str, Sampled]:
        """Computes a step. Returns what each sequence draws or is told of its prompt.

        Raises RunnerLost.
        """
        self._model.move(step.moves)
        sequences = sorted(step.sequences, key=row_order)
        if self._draft_model is not None:
            self._draft_model.model.move(step.moves)
            sequences = sorted(self._draft_model.guess(sequences), key=row_order)
        return self._sample(sequences, self._model.forward(sequences))

    def close(self) -> None:
        """Ends the other ranks, if there are any; else, that happens with the last reference."""
        if isinstance(self._model, ParallelModel):
            self._model.close()

    @property
    def adapters(self) -> Adapters | SpreadAdapters:
        """Only where the runner was loaded with max_adapters."""
        adapters = self._model.adapters
        assert adapters is not None, "the runner was loaded without adapters"
        return adapters

    def warm_up(self, num_prompt_tokens: int, num_sequences: int) -> None:
        """Reads the weights in and prepares kernels, so that the first request need not.

        Writes to block 0 only, which nobody has published.
        """
        greedy = SamplingParams(max_tokens=1, temperature=0.0)

        def sequence(name: str, num_tokens: int) -> ScheduledSequence:
            tokens = (0,) * num_tokens
            return ScheduledSequence(name, 0, tokens, (0,), True, greedy, tokens, num_tokens)

        self.run(Step((sequence("", num_prompt_tokens),)))
        self.run(Step(tuple(sequence(str(i), 1) for i in range(num_sequences))))

    def _sample(
        self, sequences: Sequence[ScheduledSequence], hidden: torch.Tensor
    ) -> dict[str, Sampled]:
        results: dict[str, Sampled] = {}
        ends = np.cumsum([sequence.num_tokens for sequence in sequences])
        drawing = [(s, end) for s, end in zip(sequences, ends, strict=True) if s.is_sampled]
        if drawing:
            rows = np.concatenate([np.arange(end - s.num_rows, end) for s, end in drawing])
            logits = self._model.logits(hidden[torch.from_numpy(rows).to(self._model.device)])
            drawn = sample(logits, [sequence for sequence, _ in drawing])
            results = {s.request_id: d for (s, _), d in zip(drawing, drawn, strict=True)}
        for sequence, end in drawing:
            if sequence.sampling.wants_embedding:
                (vector,) = self._model.embeddings(hidden[end - 1 : end]).tolist()
                result = results[sequence.request_id]
                results[sequence.request_id] = replace(result, embedding=tuple(vector))
        for sequence, end in zip(sequences, ends, strict=True):
            if sequence.wants_prompt_logprobs:
                told = self._prompt_logprobs(sequence, hidden[end - sequence.num_tokens : end])
                result = results.get(sequence.request_id, Sampled())
                results[sequence.request_id] = replace(result, prompt_logprobs=told)
        return results

    def _prompt_logprobs(
        self, sequence: ScheduledSequence, hidden: torch.Tensor
    ) -> tuple[TokenLogprobs, ...]:
        """hidden: [tokens of the chunk, hidden_size]. Each position tells of the token after it."""
        end = min(sequence.end, sequence.num_prompt_tokens - 1)
        told: list[TokenLogprobs] = []
        for first in range(sequence.start, end, PROMPT_LOGPROB_ROWS):
            last = min(end, first + PROMPT_LOGPROB_ROWS)
            logits = self._model.logits(hidden[first - sequence.start : last - sequence.start])
            tokens = sequence.history[first + 1 : last + 1]
            told += token_logprobs(logits, tokens, sequence.sampling.prompt_logprobs or 0)
        return tuple(told)
