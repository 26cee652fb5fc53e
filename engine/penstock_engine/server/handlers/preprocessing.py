"""Preprocesses a request: validates it, tokenizes its prompts, checks all limits."""

from typing import Any

from penstock_engine.parsers.reasoning_tokens import ReasoningTokenCounter
from penstock_engine.server.generation.answer_format import AnswerFormat, choose_answer_format
from penstock_engine.server.generation.generator import Choice
from penstock_engine.server.handlers.state import ServerState
from penstock_engine.server.metrics.request_record import PromptChoices, RequestRecord
from penstock_engine.server.requests.chat_request import (
    BatchChatRequest,
    ChatCompletionRequest,
    template_variables,
)
from penstock_engine.server.requests.completion_request import (
    CompletionRequest,
    GenerationRequest,
    StreamOptions,
)
from penstock_engine.server.requests.dialects import Dialect
from penstock_engine.server.requests.sampling import MAX_SEED, sampling_params
from penstock_engine.server.transport.errors import RequestError
from penstock_engine.text.tokens import ChatTemplateError, Tokenizer


def preprocess(
    state: ServerState,
    dialect: Dialect,
    raw: bytes,
    arrival_s: float,
    deadline_s: float | None,
    tpot_s: float | None,
) -> tuple[GenerationRequest, list[Choice], AnswerFormat]:
    """Validates and tokenizes a request. Returns it with its choices and the format of its answer.

    It only computes, possibly for long: call it off the event loop. Raises RequestError.
    """
    request = dialect.read(raw, state.defaults.parameters)
    check_model_name(state, request.model)
    if state.options.enable_force_include_usage and request.stream:
        request.stream_options = request.stream_options or StreamOptions()
        request.stream_options.include_usage = True
        request.stream_options.continuous_usage_stats = True
    if request.return_tokens_as_token_ids is None:
        request.return_tokens_as_token_ids = state.options.return_tokens_as_token_ids
    if request.priority and state.config.scheduling_policy != "priority":
        raise RequestError(
            400, "priority needs an engine with --scheduling-policy priority", param="priority"
        )
    vocab_size = state.memory_plan.model.vocab_size
    param = "messages" if isinstance(request, ChatCompletionRequest) else "prompt"
    _check_num_choices(state, request)
    prompts = encode(state, request)
    choices: list[Choice] = []
    for prompt in prompts:
        # If the request has no seed, each prompt gets another one: equal prompts get different answers.
        seed = state.seeds.getrandbits(63) if request.seed is None else request.seed
        if not prompt:
            raise RequestError(400, f"{param} must not be empty", param=param)
        if max(prompt) >= vocab_size:
            raise RequestError(400, f"the model has no such token in {param}", param=param)
        max_tokens = _max_tokens(state, request, len(prompt), param)
        own_choices = PromptChoices(request.n)
        first = ""
        for number in range(request.n):
            sampling = sampling_params(
                request, state.tokenizer,
                max_tokens=max_tokens, seed=(seed + number) % MAX_SEED, vocab_size=vocab_size,
                max_logprobs=state.config.max_reported_logprobs(vocab_size),
            )  # fmt: skip
            adapter = state.adapters.label(request.model)
            record = RequestRecord(arrival_s, max_tokens, own_choices, deadline_s, adapter, tpot_s)
            choice = Choice(len(choices), number, prompt, sampling, record, fork_of=first)
            # A choice with prompt log-probabilities must compute the prompt itself: it is no fork.
            first = first or ("" if sampling.prompt_logprobs is not None else choice.sequence_id)
            choices.append(choice)
    answer_format = choose_answer_format(request, prompts[0], state.tokenizer, state.options)
    if answer_format.is_thinking is not None:
        for choice in choices:
            choice.reasoning = ReasoningTokenCounter(is_open=answer_format.is_thinking)
    return request, choices, answer_format


def _check_num_choices(state: ServerState, request: GenerationRequest) -> None:
    """Raises RequestError for more choices than one request may have.

    Embeddings have a limit of their own, and are computed some at a time.
    """
    if request.wants_embedding:
        return
    num_choices = request.num_prompts * request.n
    if num_choices > state.options.max_n_sequences:
        raise RequestError(
            400,
            f"prompts times n must not be more than {state.options.max_n_sequences} "
            "(--max-n-sequences)",
            param="n",
        )
    if num_choices > state.max_open_choices:
        raise RequestError(
            400,
            f"prompts times n must not be more than {state.max_open_choices}, which is what this "
            "engine runs (--max-num-seqs) and queues (--max-num-queued-reqs) at once",
            param="n",
        )


def check_model_name(state: ServerState, name: str | None) -> None:
    """Raises RequestError (404) if neither the model nor an adapter has this name."""
    if name not in (None, *state.model_names, *state.adapters.names):
        raise RequestError(404, f"The model `{name}` does not exist.", param="model")


def encode(state: ServerState, request: GenerationRequest) -> list[list[int]]:
    """Tokenizes each prompt and truncates it if the request says so. Raises RequestError."""
    if isinstance(request, BatchChatRequest):
        prompts = [_encode_chat(state, chat) for chat in request.chats]
    elif isinstance(request, ChatCompletionRequest):
        prompts = [_encode_chat(state, request)]
    else:
        assert isinstance(request, CompletionRequest)
        prompts = _encode_texts(state, request)
    return _truncate(state, request, prompts)


def _truncate(
    state: ServerState, request: GenerationRequest, prompts: list[list[int]]
) -> list[list[int]]:
    truncation, length = request.truncation, state.memory_plan.max_model_len
    answer = 0 if request.wants_embedding else request.requested_max_tokens or 0
    max_prompt = length - answer
    if truncation is None or max_prompt < 1:  # _max_tokens rejects a max_tokens that is too large
        return prompts
    if truncation.num_tokens > max_prompt:
        minus = f" without the {answer} tokens of the answer" if answer else ""
        raise RequestError(
            400,
            f"truncate_prompt_tokens must not be more than {max_prompt}, the maximum context "
            f"length{minus}",
            param="truncate_prompt_tokens",
        )
    return [truncation.cut(prompt, min(max_prompt, length - 1)) for prompt in prompts]


def _encode_texts(state: ServerState, request: CompletionRequest) -> list[list[int]]:
    tokenizer = state.tokenizer
    if request.truncation is None:
        texts = [prompt for prompt in request.prompt if isinstance(prompt, str)]
        _check_num_chars(state, sum(map(len, texts)), len(request.prompt), "prompt")
    return [
        tokenizer.encode(prompt, add_special_tokens=request.add_special_tokens)
        if isinstance(prompt, str)
        else prompt
        for prompt in request.prompt
    ]


def _encode_chat(state: ServerState, request: ChatCompletionRequest) -> list[int]:
    tokenizer: Tokenizer = state.tokenizer
    if not tokenizer.has_chat_template:
        raise RequestError(400, "this model has no chat template: use /v1/completions")
    if request.tools and not tokenizer.takes_tools:
        raise RequestError(
            400,
            "this model's chat template does not take tools: give the engine one that does, with "
            "--chat-template",
            param="tools",
        )
    messages = [
        message.for_template(as_parts=tokenizer.takes_parts) for message in request.messages
    ]
    excludes = state.options.exclude_tools_when_tool_choice_none
    is_excluded = excludes and request.effective_tool_choice == "none"
    tools = [] if is_excluded else [tool.for_template() for tool in request.tools]
    is_truncated = request.truncation is not None
    if not is_truncated:
        _check_num_chars(state, _num_chars([messages, tools]), 1, "messages")
    try:
        text = tokenizer.render_chat(
            messages,
            tools,
            template_variables(request, tokenizer),
            add_generation_prompt=request.has_generation_prompt,
            continue_final_message=request.continue_final_message,
        )
    except ChatTemplateError as error:
        raise RequestError(400, str(error), param="messages") from error
    if not is_truncated:
        _check_num_chars(state, len(text), 1, "messages")
    return tokenizer.encode(text, add_special_tokens=request.add_special_tokens)


def _num_chars(value: Any) -> int:
    """Returns the number of characters in all strings of a JSON value.

    Recursion is safe, because the parser limits the depth of a body.
    """
    if isinstance(value, dict):
        return sum(_num_chars(inner) for inner in value.values())
    if isinstance(value, list):
        return sum(map(_num_chars, value))
    return len(value) if isinstance(value, str) else 0


def _check_num_chars(state: ServerState, num_chars: int, num_prompts: int, param: str) -> None:
    """Raises RequestError for a text that exceeds the context however it is tokenized."""
    most = num_prompts * state.memory_plan.max_model_len * state.tokenizer.max_token_chars
    if num_chars > most:
        raise RequestError(
            400,
            f"This model's maximum context length is {state.memory_plan.max_model_len} tokens. "
            f"However, your {param} has {num_chars} characters.",
            param=param,
        )


def _max_tokens(state: ServerState, request: GenerationRequest, num_prompt: int, param: str) -> int:
    """Returns the maximum answer length. Raises RequestError if prompt and answer exceed the context."""
    room = state.memory_plan.max_model_len - num_prompt
    requested = request.requested_max_tokens
    if room < 1 or (requested is not None and requested > room):
        answer = 1 if requested is None else requested
        raise RequestError(
            400,
            f"This model's maximum context length is {state.memory_plan.max_model_len} tokens. "
            f"However, you requested {num_prompt + answer} tokens ({num_prompt} in the {param}, "
            f"{answer} in the completion). Please reduce the length of the {param} or completion.",
            param=param if room < 1 else "max_tokens",
        )
    wanted = state.defaults.max_tokens if requested is None else requested
    return min(filter(None, (room, wanted, state.defaults.max_tokens_cap)))
