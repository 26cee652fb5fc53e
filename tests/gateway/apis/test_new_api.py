"""A row for another API is all that parsing, usage, statistics, metrics and routes need.

A prompt of a new form needs an edit of two files more; they are made in a copy of the package.
"""

import json
import math

import pytest
from tests.gateway.engine_answers import stream
from tests.gateway.stats.recorded_requests import POD, USAGE, Clock, close, whole
from tests.support.edited_package import edited_package, run_program

from penstock.clients.pods import stats_report
from penstock.core.canary.moments import Moments
from penstock.core.routing.apis import APIS, COMPLETIONS, Api, UsageFields
from penstock.core.routing.prompt_kinds import MESSAGES, TEXT
from penstock.gateway import app
from penstock.gateway.apis.request import parse
from penstock.gateway.apis.response_usage import ResponseUsage
from penstock.gateway.stats.request_record import RequestRecord
from penstock.gateway.stats.service_stats import ServiceStats
from penstock.observability.metrics import gateway as specs

EMBEDDINGS = Api(
    path="/v1/test-embeddings",
    task="Embedding",
    prompts=({"input": TEXT}, {"messages": MESSAGES}),
    usage=UsageFields("prompt_tokens", output=None, cached=None),
)
# Other names of the same counts; a prompt of two fields, and another one.
TURNS = Api(
    path="/v1/test-turns",
    task="Chat",
    prompts=({"turns": MESSAGES, "system": TEXT}, {"input": TEXT}),
    usage=UsageFields("input_tokens", "output_tokens", "cache_read_input_tokens"),
    overhead_events=3,
    last_event=("event", "message_(?:stop|failed)"),
)
TEXTS = ["x" * 1200] * 20
ANSWER = (
    b'{"data": [{"embedding": [%s]}], "usage": {"prompt_tokens": 6000, "total_tokens": 6000}}'
    % (b",".join([b"0.123456"] * 4096))
)


def body(**fields):
    return json.dumps({"model": "chat"} | fields).encode()


def test_prompt_is_read_from_the_field_of_the_row():
    request = parse(body(input=TEXTS, prompt="no"), EMBEDDINGS)
    assert request.prompt_bytes == 24_000
    assert request.tokens == 6000  # no output is assumed
    assert parse(body(input=[1, 2, 3]), EMBEDDINGS).prompt_bytes == 12
    assert parse(body(messages=[{"role": "user", "content": "abc"}]), EMBEDDINGS).prompt_bytes == 3
    assert parse(body(prompt="no"), EMBEDDINGS).prompt_bytes == 0
    assert request.attributes.conversation_key is not None
    assert (
        request.attributes.conversation_key
        != parse(body(input="y"), EMBEDDINGS).attributes.conversation_key
    )
    assert parse(body(prompt="no"), EMBEDDINGS).attributes.conversation_key is None


def test_first_prompt_that_a_body_has_counts_with_all_of_its_fields():
    turns = [{"role": "user", "content": [{"type": "image_url"}, {"type": "text", "text": "abc"}]}]
    request = parse(body(input="longer", turns=turns), TURNS)
    assert (request.prompt_bytes, request.is_text_only, request.tokens) == (3, False, 256)
    whole = parse(body(system="a system", turns=turns), TURNS)
    assert (whole.prompt_bytes, whole.is_text_only) == (11, False)
    assert whole.attributes[:2] == request.attributes[:2]
    assert parse(body(system="a system"), TURNS).prompt_bytes == 0
    request = parse(body(input="longer"), TURNS)
    assert (request.prompt_bytes, request.is_text_only, request.tokens) == (6, True, 257)


def test_api_that_generates_nothing_has_no_output_and_no_empty_answer():
    usage = ResponseUsage(EMBEDDINGS, is_stream=False)
    usage.feed(ANSWER)
    assert (usage.prompt_tokens, usage.output_tokens, usage.is_empty) == (6000, 0, False)


@pytest.mark.parametrize(
    ("api", "output", "prompt_tokens", "cached_tokens"),
    [(EMBEDDINGS, [], 0, 0), (COMPLETIONS, [math.log(7)], 300, 256)],
)
def test_only_counts_that_the_row_has_are_compared(api, output, prompt_tokens, cached_tokens):
    stats, clock = ServiceStats(), Clock()
    record = RequestRecord(stats, clock, parse(body(input="x"), api), clock.now_s)
    whole(record, clock, USAGE % 7)
    close(record)
    arm = stats.arm(POD).snapshot()
    assert (arm.requests, arm.output) == (1, Moments.of(output))
    assert (arm.prompt_tokens, arm.cached_tokens) == (prompt_tokens, cached_tokens)


def test_counts_have_the_names_of_the_row():
    usage = ResponseUsage(TURNS, is_stream=True)
    assert usage.is_empty
    for _ in range(5):
        usage.feed(b'data: {"delta": "a"}\n\n')
    assert (usage.prompt_tokens, usage.output_tokens, usage.is_empty) == (None, 2, False)
    usage.feed(
        b'data: {"input_tokens": 7, "cache_read_input_tokens": 3, "output_tokens": 5,'
        b' "prompt_tokens": 90, "completion_tokens": 91}\n\n'
    )
    assert (usage.prompt_tokens, usage.cached_tokens, usage.output_tokens) == (7, 3, 5)


async def test_gateway_routes_and_counts_requests_of_the_row(
    start_engine, start_gateway, monkeypatch
):
    monkeypatch.setattr(app, "APIS", (*APIS, EMBEDDINGS))
    engine = await start_engine(lambda request: request.whole(ANSWER))
    front = await start_gateway(engine)
    assert await front.ask(EMBEDDINGS.path, stream=False, input=TEXTS) == (200, ANSWER)
    assert [request.path for request in engine.requests] == [EMBEDDINGS.path]
    async with front.client.get(front.management_url + stats_report.PATH) as got:
        stats = stats_report.parse("g", await got.text()).services["default/chat"]
    assert (stats.prompt_tokens, stats.output_tokens, stats.attended_tokens) == (6000, 0, 0)
    assert await front.metric(specs.RESPONSES.name, route=EMBEDDINGS.path, code="200") == 1
    assert await front.metric(specs.TOKENS_TOTAL.name, kind="prompt") == 6000
    assert await front.metric(specs.TOKENS_TOTAL.name, kind="output") == 0
    status, error = await front.ask("/v1/other")
    assert status == 404
    assert EMBEDDINGS.path in error.decode()


STOP = b'event: message_stop\ndata: {"type": "message_stop"}\n\n'


@pytest.mark.parametrize(
    ("end", "is_whole"),
    [
        (STOP, True),
        (STOP.replace(b"stop", b"failed"), True),
        (b"event: message_stop\n", True),  # lacks its empty line
        (b"data: [DONE]\n\n", False),
        (b'data: {"text": "event: message_stop"}\n\n', False),
        (b"event: message_stopped\n\n", False),
    ],
)
async def test_stream_of_the_row_ends_with_its_last_event(
    end, is_whole, start_engine, start_gateway, monkeypatch
):
    monkeypatch.setattr(app, "APIS", (*APIS, TURNS))
    event = b'event: delta\ndata: {"delta": "a"}\n\n'
    front = await start_gateway(await start_engine(stream(event, end)))
    status, got = await front.ask(TURNS.path, input="x")
    assert (status, got.startswith(event + end)) == (200, True)
    assert (b'"error"' in got) != is_whole
    assert await front.metric(specs.STREAMS_CUT.name) == (0 if is_whole else 1)


@pytest.mark.parametrize("api", APIS, ids=[api.path for api in APIS])
async def test_every_row_is_a_route_and_a_label(api, start_engine, start_gateway):
    front = await start_gateway(await start_engine())
    assert (await front.ask(api.path))[0] == 200
    assert api.path in specs.ROUTE.values


CAPTIONS = """
    Api(
        path="/v1/captions",
        task="Rerank",
        prompts=({"query": TEXT, "captions": CAPTION_TEXTS},),
        usage=UsageFields("prompt_tokens", output=None, cached=None),
    ),
"""
CAPTION_TEXTS = '''
class Captions(PromptKind):
    """Texts, or objects with a text or an image."""

    def texts(self, value: Any, json_texts: JsonTexts) -> Iterator[str]:
        for each in value or ():
            yield from text(each.get("text") if isinstance(each, dict) else each)

    def is_text_only(self, value: Any) -> bool:
        return not any(isinstance(each, dict) and "image" in each for each in value or ())


CAPTION_TEXTS = Captions()
'''
FORM_EDITS = {
    "core/routing/prompt_kinds.py": [
        ("MESSAGES, TOOLS = Text(), Messages(), Tools()\n", CAPTION_TEXTS)
    ],
    "core/routing/apis.py": [
        ("    BLOCKS,\n", "    CAPTION_TEXTS,\n"),
        ("APIS = (", CAPTIONS),
    ],
    "gateway/apis/request_schema.py": [
        ("    BLOCKS,\n", "    CAPTION_TEXTS,\n"),
        ("    TEXT: _optional(PROMPT),\n", "    CAPTION_TEXTS: JSON_LIST,\n"),
    ],
}
"""Text that is inserted, and after which text, by file: "An API route" in CONTRIBUTING.md names these."""


@pytest.mark.slow
def test_query_and_captions_are_one_prompt(tmp_path):
    package = edited_package(tmp_path, FORM_EDITS)
    rows = run_program(package, "tests.gateway.apis.new_form")
    assert rows == {
        "texts": [5 + 3 + 2, True, True],
        "an image": [5 + 3, False, True],
        "no captions": [5, True, True],
        "no query": [0, True, False],
        "is a label": True,
    }
