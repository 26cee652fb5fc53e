"""A decoder with its paged KV cache, and the input tensors of a forward pass."""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import numpy as np
import torch

from penstock_engine.checkpoints.loading import load_weights, warn_of_unused_head
from penstock_engine.core.step import BlockCopies, ScheduledSequence
from penstock_engine.execution.decode_graphs import DecodeBuffers, DecodeGraphs
from penstock_engine.execution.graph_sizes import recorded_sizes
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.kernels.operations import operations
from penstock_engine.kernels.transfer import host_buffer, send
from penstock_engine.layers.attention import Span, StepAttention
from penstock_engine.layers.gathered_attention import GatheredAttention
from penstock_engine.layers.host_blocks import HostBlocks
from penstock_engine.layers.kv_cache import KVCache
from penstock_engine.layers.paged_attention import PagedAttention
from penstock_engine.layers.parallel_group import SINGLE_RANK, ParallelGroup
from penstock_engine.layers.pending_tokens import fill_pending
from penstock_engine.lora.adapters import Adapters
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.decoder import DecoderForCausalLM
from penstock_engine.models.draft_head import DraftHeadDecoder
from penstock_engine.models.shard import Shard, unsharded


class Stages(Protocol):
    """Communication between pipeline stages, in a ring: the last stage sends to the first."""

    @property
    def is_first(self) -> bool: ...

    def send(self, x: torch.Tensor) -> None:
        """Send hidden states to the next stage."""
        ...

    def receive(self, x: torch.Tensor) -> torch.Tensor:
        """Receive the previous stage's hidden states into x, and return it."""
        ...


class PagedModel:
    """A model's weights and its KV cache of num_blocks blocks. Not thread-safe.

    It may be one rank's part of a model; then all ranks call the same methods in the same order.
    """

    def __init__(
        self,
        model: DecoderForCausalLM | DraftHeadDecoder,
        config: RunnerConfig,
        stages: Stages | None = None,
    ) -> None:
        """stages: connection to the other pipeline stages; None if there is only one."""
        self.device = device = config.device
        self.config = model.shard.config
        self.decoder = model
        self.dtype: torch.dtype = getattr(torch, config.dtype)
        self._block_size = config.block_size
        self._stages = stages
        kv_dtype: torch.dtype = getattr(torch, config.kv_dtype or config.dtype)
        self._is_quantized = kv_dtype != self.dtype
        self._caches = [
            KVCache.zeros(
                # The additional last block holds zeros: padding reads it.
                spec.shape(config.num_blocks + 1, config.block_size),
                kv_dtype,
                is_scaled=self._is_quantized,
                device=device,
            )
            for spec in model.shard.kv_specs
        ]
        self._parts = [part for cache in self._caches for part in cache.parts]
        self._host_blocks = None
        if config.num_host_blocks and self._parts:
            self._host_blocks = HostBlocks(self._parts, config.num_host_blocks)
        self._max_adapters = max_adapters = config.max_adapters
        self.adapters = None
        if max_adapters:
            self.adapters = Adapters(
                model, model.shard, device, max_adapters, max_rank=config.max_lora_rank
            )
        self._graphs = self._make_graphs(config)

    @classmethod
    def load(
        cls,
        config: RunnerConfig,
        *,
        shard: Shard | None = None,
        group: ParallelGroup = SINGLE_RANK,
        stages: Stages | None = None,
    ) -> "PagedModel":
        """Load the model of config.model_dir. shard: the rank's part; None: all of it.

        Raises ModelError.
        """
        shard = shard or unsharded(ModelConfig.load(config.model_dir))
        scheme = shard.config.scheme(config.quantization, config.dtype)
        dtype: torch.dtype = getattr(torch, config.dtype)
        model = DecoderForCausalLM(
            shard.config,
            max_positions=config.max_model_len,
            dtype=dtype,
            device=config.device,
            shard=shard,
            group=group,
        )
        names = shard.config.family.names
        load_weights(
            model, config.model_dir, names, dtype, config.device, scheme, shard.config.dense_modules
        )
        has_first_rows = shard.is_first_stage and shard.vocabulary.local.start == 0
        if has_first_rows and shard.config.tie_word_embeddings:
            warn_of_unused_head(config.model_dir, model.model.embed_tokens.weight)
        return cls(model, config, stages)

    def _make_graphs(self, config: RunnerConfig) -> DecodeGraphs | None:
        recorder = operations(self.device).recorder
        if recorder is None or config.enforce_eager:
            return None
        if self._stages is not None or not self.decoder.has_fixed_launches:
            return None
        sizes = recorded_sizes(config.max_num_seqs)
        buffers = DecodeBuffers(sizes[-1], config.max_model_len, config.block_size, self.device)
        forward = partial(self.decoder, caches=self._caches)
        return DecodeGraphs(forward, buffers, sizes, recorder())

    def record_graphs(self) -> None:
        """Record the CUDA graphs of decode steps, before the first step, where the model has any."""
        if self._graphs is not None:
            if self.adapters is not None:
                self.adapters.select(())
            self._graphs.record()

    def copy_blocks(self, copies: BlockCopies) -> None:
        """Copy whole blocks, in the order of the fields of `copies`, before a step's `forward`."""
        if self._host_blocks is not None:
            for block, slot in copies.saves:
                self._host_blocks.save(block, slot)
            for slot, block in copies.restores:
                self._host_blocks.restore(slot, block)
        for source, target in copies.forks:
            for part in self._parts:
                part[:, target].copy_(part[:, source])

    def forward(
        self,
        sequences: Sequence[ScheduledSequence],
        sampled: torch.Tensor | None = None,
        received: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Run the forward pass, and write keys and values to the cache.

        sequences: in `row_order`. sampled: int64 [rows], tokens of the previous step that replace
        placeholders. received: hidden states that a draft head reads in addition to tokens.

        Returns the hidden states of the last layer for all tokens, [tokens, hidden_size], valid until
        the next call; with pipeline stages, only on those of the first stage.
        """
        if self.adapters is not None:
            self.adapters.select(sequences)
        if self._graphs is not None:
            replayed = self._graphs.run(sequences, sampled)
            if replayed is not None:
                return replayed
        token_ids, positions, slots = self._stage(sequences)
        if sampled is not None:
            fill_pending(token_ids, sampled)
        attend = self._attention(sequences, slots)
        stages, hidden = self._stages, received
        if stages is not None and not stages.is_first:
            hidden = stages.receive(self.empty_rows(len(token_ids)))
        hidden = self.decoder(token_ids, positions, attend, self._caches, hidden)
        if stages is not None:
            stages.send(hidden)
            if stages.is_first:
                hidden = stages.receive(self.empty_rows(len(token_ids)))
        return hidden

    def _attention(
        self, sequences: Sequence[ScheduledSequence], slots: torch.Tensor
    ) -> StepAttention:
        spans = [Span(s.start, s.end, s.block_table) for s in sequences]
        if operations(self.device).has_kernels:
            return PagedAttention.of(spans, slots, self._block_size)
        return GatheredAttention(spans, slots, dtype=self.dtype, is_quantized=self._is_quantized)

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def groupings(self) -> list[tuple[int, int]]:
        """Number of groups, and rows of a token, of each product whose rows are grouped."""
        groupings = []
        if self.config.experts is not None:
            num_experts = len(self.decoder.shard.experts.local)
            groupings.append((num_experts, self.config.experts.num_experts_per_token))
        if self._max_adapters:
            groupings.append((self._max_adapters, 1))
        return groupings

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [rows, vocabulary]. hidden: [rows, hidden_size], of the rows that are needed."""
        return self.decoder.logits(hidden)

    def empty_rows(self, num_rows: int) -> torch.Tensor:
        """Uninitialized tensor of hidden states, [num_rows, hidden_size]."""
        size = (num_rows, self.config.hidden_size)
        return torch.empty(size, dtype=self.dtype, device=self.device)

    def normed(self, hidden: torch.Tensor) -> torch.Tensor:
        """Apply the final norm. hidden: [rows, hidden_size], output of the last layer."""
        return self.decoder.normed(hidden)

    def embeddings(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states after the final norm, in float32. hidden: [rows, hidden_size]."""
        return self.decoder.normed(hidden).float()

    def _stage(self, sequences: Sequence[ScheduledSequence]) -> torch.Tensor:
        """Copy token ids, positions and slots of the packed batch to the device: int64 [3, tokens].

        They share a buffer, so that one copy to the device is enough.
        """
        num_tokens = sum(sequence.num_tokens for sequence in sequences)
        host = host_buffer((3, num_tokens), torch.int64, self.device)
        staging = host.numpy()
        row = 0
        for sequence in sequences:
            staged = staging[:, row : row + sequence.num_tokens]
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
        return send(host, self.device)


def row_order(sequence: ScheduledSequence) -> tuple[bool, int]:
    """Sort key for the order of GatheredAttention: single tokens by ascending length, then chunks."""
    return sequence.num_tokens > 1, sequence.end
