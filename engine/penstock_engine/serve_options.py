"""Command-line flags of the HTTP server. Each field is a flag, with vLLM's name if vLLM has it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import BadParameter, Option

from penstock_engine.flag_values import json_object, json_texts
from penstock_engine.lora_modules import LoraModule, read_lora_modules

ContentFormat = Literal["auto", "string", "openai"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Configuration of the HTTP server."""

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
