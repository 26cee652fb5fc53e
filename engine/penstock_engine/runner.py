"""Step -> tensors -> model -> sampled token ids."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.step import Sampled, ScheduledSequence, Step, TokenLogprobs
from penstock_engine.device import num_threads
from penstock_engine.layers.attention import Span, StepAttention
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.decoder import PACKED, DecoderForCausalLM
from penstock_engine.sampling.logprobs import token_logprobs
from penstock_engine.sampling.sampler import sample
from penstock_engine.weights import load_weights

WARM_UP_TOKENS = 16
# Rows of logits of a prompt that exist at once: 150,000 tokens of vocabulary are 40 MB then.
PROMPT_LOGPROB_ROWS = 64


class Runner:
    """Owns the weights and the KV cache. One thread at a time."""

    def __init__(
        self,
        model: DecoderForCausalLM,
        config: ModelConfig,
        *,
        device: str,
        dtype: torch.dtype,
        num_blocks: int,
        block_size: int,
        max_num_batched_tokens: int,
    ) -> None:
        self.config = config
        self._model = model
        self._device = device
        self._dtype = dtype
        self._use_kernels = device == "cuda"
        self._block_size = block_size
        shape = (2, num_blocks, block_size, config.num_kv_heads, config.head_dim)
        # Zeros: padding reads blocks never written, and even a weight of 0 does not undo a NaN.
        self._caches = [
            torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.num_layers)
        ]
        # Rows: token ids, positions, slots. One buffer, one copy to the device.
        self._staging = np.zeros((3, max_num_batched_tokens), dtype=np.int64)

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
    ) -> "Runner":
        """device: cpu or cuda; dtype: float32, bfloat16 or float16. Raises ModelError.

        Loads in a thread of its own, and so frees the OpenMP workers of loading with it. As long
        as they existed, those of the thread that calls `run` would sleep instead of spin between
        products: with two cores, a small model would take twice as long for a step.
        """
        with ThreadPoolExecutor(1) as executor:
            return executor.submit(
                cls._load,
                model_dir,
                device=device,
                dtype=dtype,
                num_blocks=num_blocks,
                block_size=block_size,
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=max_num_batched_tokens,
                max_model_len=max_model_len,
            ).result()

    @classmethod
    def _load(
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
    ) -> "Runner":
        if device == "cpu":
            torch.set_num_threads(min(torch.get_num_threads(), num_threads()))
        config = ModelConfig.load(model_dir)
        torch_dtype: torch.dtype = getattr(torch, dtype)
        model = DecoderForCausalLM(
            config, max_positions=max_model_len, dtype=torch_dtype, device=device
        )
        load_weights(model, model_dir, PACKED, torch_dtype, device)
        runner = cls(
            model,
            config,
            device=device,
            dtype=torch_dtype,
            num_blocks=num_blocks,
            block_size=block_size,
            max_num_batched_tokens=max_num_batched_tokens,
        )
        runner._warm_up(min(max_num_seqs, max_num_batched_tokens), max_model_len)
        return runner

    @torch.inference_mode()
    def run(self, step: Step) -> dict[str, Sampled]:
        """Computes a step. Returns what each sequence draws or is told of its prompt."""
        sequences = sorted(step.sequences, key=_row_order)
        token_ids, positions, slots = self._stage(sequences)
        attend = StepAttention(
            [Span(s.start, s.end, s.block_table) for s in sequences],
            slots,
            cache_shape=self._caches[0].shape,
            dtype=self._dtype,
            use_kernels=self._use_kernels,
        )
        hidden = self._model(token_ids, positions, self._caches, attend)
        return self._sample(sequences, hidden)

    def _stage(self, sequences: list[ScheduledSequence]) -> torch.Tensor:
        """Token ids, positions and slots of the packed batch: int64 [3, tokens]."""
        row = 0
        for sequence in sequences:
            staged = self._staging[:, row : row + sequence.num_tokens]
            staged[0] = sequence.token_ids
            if sequence.num_tokens == 1:
                block, offset = divmod(sequence.start, self._block_size)
                staged[1] = sequence.start
                staged[2] = sequence.block_table[block] * self._block_size + offset
            else:
                blocks, offsets = np.divmod(
                    np.arange(sequence.start, sequence.end), self._block_size
                )
                staged[1] = np.arange(sequence.start, sequence.end)
                staged[2] = np.array(sequence.block_table)[blocks] * self._block_size + offsets
            row += sequence.num_tokens
        return torch.from_numpy(self._staging[:, :row]).to(self._device)

    def _sample(
        self, sequences: list[ScheduledSequence], hidden: torch.Tensor
    ) -> dict[str, Sampled]:
        results: dict[str, Sampled] = {}
        ends = np.cumsum([sequence.num_tokens for sequence in sequences])
        drawing = [(s, end) for s, end in zip(sequences, ends, strict=True) if s.is_sampled]
        if drawing:
            rows = np.concatenate([np.arange(end - s.num_rows, end) for s, end in drawing])
            logits = self._model.logits(hidden[torch.from_numpy(rows).to(self._device)])
            drawn = sample(logits, [sequence for sequence, _ in drawing])
            results = {s.request_id: d for (s, _), d in zip(drawing, drawn, strict=True)}
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

    def _warm_up(self, num_sequences: int, max_model_len: int) -> None:
        """Reads the weights in and prepares kernels, so that the first request need not.

        Writes to block 0 only, which nobody has published.
        """
        num_tokens = min(WARM_UP_TOKENS, self._block_size, max_model_len, self._staging.shape[1])
        greedy = SamplingParams(max_tokens=1, temperature=0.0)

        def sequence(name: str, num_tokens: int) -> ScheduledSequence:
            tokens = (0,) * num_tokens
            return ScheduledSequence(name, 0, tokens, (0,), True, greedy, tokens, num_tokens)

        self.run(Step((sequence("", num_tokens),)))
        self.run(Step(tuple(sequence(str(i), 1) for i in range(num_sequences))))


def _row_order(sequence: ScheduledSequence) -> tuple[bool, int]:
    """Single tokens by rising length, then chunks: the order that StepAttention expects."""
    return sequence.num_tokens > 1, sequence.end
