"""One request for text, from its first byte to its last."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

from fastapi import Request
from fastapi.responses import Response

from penstock_engine.server.answer_form import constrain
from penstock_engine.server.answers import Answer
from penstock_engine.server.bridge import now_s
from penstock_engine.server.chat_request import ChatCompletionRequest
from penstock_engine.server.deadlines import deadline_s, tpot_s
from penstock_engine.server.dialects import Dialect
from penstock_engine.server.errors import RequestError
from penstock_engine.server.generation import Choice, Generator
from penstock_engine.server.intake import read_body, take_in
from penstock_engine.server.json_text import encode
from penstock_engine.server.request_log import log_line, write
from penstock_engine.server.schemas import GenerationRequest
from penstock_engine.server.served import Served
from penstock_engine.server.streaming import EventStream, unless_gone
from penstock_engine.server.thinking import limit_thinking

Finish = Callable[[Dialect, Answer], Awaitable[Response]]


async def respond(dialect: Dialect, answer: Answer) -> Response:
    """Makes the response: the whole answer, or its stream. Raises RequestError before the first event."""
    if not answer.generator.request.stream:
        collected = await answer.collect()
        text = await asyncio.to_thread(lambda: encode(dialect.whole(answer.body(collected))))
        return Response(text, media_type="application/json")
    events = dialect.events(answer.stream())
    try:
        # The status is 200 once the first event has arrived; until then an error has its own status.
        first = await anext(events)
    except BaseException:
        await events.aclose()
        raise
    return EventStream(first, events)


async def exchange(
    served: Served, http: Request, dialect: Dialect, finish: Finish = respond
) -> Response:
    """Answers a request in the route's format. finish: makes the response. Raises ClientGone."""
    arrival_s = now_s()
    try:
        served.admit()
        late_s = deadline_s(http.headers, arrival_s, served.options.request_timeout_s)
        apart_s = tpot_s(http.headers)
        raw = await read_body(http)

        async def work() -> Response:
            answer = await _prepare(served, http, dialect, raw, arrival_s, late_s, apart_s)
            return await finish(dialect, answer)

        return await unless_gone(http.receive, work())
    except RequestError as error:
        return dialect.refusal(error)


async def _prepare(
    served: Served,
    http: Request,
    dialect: Dialect,
    raw: bytes,
    arrival_s: float,
    late_s: float | None,
    apart_s: float | None,
) -> Answer:
    """Checks and admits a request; its answer is not computed yet. Raises RequestError."""
    request, choices, form = await asyncio.to_thread(
        take_in, served, dialect, raw, arrival_s, late_s, apart_s
    )
    served.admit_tokens(sum(len(choice.prompt) for choice in choices))
    await constrain(choices, form, served.grammars)
    limit_thinking(choices, request, form, served.tokenizer, served.options)
    request_id = request.request_id or http.scope["request_id"]
    generator = Generator(
        bridge=served.bridge,
        adapters=served.adapters,
        tokenizer=served.tokenizer,
        request=request,
        model=served.adapters.label(request.model) or served.model_name,
        request_id=request_id,
        shows_special=form.shows_special,
        on_end=list(_witnesses(served, http, request, request_id)),
    )
    return Answer(
        "chat" if isinstance(request, ChatCompletionRequest) else "completion",
        generator,
        form,
        choices,
        int(time.time()),
        has_prompt_details=served.options.enable_prompt_tokens_details
        or dialect.always_tells_cached,
        has_reasoning_details=served.options.reasoning_parser is not None
        and isinstance(request, ChatCompletionRequest),
    )


def _witnesses(
    served: Served, http: Request, request: GenerationRequest, request_id: str
) -> Iterator[Callable[[Choice, str], None]]:
    """Who is told how each choice ended: the log, and the collector of traces."""
    model = served.model_name
    if served.options.enable_log_requests:
        yield lambda choice, reason: write(log_line(model, request_id, choice, reason))
    if served.tracer is not None:
        tracer, context = served.tracer, served.tracer.context(http.headers)
        yield lambda choice, reason: tracer.ended(
            context, request_id, model, request, choice, reason
        )
