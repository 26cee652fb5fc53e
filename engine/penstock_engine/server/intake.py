"""From the bytes of a request to choices with tokens, every cap checked on the way."""

import asyncio
from typing import Any

from fastapi import Request
from starlette.requests import ClientDisconnect

from penstock_engine.parsers.reasoning_tokens import ReasoningTokenCounter
from penstock_engine.server.answer_form import AnswerForm, answer_form
from penstock_engine.server.chat_request import (
    BatchChatRequest,
    ChatCompletionRequest,
    template_variables,
)
from penstock_engine.server.dialects import Dialect
from penstock_engine.server.errors import RequestError
from penstock_engine.server.generation import Choice
from penstock_engine.server.metrics import RequestRecord
from penstock_engine.server.sampling import MAX_SEED, sampling_params
from penstock_engine.server.schemas import (
    CompletionRequest,
    GenerationRequest,
    StreamOptions,
)
from penstock_engine.server.served import Served
from penstock_engine.tokens import TemplateRefused, Tokenizer

MAX_BODY_BYTES = 8 * 2**20
BODY_TIMEOUT_S = 30.0


class ClientGone(Exception):
    """The client has closed its connection; there is nobody to answer."""


async def read_body(http: Request) -> bytes:
    """The body, read no further and no longer than its caps. Raises RequestError, ClientGone."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in http.stream():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise RequestError(413, f"the body is larger than {MAX_BODY_BYTES >> 20} MiB")
    except TimeoutError as error:
        raise RequestError(408, f"the body took more than {BODY_TIMEOUT_S:.0f} seconds") from error
    except ClientDisconnect as error:
        raise ClientGone from error
    return bytes(body)


def take_in(
    served: Served,
    dialect: Dialect,
    raw: bytes,
    arrival_s: float,
    deadline_s: float | None,
    tpot_s: float | None,
) -> tuple[GenerationRequest, list[Choice], AnswerForm]:
    """Pure CPU work, to be done off the event loop. Raises RequestError."""
    request = dialect.read(raw, served.defaults.parameters)
    check_model_name(served, request.model)
    if served.options.enable_force_include_usage and request.stream:
        request.stream_options = request.stream_options or StreamOptions()
        request.stream_options.include_usage = True
        request.stream_options.continuous_usage_stats = True
    if request.return_tokens_as_token_ids is None:
        request.return_tokens_as_token_ids = served.options.return_tokens_as_token_ids
    if request.priority and served.config.scheduling_policy != "priority":
        raise RequestError(
            400, "priority needs an engine with --scheduling-policy priority", param="priority"
        )
    vocab_size = served.sizing.model.vocab_size
    param = "messages" if isinstance(request, ChatCompletionRequest) else "prompt"
    prompts = encode(served, request)
    if len(prompts) * request.n > served.options.max_n_sequences:
        raise RequestError(
            400,
            f"prompts times n must not be more than {served.options.max_n_sequences} "
            "(--max-n-sequences)",
            param="n",
        )
    if len(prompts) * request.n > served.max_open_choices:
        raise RequestError(
            400,
            f"prompts times n must not be more than {served.max_open_choices}, which is what this "
            "engine runs (--max-num-seqs) and queues (--max-num-queued-reqs) at once",
            param="n",
        )
    choices: list[Choice] = []
    for prompt in prompts:
        # Without a seed each prompt gets its own, so that equal prompts get different answers.
        seed = served.seeds.getrandbits(63) if request.seed is None else request.seed
        if not prompt:
            raise RequestError(400, f"{param} must not be empty", param=param)
        if max(prompt) >= vocab_size:
            raise RequestError(400, f"the model has no such token in {param}", param=param)
        max_tokens = _max_tokens(served, request, len(prompt), param)
        first = ""
        for number in range(request.n):
            sampling = sampling_params(
                request, served.tokenizer,
                max_tokens=max_tokens, seed=(seed + number) % MAX_SEED, vocab_size=vocab_size,
                max_logprobs=served.config.max_told_tokens(vocab_size),
            )  # fmt: skip
            adapter = served.adapters.label(request.model)
            record = RequestRecord(arrival_s, max_tokens, request.n, deadline_s, adapter, tpot_s)
            choice = Choice(len(choices), number, prompt, sampling, record, fork_of=first)
            # Those that tell of the prompt's probabilities all have to compute it.
            first = first or ("" if sampling.prompt_logprobs is not None else choice.sequence_id)
            choices.append(choice)
    form = answer_form(request, prompts[0], served.tokenizer, served.options)
    if form.is_thinking is not None:
        for choice in choices:
            choice.reasoning = ReasoningTokenCounter(is_open=form.is_thinking)
    return request, choices, form


def check_model_name(served: Served, name: str | None) -> None:
    if name not in (None, *served.model_names, *served.adapters.names):
        raise RequestError(404, f"The model `{name}` does not exist.", param="model")


def encode(served: Served, request: GenerationRequest) -> list[list[int]]:
    """The tokens of each prompt, truncated as the request says. Raises RequestError."""
    if isinstance(request, BatchChatRequest):
        prompts = [_encode_chat(served, chat) for chat in request.chats]
    elif isinstance(request, ChatCompletionRequest):
        prompts = [_encode_chat(served, request)]
    else:
        assert isinstance(request, CompletionRequest)
        prompts = _encode_texts(served, request)
    return _truncated(served, request, prompts)


def _truncated(
    served: Served, request: GenerationRequest, prompts: list[list[int]]
) -> list[list[int]]:
    truncation, length = request.truncation, served.sizing.max_model_len
    answer = 0 if request.wants_embedding else request.asked_max_tokens or 0
    room = length - answer
    if truncation is None or room < 1:  # max_tokens alone fill the context, and are refused for it
        return prompts
    if truncation.num_tokens > room:
        beside = f" without the {answer} tokens of the answer" if answer else ""
        raise RequestError(
            400,
            f"truncate_prompt_tokens must not be more than {room}, the maximum context length{beside}",
            param="truncate_prompt_tokens",
        )
    return [truncation.cut(prompt, min(room, length - 1)) for prompt in prompts]


def _encode_texts(served: Served, request: CompletionRequest) -> list[list[int]]:
    tokenizer = served.tokenizer
    if request.truncation is None:
        texts = [prompt for prompt in request.prompt if isinstance(prompt, str)]
        _refuse_endless(served, sum(map(len, texts)), len(request.prompt), "prompt")
    return [
        tokenizer.encode(prompt, add_special_tokens=request.add_special_tokens)
        if isinstance(prompt, str)
        else prompt
        for prompt in request.prompt
    ]


def _encode_chat(served: Served, request: ChatCompletionRequest) -> list[int]:
    tokenizer: Tokenizer = served.tokenizer
    if not tokenizer.has_chat_template:
        raise RequestError(400, "this model has no chat template: use /v1/completions")
    if request.tools and not tokenizer.takes_tools:
        raise RequestError(400, "this model's chat template does not take tools", param="tools")
    messages = [
        message.for_template(as_parts=tokenizer.takes_parts) for message in request.messages
    ]
    excludes = served.options.exclude_tools_when_tool_choice_none
    is_excluded = excludes and request.asked_tool_choice == "none"
    tools = [] if is_excluded else [tool.for_template() for tool in request.tools]
    is_truncated = request.truncation is not None
    if not is_truncated:
        _refuse_endless(served, _num_chars([messages, tools]), 1, "messages")
    try:
        text = tokenizer.render_chat(
            messages,
            tools,
            template_variables(request, tokenizer),
            add_generation_prompt=request.has_generation_prompt,
            continue_final_message=request.continue_final_message,
        )
    except TemplateRefused as error:
        raise RequestError(400, str(error), param="messages") from error
    if not is_truncated:
        _refuse_endless(served, len(text), 1, "messages")
    return tokenizer.encode(text, add_special_tokens=request.add_special_tokens)


def _num_chars(value: Any) -> int:
    """Of all texts in it. The depth of a body is bounded where it is parsed."""
    if isinstance(value, dict):
        return sum(_num_chars(inner) for inner in value.values())
    if isinstance(value, list):
        return sum(map(_num_chars, value))
    return len(value) if isinstance(value, str) else 0


def _refuse_endless(served: Served, num_chars: int, num_prompts: int, param: str) -> None:
    """What cannot fit however it is tokenised is not tokenised."""
    most = num_prompts * served.sizing.max_model_len * served.tokenizer.max_token_chars
    if num_chars > most:
        raise RequestError(
            400,
            f"This model's maximum context length is {served.sizing.max_model_len} tokens. "
            f"However, your {param} has {num_chars} characters.",
            param=param,
        )


def _max_tokens(served: Served, request: GenerationRequest, num_prompt: int, param: str) -> int:
    """Tokens that may be generated. Raises RequestError when prompt and answer do not fit."""
    room = served.sizing.max_model_len - num_prompt
    asked = request.asked_max_tokens
    if room < 1 or (asked is not None and asked > room):
        answer = 1 if asked is None else asked
        raise RequestError(
            400,
            f"This model's maximum context length is {served.sizing.max_model_len} tokens. "
            f"However, you requested {num_prompt + answer} tokens ({num_prompt} in the {param}, "
            f"{answer} in the completion). Please reduce the length of the {param} or completion.",
            param=param if room < 1 else "max_tokens",
        )
    wanted = served.defaults.max_tokens if asked is None else asked
    return min(filter(None, (room, wanted, served.defaults.max_tokens_cap)))
