"""Command-line flags of the engine, with vLLM's names if vLLM has them.

Each field of EngineConfig is a flag, with its type, default, bounds and help text. Flags of the HTTP
server are in serve_options.py.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from penstock_engine.core.speculation import SpeculationConfig
from penstock_engine.flag_values import context_length, count, speculation
from penstock_engine.models.shard import Layout
from penstock_engine.quantization.rounding import Quantization

# Default fraction of the memory that an engine may use.
MEMORY_UTILIZATION = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Configuration of the engine. None: the value is derived from the model and available memory."""

    model_dir: Path
    tokenizer: Annotated[
        Path | None,
        Option(
            help="Folder or GGUF file of the tokenizer and chat template. Default: the model's."
        ),
    ] = None
    max_model_len: Annotated[
        int | None,
        Option(
            parser=context_length,
            metavar="INTEGER|auto",
            help="Tokens of one request at most; auto or -1: as many as there is memory for.",
        ),
    ] = None
    max_num_seqs: Annotated[int, Option(min=1, help="Requests that run at once.")] = 64
    max_num_batched_tokens: Annotated[
        int, Option(parser=count, metavar="INTEGER", help="Token budget of one step.")
    ] = 512
    max_num_queued_reqs: Annotated[
        int, Option(min=1, help="Requests that wait; beyond them the answer is 503.")
    ] = 1024
    max_num_queued_tokens: Annotated[
        int | None,
        Option(min=1, help="Prompt tokens that wait for their answer to begin; beyond them 503."),
    ] = None
    scheduling_policy: Annotated[
        Literal["fcfs", "priority"],
        Option(help="priority: requests with a lower `priority` go first."),
    ] = "fcfs"
    block_size: Annotated[int, Option(min=1, max=1024, help="Tokens in a block of KV cache.")] = 16
    num_gpu_blocks_override: Annotated[
        int | None, Option(min=1, help="Number of blocks, instead of a size.")
    ] = None
    kv_cache_memory_bytes: Annotated[
        int | None, Option(parser=count, metavar="INTEGER", help="Bytes of the KV cache.")
    ] = None
    gpu_memory_utilization: Annotated[
        float | None,
        Option(
            min=0.01,
            max=1,
            help=f"Fraction of the memory to use. Default: {MEMORY_UTILIZATION}; on the CPU, the KV "
            "cache then gets at most 4 GiB and at most a quarter of the memory.",
        ),
    ] = None
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        Option(help="Of weights, activations and KV cache."),
    ] = "auto"
    quantization: Annotated[
        Quantization | None,
        Option(
            help="Hold weights rounded to 8 or 4 bits. A checkpoint that is quantised (AWQ, GPTQ, "
            "FP8, compressed-tensors) is read as it is, without this."
        ),
    ] = None
    kv_cache_dtype: Annotated[
        Literal["auto", "int8", "fp8", "fp8_e4m3"],
        Option(help="Hold keys and values rounded to 8 bits; auto: as they are."),
    ] = "auto"
    enable_prefix_caching: Annotated[
        bool, Option(help="Share blocks between requests that begin alike.")
    ] = True
    speculative_config: Annotated[
        SpeculationConfig | None,
        Option(
            parser=speculation,
            metavar="JSON",
            help='{"method": "ngram" | "suffix" | "draft_model" | "eagle", "num_speculative_tokens": 4, ...}',
        ),
    ] = None
    max_logprobs: Annotated[
        int,
        Option(
            min=-1,
            help="Maximum of a request's logprobs, top_logprobs and prompt_logprobs; -1: the size of "
            "the vocabulary.",
        ),
    ] = 20
    kv_offloading_size: Annotated[
        float | None, Option(min=0, help="GiB of host memory for blocks evicted from the KV cache.")
    ] = None
    enable_lora: Annotated[bool, Option(help="Serve LoRA adapters.")] = False
    max_loras: Annotated[int, Option(min=1, help="Adapters that run at once.")] = 8
    max_lora_rank: Annotated[int, Option(min=1, max=512, help="Of any adapter.")] = 16
    max_cpu_loras: Annotated[
        int | None, Option(min=1, help="Adapters kept in host memory. Default: --max-loras.")
    ] = None
    async_scheduling: Annotated[
        bool, Option(help="On cuda: schedule a step while the one before it is computed.")
    ] = True
    enforce_eager: Annotated[
        bool, Option(help="On cuda: launch every kernel anew, and record no steps as graphs.")
    ] = False
    seed: Annotated[
        int | None,
        Option(
            help="Seed of the generator that gives requests without a seed one; the same value gives "
            "the same seeds in the same order. Default: random, so that engines differ."
        ),
    ] = None
    device: Annotated[Literal["auto", "cpu", "cuda"], Option(help="Where to compute.")] = "auto"
    tensor_parallel_size: Annotated[
        int, Option(min=1, max=64, help="Processes that share each layer; on cuda, devices.")
    ] = 1
    pipeline_parallel_size: Annotated[
        int, Option(min=1, max=64, help="Processes, or devices, that have different layers.")
    ] = 1
    enable_expert_parallel: Annotated[
        bool,
        Option(help="Processes that share a layer have some of its experts, not a part of each."),
    ] = False

    @property
    def tokenizer_dir(self) -> Path:
        return self.tokenizer or self.model_dir

    @property
    def layout(self) -> Layout:
        return Layout(
            self.tensor_parallel_size, self.pipeline_parallel_size, self.enable_expert_parallel
        )

    def max_reported_logprobs(self, vocab_size: int) -> int:
        """Maximum number of log-probabilities that a request may ask for at each position."""
        return vocab_size if self.max_logprobs < 0 else min(self.max_logprobs, vocab_size)

    @property
    def memory_utilization(self) -> float:
        """Fraction of the memory to use, 0 to 1."""
        given = self.gpu_memory_utilization
        return MEMORY_UTILIZATION if given is None else given

    @property
    def max_host_loras(self) -> int:
        """Number of adapters in host memory, running ones included."""
        return max(self.max_loras, self.max_cpu_loras or 0)

    @property
    def has_draft_head(self) -> bool:
        config = self.speculative_config
        return config is not None and config.method == "eagle"

    @property
    def num_drafts(self) -> int:
        """Maximum number of draft tokens for one sequence in one step."""
        config = self.speculative_config
        return 0 if config is None else config.num_speculative_tokens

    @property
    def draft_model_dir(self) -> Path | None:
        """Folder of the draft model; None without one."""
        config = self.speculative_config
        return None if config is None or config.model is None else Path(config.model)
