"""Command-line flags of the HTTP server. Each field is a flag, with vLLM's name if vLLM has it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import BadParameter, Option

from penstock_engine.options.flag_values import json_object, json_texts
from penstock_engine.options.lora_modules import LoraModule, read_lora_modules
from penstock_engine.telemetry.logs import LogFormat, LogLevel

ContentFormat = Literal["auto", "string", "openai"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Configuration of the HTTP server."""

    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on; 0: a free one.")] = 8000
    uds: Annotated[
        Path | None, Option(help="Unix socket to listen on, instead of host and port.")
    ] = None
    root_path: Annotated[
        str,
        Option(
            help=("Path prefix that a reverse proxy removes. Requests may come with or without it.")
        ),
    ] = ""
    ssl_keyfile: Annotated[Path | None, Option(exists=True, help="File with the TLS key.")] = None
    ssl_certfile: Annotated[
        Path | None, Option(exists=True, help="File with the TLS certificate.")
    ] = None
    ssl_ca_certs: Annotated[
        Path | None,
        Option(exists=True, help="File with the CA certificates that sign client certificates."),
    ] = None
    ssl_cert_reqs: Annotated[
        int,
        Option(
            min=0, max=2, help="Client certificates. 0: not requested; 1: optional; 2: required."
        ),
    ] = 0
    served_model_names: Annotated[
        list[str],
        Option(
            "--served-model-name",
            help=(
                "Model name that clients send as `model`; may be repeated. Answers and "
                "metrics carry the first. Default: the name of the model's folder."
            ),
        ),
    ] = field(default_factory=list)
    api_keys: Annotated[
        list[str],
        Option(
            "--api-key",
            envvar=["PENSTOCK_ENGINE_API_KEY", "VLLM_API_KEY"],
            help=(
                "Key that clients must send as bearer token; may be repeated, and any of "
                "them is accepted. Default: no key is required."
            ),
        ),
    ] = field(default_factory=list)
    allowed_origins: Annotated[
        Sequence[str],
        Option(
            parser=json_texts,
            metavar="JSON",
            help=('Origins whose pages may send requests (CORS), such as ["*"]. Default: none.'),
        ),
    ] = ()
    allowed_methods: Annotated[
        Sequence[str],
        Option(
            parser=json_texts,
            metavar="JSON",
            help="HTTP methods that pages of these origins may use (CORS).",
        ),
    ] = ("*",)
    allowed_headers: Annotated[
        Sequence[str],
        Option(
            parser=json_texts,
            metavar="JSON",
            help="Request headers that pages of these origins may send (CORS).",
        ),
    ] = ("*",)
    allow_credentials: Annotated[
        bool, Option(help="Whether pages of these origins may send cookies (CORS).")
    ] = False
    enable_auto_tool_choice: Annotated[
        bool,
        Option(help="Allow tool_choice: auto, with which the model decides whether to call tools."),
    ] = False
    exclude_tools_when_tool_choice_none: Annotated[
        bool,
        Option(help=("Do not pass tools to the chat template if a request has tool_choice: none.")),
    ] = False
    tool_call_parser: Annotated[
        Literal["hermes", "llama3_json", "mistral"] | None,
        Option(help="Format in which the model writes tool calls."),
    ] = None
    reasoning_parser: Annotated[
        Literal["qwen3", "deepseek_r1"] | None,
        Option(help="Format in which the model writes its reasoning."),
    ] = None
    generation_config: Annotated[
        str,
        Option(
            metavar="auto|vllm|FOLDER",
            help=(
                "Source of the default sampling parameters. auto: the model's "
                "generation_config.json; vllm: none; or a folder with a "
                "generation_config.json."
            ),
        ),
    ] = "auto"
    override_generation_config: Annotated[
        dict[str, Any],
        Option(
            parser=json_object,
            metavar="JSON",
            help=(
                "Sampling parameters that override those of --generation-config, such as "
                '{"temperature": 0.5}.'
            ),
        ),
    ] = field(default_factory=dict)
    chat_template: Annotated[
        str | None,
        Option(help="Jinja chat template, or a file with one. Default: the model's own."),
    ] = None
    chat_template_content_format: Annotated[
        ContentFormat,
        Option(
            help=(
                "Format of message content for the chat template. string: one text; openai: "
                "a list of parts; auto: openai if the template loops over the content, else "
                "string."
            )
        ),
    ] = "auto"
    default_chat_template_kwargs: Annotated[
        dict[str, Any],
        Option(
            parser=json_object, metavar="JSON",
            help="Default values of chat template variables, which requests may override.",
        ),
    ] = field(default_factory=dict)  # fmt: skip
    enable_tokenizer_info_endpoint: Annotated[
        bool,
        Option(
            help=(
                "Add the route /tokenizer_info, which returns the tokenizer's settings and "
                "chat template."
            )
        ),
    ] = False
    enable_request_id_headers: Annotated[
        bool, Option(help="Return the request's id in the header X-Request-Id.")
    ] = True
    log_format: Annotated[
        LogFormat | None,
        Option(help="Format of log lines. Default: text on a terminal, else json."),
    ] = None
    log_level: Annotated[LogLevel, Option(help="Least severe level that is logged.")] = "info"
    enable_log_requests: Annotated[
        bool,
        Option(help="Log a line for each choice of each request, without its texts."),
    ] = True
    enable_per_request_metrics: Annotated[
        bool,
        Option(
            help=(
                "Add `metrics` to chats and completions with one choice: the times in the queue, to "
                "the first token and between tokens."
            )
        ),
    ] = False
    enable_prompt_tokens_details: Annotated[
        bool,
        Option(
            help=(
                "Report the number of cached prompt tokens in `usage`. The Responses and "
                "Messages APIs always report it."
            )
        ),
    ] = False
    return_tokens_as_token_ids: Annotated[
        bool,
        Option(
            help=("Write tokens in log-probabilities as `token_id:N`. A request may override it.")
        ),
    ] = False
    max_n_sequences: Annotated[
        int,
        Option(
            min=1,
            max=16_384,
            help=("Maximum number of choices of one request: its number of prompts times `n`."),
        ),
    ] = 128
    enable_force_include_usage: Annotated[
        bool, Option(help="Send `usage` in every chunk of every stream.")
    ] = False
    lora_modules: Annotated[
        list[str],
        Option(
            metavar="NAME=FOLDER|JSON",
            help=(
                "LoRA adapter to load at the start; may be repeated. NAME=FOLDER, or a JSON "
                "object with name, path and base_model_name, or a JSON list of such "
                "objects."
            ),
        ),
    ] = field(default_factory=list)
    lora_dir: Annotated[
        Path | None,
        Option(
            help=(
                "Folder that contains the LoRA adapters that may be loaded later. Default: "
                "none can be loaded later."
            )
        ),
    ] = None
    enable_sleep_mode: Annotated[
        bool,
        Option(
            help=(
                "Add the routes /sleep, /wake_up and /is_sleeping, which release and reload "
                "the model."
            )
        ),
    ] = False
    enable_responses_store: Annotated[
        bool,
        Option(
            envvar="VLLM_ENABLE_RESPONSES_API_STORE",
            help=(
                "Keep responses of /v1/responses in memory, so that they can be read, "
                "cancelled and continued."
            ),
        ),
    ] = False
    otlp_traces_endpoint: Annotated[
        str | None,
        Option(
            metavar="URL",
            help=(
                "URL that OpenTelemetry spans are sent to, such as "
                "http://collector:4318/v1/traces. Default: that of the variables "
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT and OTEL_EXPORTER_OTLP_ENDPOINT, else none."
            ),
        ),
    ] = None
    uvicorn_log_level: Annotated[
        Literal["critical", "error", "warning", "info", "debug", "trace"],
        Option(help="Log level of the HTTP server."),
    ] = "warning"
    request_timeout_s: Annotated[
        float | None,
        Option(
            "--request-timeout",
            min=0.001,
            help=(
                "Maximum duration of a request in seconds. A client may set a shorter one "
                "in X-Request-Timeout-S. Default: no limit."
            ),
        ),
    ] = None
    shutdown_timeout_s: Annotated[
        float,
        Option(
            "--shutdown-timeout",
            min=0,
            help="Time in seconds that running requests have to finish after SIGTERM.",
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
