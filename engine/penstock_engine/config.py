"""What one engine is told. Each field is a flag of the command line, by vLLM's name where it has one.

A flag is declared here and nowhere else: its name, its type, its default, its bounds, its help.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import BadParameter, Option

from penstock_engine.core.speculation import SpeculationConfig
from penstock_engine.lora_modules import LoraModule, read_lora_modules
from penstock_engine.models.shard import Layout
from penstock_engine.quantization.rounding import Quantization

# A context length that is worked out: the longest for which the KV cache has room.
FIT = -1

ContentFormat = Literal["auto", "string", "openai"]

# Default fraction of the memory that an engine may use.
MEMORY_UTILIZATION = 0.9

SIZES = {"k": 1000, "K": 2**10, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30}


def context_length(text: str) -> int:
    """auto, -1, 4096, 4k (4000) or 4K (4096). Raises BadParameter."""
    if text in ("auto", "-1"):
        return FIT
    try:
        length = _scaled(text)
    except (ValueError, OverflowError):
        length = 0
    if length < 2:
        raise BadParameter(f"{text!r} is neither auto nor a number of tokens from 2")
    return length


def count(given: str | int) -> int:
    """Parses 4096, 4k (4000) or 4K (4096); passes numbers through. Raises BadParameter."""
    try:
        number = _scaled(given) if isinstance(given, str) else given
    except (ValueError, OverflowError):
        number = 0
    if number < 1:
        raise BadParameter(f"{given!r} is not a whole number of at least 1")
    return number


def _scaled(text: str) -> int:
    number, scale = (text[:-1], SIZES[text[-1]]) if text[-1:] in SIZES else (text, 1)
    return int(number) if scale == 1 else int(float(number) * scale)


def json_object(given: str | dict[str, Any]) -> dict[str, Any]:
    """Of its text; a default is one already. Raises BadParameter."""
    value = _json(given) if isinstance(given, str) else given
    if not isinstance(value, dict):
        raise BadParameter(f"{given!r} is not a JSON object")
    return value


def speculation(text: str) -> SpeculationConfig:
    """vLLM's JSON. Raises BadParameter, which says what is wrong."""
    try:
        return SpeculationConfig(**json_object(text))
    except (ValueError, TypeError) as error:
        raise BadParameter(str(error)) from error


def json_texts(given: str | Sequence[str]) -> list[str]:
    """Of a JSON list's text; a default is one already. Raises BadParameter."""
    value = _json(given) if isinstance(given, str) else list(given)
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise BadParameter(f"{given!r} is not a JSON list of texts")
    return value


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadParameter(f"{text!r} is not JSON") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The flags that shape the engine. None: worked out from the model and the memory there is."""

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

    def max_told_tokens(self, vocab_size: int) -> int:
        """Maximum number of log-probabilities that a request may ask for at each position."""
        return vocab_size if self.max_logprobs < 0 else min(self.max_logprobs, vocab_size)

    @property
    def memory_utilization(self) -> float:
        """Fraction of the memory to use, 0 to 1."""
        given = self.gpu_memory_utilization
        return MEMORY_UTILIZATION if given is None else given

    @property
    def max_host_loras(self) -> int:
        """Adapters in memory: those that run are among them."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The flags that shape the HTTP side."""

    host: Annotated[str, Option(help="The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Option(min=0, max=65535, help="The port to listen on.")] = 8000
    uds: Annotated[
        Path | None, Option(help="A unix socket to listen on, instead of host and port.")
    ] = None
    root_path: Annotated[
        str, Option(help="What a proxy in front takes off the beginning of paths.")
    ] = ""
    ssl_keyfile: Annotated[Path | None, Option(exists=True, help="The TLS key.")] = None
    ssl_certfile: Annotated[Path | None, Option(exists=True, help="The TLS certificate.")] = None
    ssl_ca_certs: Annotated[
        Path | None, Option(exists=True, help="Who may sign the certificates of clients.")
    ] = None
    ssl_cert_reqs: Annotated[
        int, Option(min=0, max=2, help="Certificates of clients: 0 no, 1 may, 2 must.")
    ] = 0
    served_model_names: Annotated[
        list[str],
        Option(
            "--served-model-name",
            help="What clients send as `model`; answers and metrics carry the first.",
        ),
    ] = field(default_factory=list)
    api_keys: Annotated[
        list[str],
        Option(
            "--api-key",
            envvar=["PENSTOCK_ENGINE_API_KEY", "VLLM_API_KEY"],
            help="Asked of clients, as a bearer token; any of several.",
        ),
    ] = field(default_factory=list)
    allowed_origins: Annotated[
        Sequence[str],
        Option(
            parser=json_texts,
            metavar="JSON",
            help='Origins whose pages may call, as `["*"]`. Default: none.',
        ),
    ] = ()
    allowed_methods: Annotated[
        Sequence[str], Option(parser=json_texts, metavar="JSON", help="What those pages may send.")
    ] = ("*",)
    allowed_headers: Annotated[
        Sequence[str], Option(parser=json_texts, metavar="JSON", help="What those pages may send.")
    ] = ("*",)
    allow_credentials: Annotated[bool, Option(help="Whether they may send cookies.")] = False
    enable_auto_tool_choice: Annotated[bool, Option(help="Let the model choose to call tools.")] = (
        False
    )
    exclude_tools_when_tool_choice_none: Annotated[
        bool, Option(help="Hide tools from the template when a request has tool_choice: none.")
    ] = False
    tool_call_parser: Annotated[
        Literal["hermes", "llama3_json", "mistral"] | None,
        Option(help="How the model writes tool calls."),
    ] = None
    reasoning_parser: Annotated[
        Literal["qwen3", "deepseek_r1"] | None, Option(help="How the model writes reasoning.")
    ] = None
    generation_config: Annotated[
        str,
        Option(
            metavar="auto|vllm|FOLDER",
            help="Where sampling parameters that a request leaves out come from: auto is the "
            "model's generation_config.json, vllm is nowhere.",
        ),
    ] = "auto"
    override_generation_config: Annotated[
        dict[str, Any],
        Option(parser=json_object, metavar="JSON", help='Over those, as `{"temperature": 0.5}`.'),
    ] = field(default_factory=dict)
    chat_template: Annotated[
        str | None, Option(help="A Jinja template or its file, instead of the model's own.")
    ] = None
    chat_template_content_format: Annotated[
        ContentFormat,
        Option(
            help="How the template gets the content of messages: as one text (string), as a list of "
            "parts (openai), or as a list where it has a loop over it (auto)."
        ),
    ] = "auto"
    default_chat_template_kwargs: Annotated[
        dict[str, Any],
        Option(
            parser=json_object, metavar="JSON",
            help="Variables of the chat template for requests that do not set them.",
        ),
    ] = field(default_factory=dict)  # fmt: skip
    enable_tokenizer_info_endpoint: Annotated[
        bool, Option(help="Add the route /tokenizer_info, which shows the chat template.")
    ] = False
    enable_request_id_headers: Annotated[
        bool, Option(help="Answer with the request's id in X-Request-Id.")
    ] = True
    enable_log_requests: Annotated[
        bool, Option(help="One JSON line on standard output for each answer, without its text.")
    ] = True
    enable_prompt_tokens_details: Annotated[
        bool,
        Option(
            help="Report the cached prompt tokens in `usage`. The Responses and Messages APIs always "
            "report them."
        ),
    ] = False
    return_tokens_as_token_ids: Annotated[
        bool,
        Option(
            help="Write tokens in log-probabilities as `token_id:N`, unless a request overrides it."
        ),
    ] = False
    max_n_sequences: Annotated[
        int,
        Option(
            min=1, max=16_384, help="Maximum number of choices of a request: its prompts times `n`."
        ),
    ] = 128
    enable_force_include_usage: Annotated[
        bool, Option(help="Put usage into every chunk of every stream, asked for or not.")
    ] = False
    lora_modules: Annotated[
        list[str],
        Option(
            metavar="NAME=FOLDER|JSON",
            help="Adapters to load at the start: NAME=FOLDER, or JSON with name, path and "
            "base_model_name, or a JSON list of such objects; may be repeated.",
        ),
    ] = field(default_factory=list)
    lora_dir: Annotated[
        Path | None,
        Option(help="Where adapters that are loaded later must lie; without it none can be."),
    ] = None
    enable_sleep_mode: Annotated[
        bool, Option(help="Routes that put the engine to sleep and wake it.")
    ] = False
    enable_responses_store: Annotated[
        bool,
        Option(
            envvar="VLLM_ENABLE_RESPONSES_API_STORE",
            help="Keep responses of /v1/responses in memory, so that they can be read, cancelled and "
            "continued.",
        ),
    ] = False
    otlp_traces_endpoint: Annotated[
        str | None,
        Option(metavar="URL", help="Where spans go, as http://collector:4318/v1/traces."),
    ] = None
    uvicorn_log_level: Annotated[
        Literal["critical", "error", "warning", "info", "debug", "trace"],
        Option(help="Of the HTTP server."),
    ] = "warning"
    request_timeout_s: Annotated[
        float | None,
        Option(
            "--request-timeout",
            min=0.001,
            help="Seconds that any request may take; a client may ask for less in X-Request-"
            "Timeout-S.",
        ),
    ] = None
    shutdown_timeout_s: Annotated[
        float,
        Option(
            "--shutdown-timeout", min=0, help="Seconds that running requests get after SIGTERM."
        ),
    ] = 30.0

    def __post_init__(self) -> None:
        if "" in self.api_keys:
            raise BadParameter("--api-key must not be empty")
        if (self.ssl_keyfile is None) != (self.ssl_certfile is None):
            raise BadParameter("--ssl-keyfile and --ssl-certfile go together")
        try:
            _ = self.adapters
        except ValueError as error:
            raise BadParameter(str(error)) from error

    @property
    def adapters(self) -> list[LoraModule]:
        return [module for text in self.lora_modules for module in read_lora_modules(text)]
