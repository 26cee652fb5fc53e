"""Computes steps: block copies, drafts, forward pass, sampling."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import torch

from penstock_engine.core.errors import RunnerDiedError
from penstock_engine.core.step import (
    PENDING_TOKEN,
    BlockCopies,
    ScheduledSequence,
    SequenceOutput,
    Step,
)
from penstock_engine.execution import warm_up
from penstock_engine.execution.draft_head import DraftHead
from penstock_engine.execution.draft_model import DraftModel
from penstock_engine.execution.paged_model import PagedModel, row_order
from penstock_engine.execution.parallel.messages import RankConfig
from penstock_engine.execution.parallel.model import ParallelAdapters, ParallelModel
from penstock_engine.execution.pending_step import ExtraOutputs, PendingStep
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.kernels.transfer import fetch, send
from penstock_engine.layers.pending_tokens import pending_token_id
from penstock_engine.lora.adapters import Adapters, neutral_adapter
from penstock_engine.machine.cpu_threads import CpuThreads, allowed_threads
from penstock_engine.sampling.logprobs import LogprobBuffer
from penstock_engine.sampling.request_state import RequestStates
from penstock_engine.sampling.sampling_sizes import rows_at_once
from penstock_engine.telemetry import logs


class Runner:
    """Computes steps with a model and an optional draft model or head. Not thread-safe.

    depth: number of steps that may be launched before the first has finished. It is 1 on the CPU,
    where a launch is synchronous, and with several ranks, which get token ids from the host.
    """

    def __init__(
        self,
        model: PagedModel | ParallelModel,
        draft: DraftModel | DraftHead | None = None,
        *,
        is_ahead: bool = True,
        threads: CpuThreads | None = None,
    ) -> None:
        """is_ahead: whether to launch steps ahead if the device allows it. threads: adapts the number
        of threads to the CPU's load; None: the number is fixed."""
        self._model = model
        self._draft = draft
        self._threads = threads
        self._unread: tuple[list[ScheduledSequence], torch.Tensor] | None = None
        self._last: PendingStep | None = None
        self._states = RequestStates()
        is_apart = isinstance(model, PagedModel) and model.device != "cpu"
        self.depth = 2 if is_apart and is_ahead else 1

    @classmethod
    def load(
        cls,
        config: RunnerConfig,
        *,
        on_weights: Callable[[], None] = lambda: None,
        on_rank_exit: Callable[[], None] = lambda: None,
        on_threads: Callable[[int], None] = lambda count: None,
    ) -> "Runner":
        """Load the model, start the processes of other ranks, and warm up. Raises ModelError.

        on_weights: called on another thread when the weights are loaded and the warm-up begins.
        on_rank_exit: called at most once, on another thread, when a rank exits unexpectedly.
        on_threads: on the CPU, called on any thread with the number of threads that compute this
        rank's steps, at the start and after changes.

        Loading runs on a temporary thread, so that its OpenMP workers end with it. While they exist,
        the workers of the thread that calls `run` would sleep instead of spin between products: with
        two cores, a step of a small model would take twice as long.
        """
        with ThreadPoolExecutor(1) as executor:
            loading = executor.submit(cls._load, config, on_weights, on_rank_exit, on_threads)
            return loading.result()

    @classmethod
    def _load(
        cls,
        config: RunnerConfig,
        on_weights: Callable[[], None],
        on_rank_exit: Callable[[], None],
        on_threads: Callable[[int], None],
    ) -> "Runner":
        num_ranks = config.layout.num_ranks
        num_threads_each = max(1, allowed_threads() // num_ranks)
        threads = None
        if config.device == "cpu":
            torch.set_num_threads(num_threads_each)
            threads = CpuThreads(num_threads_each, on_count=on_threads)
        model: PagedModel | ParallelModel
        if num_ranks > 1:
            log_format, log_level = logs.current_settings()
            part = RankConfig(
                rank=0, config=config, num_threads=num_threads_each,
                log_format=log_format, log_level=log_level,
            )  # fmt: skip
            model = ParallelModel.load(part, on_rank_exit)
        else:
            model = PagedModel.load(config)
        draft = _load_draft(config, model)
        runner = cls(model, draft, is_ahead=config.async_scheduling, threads=threads)
        on_weights()
        runner.warm_up(warm_up.warm_up_steps(config, model.groupings))
        return runner

    @torch.inference_mode()
    def launch(self, step: Step) -> PendingStep:
        """Start computing a step, all but its sampling, without waiting for it.

        First the previous step is sampled. It may still be running, but the step before it must be
        completed. Raises RunnerDiedError.
        """
        with nullcontext() if self._threads is None else self._threads.step():
            return self._launch(step)

    def _launch(self, step: Step) -> PendingStep:
        self._copy_blocks(step.block_copies)
        sampled, sequences = self._sample_previous_step(step.sequences)
        sequences.sort(key=row_order)
        if self._draft is not None:
            sequences = sorted(self._draft.propose(sequences, sampled), key=row_order)
        hidden = self._model.forward(sequences, sampled)
        self._unread = sequences, hidden
        self._last = self._start_outputs(sequences, hidden)
        return self._last

    def _copy_blocks(self, copies: BlockCopies) -> None:
        """Copy blocks for the next step. Raises RunnerDiedError if that fails.

        The copied blocks may already belong to other sequences, so no later step could be correct.
        """
        try:
            self._model.copy_blocks(copies)
            if self._draft is not None:
                self._draft.model.copy_blocks(copies)
        except Exception as error:
            raise RunnerDiedError("blocks of keys and values could not be copied") from error

    def run(self, step: Step) -> dict[str, SequenceOutput]:
        """Compute a step. Returns its outputs by request id. Raises RunnerDiedError."""
        return self.launch(step).wait()

    def close(self) -> None:
        """End the processes of other ranks. Without it, they end with the last reference."""
        if isinstance(self._model, ParallelModel):
            self._model.close()

    @property
    def adapters(self) -> Adapters | ParallelAdapters:
        """The LoRA adapters. The runner must have been loaded with max_adapters."""
        adapters = self._model.adapters
        assert adapters is not None, "the runner was loaded without adapters"
        return adapters

    @torch.inference_mode()
    def warm_up(self, steps: Sequence[Step]) -> None:
        """Record CUDA graphs, and run steps (warm_up.py), before the first request.

        The steps write only to block 0, which is not in the prefix cache yet.
        """
        for model in (self._model, None if self._draft is None else self._draft.model):
            if isinstance(model, PagedModel):
                model.record_graphs()
        has_adapter = any(sequence.adapter for step in steps for sequence in step.sequences)
        if has_adapter:
            neutral = neutral_adapter(self.adapters.targets, self._model.dtype)
            self.adapters.add(warm_up.ADAPTER, neutral)
        for step in steps:
            self.run(step)
        if has_adapter:
            self.adapters.remove(warm_up.ADAPTER)
        self._last = self._unread = None

    def _sample_previous_step(
        self, sequences: Sequence[ScheduledSequence]
    ) -> tuple[torch.Tensor | None, list[ScheduledSequence]]:
        """Sample the previous step. Returns its tokens, and this step's sequences with pending tokens
        replaced by references to them.

        A sampling failure belongs to the previous step and is reported there. It is raised here only
        if a sequence of this step needs one of its tokens.
        """
        last, self._last = self._last, None
        unread, self._unread = self._unread, None
        needs_previous_tokens = any(s.token_ids == PENDING_TOKEN for s in sequences)
        if last is not None:
            try:
                last.enqueue_sampling()
            except Exception:
                if needs_previous_tokens:
                    raise
            else:
                self._feed_draft_head(last, unread)
        if not needs_previous_tokens:
            return None, list(sequences)
        if last is None:
            raise RuntimeError("the previous step samples no tokens")
        rows = last.rows
        return last.tokens, [
            s._replace(token_ids=(pending_token_id(rows[s.request_id, s.start]),))
            if s.token_ids == PENDING_TOKEN
            else s
            for s in sequences
        ]

    def _feed_draft_head(
        self, last: PendingStep, unread: tuple[list[ScheduledSequence], torch.Tensor] | None
    ) -> None:
        """Pass the previous step to the draft head, which needs its sampled tokens and hidden states."""
        if self._draft is not None and unread is not None:
            sequences, hidden = unread
            self._draft.read(sequences, hidden, last.tokens, last.rows)

    def _start_outputs(
        self, sequences: Sequence[ScheduledSequence], hidden: torch.Tensor
    ) -> PendingStep:
        """Launch the logits and other outputs of a step. hidden: [tokens, hidden_size]."""
        ends = np.cumsum([sequence.num_tokens for sequence in sequences])
        sampled_sequences = [
            (s, end) for s, end in zip(sequences, ends, strict=True) if s.is_sampled
        ]
        logits = None
        if sampled_sequences:
            rows = np.concatenate(
                [np.arange(end - s.num_rows, end) for s, end in sampled_sequences]
            )
            logits = self._model.logits(hidden[send(torch.from_numpy(rows), self._model.device)])
        embeddings = {
            s.request_id: fetch(self._model.embeddings(hidden[end - 1 : end])[0])
            for s, end in sampled_sequences
            if s.sampling.wants_embedding
        }
        prompt_logprobs = {
            s.request_id: logprobs
            for s, end in zip(sequences, ends, strict=True)
            if s.wants_prompt_logprobs
            and (logprobs := self._prompt_logprobs(s, hidden[end - s.num_tokens : end]))
        }
        extra = ExtraOutputs(embeddings, prompt_logprobs)
        return PendingStep(
            [s for s, _ in sampled_sequences], logits, extra, self._states, self._model.device
        )

    def _prompt_logprobs(
        self, sequence: ScheduledSequence, hidden: torch.Tensor
    ) -> LogprobBuffer | None:
        """Log-probabilities of a chunk's prompt tokens; None if there are none. hidden: [tokens of the
        chunk, hidden_size]; each position gives those of the token after it."""
        end = min(sequence.end, sequence.num_prompt_tokens - 1)
        if end <= sequence.start:
            return None
        model = self._model
        top = min(sequence.sampling.prompt_logprobs or 0, model.vocab_size)
        buffer = LogprobBuffer(end - sequence.start, top, model.device)
        num_rows = rows_at_once(model.vocab_size, model.device)
        for first in range(sequence.start, end, num_rows):
            last = min(end, first + num_rows)
            logits = model.logits(hidden[first - sequence.start : last - sequence.start])
            tokens = torch.tensor(sequence.history[first + 1 : last + 1])
            buffer.fill(logits, send(tokens, logits.device))
        buffer.fetch()
        return buffer


def _load_draft(
    config: RunnerConfig, model: PagedModel | ParallelModel
) -> DraftModel | DraftHead | None:
    """Load the draft model or draft head; None if none is configured. Raises ModelError."""
    if config.draft_model_dir is None:
        return None
    own = replace(config, model_dir=config.draft_model_dir, quantization=None, max_adapters=0)
    if config.draft_method == "draft_model":
        return DraftModel(PagedModel.load(own))
    assert isinstance(model, PagedModel), "preflight refuses a head for a model that is spread"
    return DraftHead.load(own, model)
