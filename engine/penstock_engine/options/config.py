"""Command-line flags of the engine, with vLLM's names if vLLM has them.

Each field of EngineConfig is a flag, with its type, default, bounds and help text. Flags of the HTTP
server are in serve_options.py.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from penstock_engine.core.speculation.config import SpeculationConfig
from penstock_engine.kv_events.config import KVEventsConfig
from penstock_engine.models.shard import Layout
from penstock_engine.options.flag_values import context_length, count, kv_events, speculation
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
            help=(
                "Folder or GGUF file with the tokenizer and chat template. Default: the "
                "model's own."
            )
        ),
    ] = None
    max_model_len: Annotated[
        int | None,
        Option(
            parser=context_length,
            metavar="INTEGER|auto",
            help=(
                "Maximum number of tokens of one request, prompt and answer together. auto "
                "or -1: as many as memory allows. Default: the model's context length."
            ),
        ),
    ] = None
    max_num_seqs: Annotated[
        int | None,
        Option(
            min=1,
            help=(
                "Maximum number of sequences that run at the same time. Default: 64 on the CPU, 256 "
                "on a GPU, and 1024 on one of 70 GiB or more; fewer if memory or "
                "--max-num-batched-tokens allow no more."
            ),
        ),
    ] = None
    max_num_batched_tokens: Annotated[
        int | None,
        Option(
            parser=count,
            metavar="INTEGER",
            help=(
                "Maximum number of tokens that one step computes. Default: 512 on the CPU, 2048 on a "
                "GPU, and 8192 on one of 70 GiB or more; fewer if memory allows no more, and at least "
                "--max-num-seqs."
            ),
        ),
    ] = None
    max_num_queued_reqs: Annotated[
        int,
        Option(min=1, help="Maximum number of waiting requests. Further requests get status 503."),
    ] = 1024
    max_num_queued_tokens: Annotated[
        int | None,
        Option(
            min=1,
            help=(
                "Maximum number of prompt tokens of requests without a first token. Further "
                "requests get status 503. Default: no limit."
            ),
        ),
    ] = None
    scheduling_policy: Annotated[
        Literal["fcfs", "priority"],
        Option(
            help=(
                "Order of waiting requests. fcfs: by arrival. priority: by the request's "
                "`priority`, lowest first."
            )
        ),
    ] = "fcfs"
    block_size: Annotated[
        int, Option(min=1, max=1024, help="Number of tokens in one block of the KV cache.")
    ] = 16
    num_gpu_blocks_override: Annotated[
        int | None,
        Option(min=1, help="Number of blocks of the KV cache, instead of a size in bytes."),
    ] = None
    kv_cache_memory_bytes: Annotated[
        int | None,
        Option(
            parser=count,
            metavar="INTEGER",
            help=("Size of the KV cache in bytes. Default: derived from --gpu-memory-utilization."),
        ),
    ] = None
    gpu_memory_utilization: Annotated[
        float | None,
        Option(
            min=0.01,
            max=1,
            help="Fraction of the device's or the process's memory that the engine may use. Default: "
            f"{MEMORY_UTILIZATION}, and on the CPU at most 4 GiB and a quarter of the memory for the KV "
            "cache.",
        ),
    ] = None
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        Option(help="Number type of weights, activations and KV cache."),
    ] = "auto"
    quantization: Annotated[
        Quantization | None,
        Option(
            help=(
                "Round weights to 8 or 4 bits when they are loaded. Checkpoints that are "
                "already quantized (AWQ, GPTQ, FP8, compressed-tensors) need no flag."
            )
        ),
    ] = None
    kv_cache_dtype: Annotated[
        Literal["auto", "int8", "fp8", "fp8_e4m3"],
        Option(
            help=(
                "Number type of the KV cache. int8 and fp8 round keys and values to 8 bits; "
                "auto keeps the type of --dtype."
            )
        ),
    ] = "auto"
    enable_prefix_caching: Annotated[
        bool, Option(help="Reuse blocks of the KV cache for requests with the same beginning.")
    ] = True
    kv_events_config: Annotated[
        KVEventsConfig | None,
        Option(
            parser=kv_events,
            metavar="JSON",
            help='Publish changes of the prefix cache over ZeroMQ: {"enable_kv_cache_events": true, ...}',
        ),
    ] = None
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
            help=(
                "Maximum value of logprobs, top_logprobs and prompt_logprobs of a request. "
                "-1: the size of the vocabulary."
            ),
        ),
    ] = 20
    kv_offloading_size: Annotated[
        float | None,
        Option(
            min=0,
            help=(
                "Host memory in GiB for blocks that are evicted from the KV cache. Default: none."
            ),
        ),
    ] = None
    enable_lora: Annotated[bool, Option(help="Serve LoRA adapters.")] = False
    max_loras: Annotated[
        int, Option(min=1, help="Maximum number of LoRA adapters that run at the same time.")
    ] = 8
    max_lora_rank: Annotated[
        int, Option(min=1, max=512, help="Maximum rank of a LoRA adapter.")
    ] = 16
    max_cpu_loras: Annotated[
        int | None,
        Option(
            min=1,
            help=(
                "Maximum number of LoRA adapters in host memory. Default: the value of --max-loras."
            ),
        ),
    ] = None
    async_scheduling: Annotated[
        bool, Option(help="On cuda, schedule a step while the previous one is computed.")
    ] = True
    enforce_eager: Annotated[
        bool, Option(help="On cuda, do not record decode steps as CUDA graphs.")
    ] = False
    seed: Annotated[
        int | None,
        Option(
            help=(
                "Seed of the generator that draws a seed for each request without one. The "
                "same value draws the same seeds in the same order. Default: random for "
                "each engine."
            )
        ),
    ] = None
    device: Annotated[
        Literal["auto", "cpu", "cuda"],
        Option(help="Device that computes the model. auto: cuda if there is a GPU, else cpu."),
    ] = "auto"
    tensor_parallel_size: Annotated[
        int,
        Option(
            min=1,
            max=64,
            help=("Number of processes that split each layer; on cuda, each has its own device."),
        ),
    ] = 1
    pipeline_parallel_size: Annotated[
        int,
        Option(
            min=1,
            max=64,
            help=("Number of groups of processes that split the layers into consecutive stages."),
        ),
    ] = 1
    enable_expert_parallel: Annotated[
        bool,
        Option(
            help=("Split mixture-of-experts layers by experts instead of splitting every expert.")
        ),
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
    def block_events(self) -> bool:
        """Whether changes of the prefix cache are published."""
        return self.kv_events_config is not None and self.kv_events_config.is_published

    @property
    def memory_utilization(self) -> float:
        """Fraction of the memory to use, 0 to 1."""
        given = self.gpu_memory_utilization
        return MEMORY_UTILIZATION if given is None else given

    @property
    def max_adapters(self) -> int:
        """Number of adapters that may run at once."""
        return self.max_loras if self.enable_lora else 0

    @property
    def max_host_loras(self) -> int:
        """Number of adapters in host memory, running ones included."""
        return max(self.max_loras, self.max_cpu_loras or 0)

    @property
    def has_draft_head(self) -> bool:
        config = self.speculative_config
        return config is not None and config.method == "eagle"

    @property
    def draft_method(self) -> Literal["draft_model", "eagle"]:
        """Kind of the weights in draft_model_dir, if there are any."""
        return "eagle" if self.has_draft_head else "draft_model"

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
