"""Handles a generation request: admission, preprocessing, and the response."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

from fastapi import Request
from fastapi.responses import Response

from penstock_engine.server.answers.answer import Answer
from penstock_engine.server.answers.usage import UsageReport
from penstock_engine.server.async_engine import now_s
from penstock_engine.server.generation.answer_format import AnswerFormat, constrain
from penstock_engine.server.generation.generator import Choice, Generator, structured_outcome
from penstock_engine.server.generation.reasoning_budget import apply_thinking_budget
from penstock_engine.server.generation.request_log import log_choice, log_failure
from penstock_engine.server.handlers.preprocessing import preprocess
from penstock_engine.server.handlers.state import ServerState
from penstock_engine.server.requests.chat_request import ChatCompletionRequest
from penstock_engine.server.requests.completion_request import GenerationRequest
from penstock_engine.server.requests.dialects import Dialect
from penstock_engine.server.transport.deadlines import deadline_s, tpot_s
from penstock_engine.server.transport.errors import RequestError
from penstock_engine.server.transport.json_text import encode
from penstock_engine.server.transport.streaming import EventStream, cancel_on_disconnect

MakeResponse = Callable[[Dialect, Answer], Awaitable[Response]]


async def respond(dialect: Dialect, answer: Answer) -> Response:
    """Computes the response: the whole answer, or its stream.

    Raises RequestError if the request fails before the first event.
    """
    if not answer.generator.request.stream:
        collected = await answer.collect()
        text = await asyncio.to_thread(lambda: encode(dialect.whole(answer.body(collected))))
        return Response(text, media_type="application/json")
    events = dialect.events(answer.stream())
    try:
        # Waits for the first event, because an error before it can still have its own status.
        first = await anext(events)
    except BaseException:
        await events.aclose()
        raise
    return EventStream(first, events)


async def handle_request(
    state: ServerState, http: Request, dialect: Dialect, finish: MakeResponse = respond
) -> Response:
    """Answers a request in the route's format. finish: computes the response.

    Raises ClientDisconnected.
    """
    arrival_s = now_s()
    try:
        state.admit()
        deadline = deadline_s(http.headers, arrival_s, state.options.request_timeout_s)
        tpot = tpot_s(http.headers)
        raw = await state.bodies.read(http)

        async def work() -> Response:
            answer = await _prepare(state, http, dialect, raw, arrival_s, deadline, tpot)
            return await finish(dialect, answer)

        return await cancel_on_disconnect(http.receive, work())
    except RequestError as error:
        if state.options.enable_log_requests:
            log_failure(http.scope["request_id"], error)
        return dialect.error_response(error)


async def _prepare(
    state: ServerState,
    http: Request,
    dialect: Dialect,
    raw: bytes,
    arrival_s: float,
    deadline: float | None,
    tpot: float | None,
) -> Answer:
    """Validates and admits a request, without computing its answer. Raises RequestError."""
    request, choices, answer_format = await asyncio.to_thread(
        preprocess, state, dialect, raw, arrival_s, deadline, tpot
    )
    max_concurrent = state.memory_plan.max_num_seqs if request.wants_embedding else len(choices)
    # The longest prompts may wait at the same time.
    lengths = sorted(len(choice.prompt) for choice in choices)
    state.admit_tokens(sum(lengths[-max_concurrent:]))
    await constrain(choices, answer_format, state.grammars)
    apply_thinking_budget(choices, request, answer_format, state.tokenizer, state.options)
    request_id = request.request_id or http.scope["request_id"]
    generator = Generator(
        engine=state.engine,
        adapters=state.adapters,
        tokenizer=state.tokenizer,
        request=request,
        model=state.adapters.label(request.model) or state.model_name,
        request_id=request_id,
        shows_special=answer_format.shows_special,
        forced_opening=answer_format.forced_opening,
        on_end=list(_end_callbacks(state, http, request, request_id, choices, answer_format)),
    )
    return Answer(
        "chat" if isinstance(request, ChatCompletionRequest) else "completion",
        generator,
        answer_format,
        choices,
        int(time.time()),
        _usage_report(state, dialect, request),
        max_concurrent=max_concurrent,
        on_failed_call=state.metrics.observe_failed_call,
    )


def _usage_report(state: ServerState, dialect: Dialect, request: GenerationRequest) -> UsageReport:
    options = state.options
    is_chat = isinstance(request, ChatCompletionRequest)
    return UsageReport(
        has_prompt_details=options.enable_prompt_tokens_details
        or dialect.always_reports_cached_tokens,
        has_reasoning_details=options.reasoning_parser is not None and is_chat,
        has_timings=options.enable_per_request_metrics,
    )


def _end_callbacks(
    state: ServerState,
    http: Request,
    request: GenerationRequest,
    request_id: str,
    choices: list[Choice],
    answer_format: AnswerFormat,
) -> Iterator[Callable[[Choice, str], None]]:
    """Yields the functions that are called at the end of each choice: metrics, request log, tracing."""
    if answer_format.grammar is not None:
        yield lambda choice, reason: state.metrics.observe_structured(
            structured_outcome(choice, reason)
        )
    model = state.model_name
    if state.options.enable_log_requests:
        # A gateway logs the id of the header, not the one that a client may put into the body.
        header_request_id = http.scope["request_id"]
        yield lambda choice, reason: log_choice(
            model, header_request_id, choice, reason, client_request_id=request.request_id
        )
    if state.tracer is not None:
        yield state.tracer.start(http.headers, request_id, model, request, choices).end
