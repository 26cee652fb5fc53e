"""Memory budget of a device: what an engine needs, and what is left for the KV cache. Imports no torch."""

from dataclasses import dataclass

from penstock_engine.core.errors import ModelError, Remedies
from penstock_engine.execution.graph_sizes import graph_bytes, recorded_sizes
from penstock_engine.kernels.attention_sizes import (
    MIN_DOT,
    MOST_ROWS,
    fewest_rows,
    partial_sums_bytes,
)
from penstock_engine.layers.gather_sizes import gathered_bytes
from penstock_engine.machine.device import DeviceMemory
from penstock_engine.memory.batch_limits import BatchLimits
from penstock_engine.models.config import ModelConfig
from penstock_engine.options.config import EngineConfig
from penstock_engine.sampling.sampling_sizes import sampling_bytes

MIB = 2**20

# Memory of interpreter, torch and server: 590 MiB were measured at the start and 620 MiB under load with
# the CUDA build of torch, 255 MiB of them mapped files.
PROGRAM_BYTES = 640 * MIB

# Memory of each additional rank: 286 MiB were measured at the start, in addition to 243 MiB of mapped files
# that it shares with rank 0.
WORKER_BYTES = 320 * MIB

# Smallest size of the KV cache: an engine with less would serve hardly any requests.
MIN_KV_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBudget:
    """Memory of a device and the parts of an engine that need it, in bytes."""

    config: EngineConfig
    model: ModelConfig
    device_name: str
    memory: DeviceMemory  # memory of all ranks on the CPU, of one GPU on cuda
    limits: BatchLimits  # of one step
    fixed_bytes: int  # weights, adapters, and on the CPU evicted blocks
    # Size of the KV cache that the user set; None: the memory that is left
    requested_kv_bytes: int | None
    item_bytes: int  # of one number in the model's type
    draft: ModelConfig | None = None  # the draft model or head

    @property
    def gathered_token_bytes(self) -> int:
        """Bytes of one token in the largest layer of the KV cache, in the model's number type."""
        block_size = self.config.block_size
        specs = (layer.attention.kv for layer in self.model.layers)
        return max(spec.block_bytes(block_size, self.item_bytes) for spec in specs) // block_size

    def free_bytes(self, max_model_len: int) -> int:
        """Bytes that are left for the KV cache. Raises ModelError if they are too few."""
        working_bytes, program_bytes = self._working_bytes(max_model_len), self._program_bytes
        taken_bytes = self.fixed_bytes + working_bytes + program_bytes
        free_bytes = self.memory.usable_bytes(self.config.memory_utilization) - taken_bytes
        kv_bytes = self.requested_kv_bytes or MIN_KV_BYTES
        if free_bytes >= kv_bytes:
            return free_bytes
        program = f"{_mib(program_bytes)} for the program, " if program_bytes else ""
        raise ModelError(
            "MemoryTooSmall",
            f"{_mib(self.fixed_bytes)} of {self._fixed_parts}, {program}{_mib(working_bytes)} of working "
            f"memory and {_mib(kv_bytes)} of KV cache do not fit into {self._share}",
            self._remedies(taken_bytes + kv_bytes),
        )

    def remedies_of_missing(self, missing_bytes: int) -> Remedies:
        """How to give the KV cache missing_bytes more."""
        more_mib = -(-int(missing_bytes / self.config.memory_utilization) // MIB)
        if self.device_name == "cpu":
            return {"MoreMemory": more_mib}
        return {"MoreAcceleratorMemory": more_mib, **self._remedies_of_weights}

    @property
    def _fixed_parts(self) -> str:
        """The parts of fixed_bytes, in words."""
        adapters = " and adapters" if self.config.enable_lora else ""
        evicted = self.device_name == "cpu" and self.config.kv_offloading_size
        return f"weights{adapters}{' and offloaded KV cache' if evicted else ''}"

    @property
    def _share(self) -> str:
        """The memory that the engine may use, in words."""
        total_mib = self.memory.total_bytes // MIB
        share = f"{self.config.memory_utilization:.0%} of {total_mib} MiB"
        if self.device_name == "cpu":
            return share
        used = f" less {_mib(self.memory.used_bytes)} in use" if self.memory.used_bytes else ""
        return f"{share}{used} on each accelerator"

    def _remedies(self, needed_bytes: int) -> Remedies:
        """How to have needed_bytes of memory."""
        total_bytes = int((needed_bytes + self.memory.used_bytes) / self.config.memory_utilization)
        total_mib = -(-total_bytes // MIB)
        if self.device_name == "cpu":
            return {"Memory": total_mib}
        return {"AcceleratorMemory": total_mib, **self._remedies_of_weights}

    @property
    def _remedies_of_weights(self) -> Remedies:
        """How to have less weights on each accelerator."""
        if self.config.quantization is None and self.model.quantization is None:
            return {"MoreRanks": None, "Quantization": None}
        return {"MoreRanks": None}

    @property
    def _program_bytes(self) -> int:
        """Memory of the processes, which on the CPU is part of the same memory."""
        if self.device_name != "cpu":
            return 0
        return PROGRAM_BYTES + (self.config.layout.num_ranks - 1) * WORKER_BYTES

    def _working_bytes(self, max_model_len: int) -> int:
        """Bytes of activations, CUDA graphs, attention's buffers or partial sums, and the sampler."""
        config, model, limits = self.config, self.model, self.limits
        num_ranks = config.layout.num_ranks
        needed_bytes = self._activation_bytes(model, limits.max_num_batched_tokens)
        if self.device_name == "cpu":
            needed_bytes *= num_ranks
            needed_bytes += gathered_bytes(
                max_num_seqs=limits.max_num_seqs,
                num_visible_tokens=min(max_model_len, model.window_tokens or max_model_len),
                token_bytes=self.gathered_token_bytes,
            )
        else:
            needed_bytes += self._partial_sums_bytes(model, MOST_ROWS)
        for recorded in self._recorded_models:
            needed_bytes += self._graph_bytes(recorded, max_model_len)
        return needed_bytes + sampling_bytes(
            max_num_seqs=limits.max_num_seqs,
            rows_per_sequence=1 + config.num_drafts,
            vocab_size=model.vocab_size,
            item_bytes=self.item_bytes,
            device=self.device_name,
            max_logprobs=config.max_reported_logprobs(model.vocab_size),
            max_num_batched_tokens=limits.max_num_batched_tokens,
        )

    @property
    def _recorded_models(self) -> list[ModelConfig]:
        """The models that record CUDA graphs: those on one rank, but no draft head."""
        if self.device_name == "cpu" or self.config.enforce_eager:
            return []
        models = [self.model] if self.config.layout.num_ranks == 1 else []
        if self.draft is not None and not self.config.has_draft_head:
            models.append(self.draft)
        return models

    def _activation_bytes(self, model: ModelConfig, num_tokens: int) -> int:
        return activation_bytes(
            num_tokens=num_tokens,
            hidden_size=model.hidden_size,
            intermediate_size=model.widest_intermediate_size,
            attention_size=max(layer.attention.num_activations for layer in model.layers),
        )

    def _partial_sums_bytes(self, model: ModelConfig, block_rows: int) -> int:
        """Memory of attention's partial sums on a GPU, with tiles of block_rows or one token's heads."""
        most_bytes = 0
        for layer in model.layers:
            kv, projections = layer.attention.kv, layer.attention.projections
            group = max(each.num_heads for each in projections) // kv.num_heads
            layer_bytes = partial_sums_bytes(
                block_rows=max(block_rows, fewest_rows(group)),
                num_kv_heads=kv.num_heads,
                head_dim=kv.head_dim,
            )
            most_bytes = max(most_bytes, layer_bytes)
        return most_bytes

    def _graph_bytes(self, model: ModelConfig, max_model_len: int) -> int:
        """Memory of the CUDA graphs of a model's decode steps, in bytes."""
        largest = recorded_sizes(self.limits.max_num_seqs)[-1]
        return graph_bytes(
            max_num_seqs=self.limits.max_num_seqs,
            max_model_len=max_model_len,
            block_size=self.config.block_size,
            attention_launches=[layer.attention.num_launches for layer in model.layers],
            hidden_size=model.hidden_size,
            item_bytes=self.item_bytes,
            activation_bytes=self._activation_bytes(model, largest)
            + self._partial_sums_bytes(model, MIN_DOT),
        )


def activation_bytes(
    *, num_tokens: int, hidden_size: int, intermediate_size: int, attention_size: int
) -> int:
    """Upper estimate of one forward pass's memory in float32, without weights and KV cache.

    Attention or the MLP needs the most. The MLP has twelve hidden-sized and four MLP-sized tensors at a time.
    Attention has attention_size numbers for each token, and three hidden-sized tensors: the residual, its
    input and its output.
    """
    most = max(12 * hidden_size + 4 * intermediate_size, 3 * hidden_size + attention_size)
    return 4 * num_tokens * most


def _mib(num_bytes: int) -> str:
    return f"{-(-num_bytes // MIB)} MiB"
