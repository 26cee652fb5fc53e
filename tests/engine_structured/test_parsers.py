"""Tests of the parsers of reasoning and tool calls, with whole texts and with random chunks."""

import itertools
import json
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.engine_structured.joined_parts import Joined, JoinedCall, join

from penstock_engine.parsers.answer_parser import AnswerParser
from penstock_engine.parsers.json_scan import JsonScanner
from penstock_engine.parsers.parts import Call, CallArguments, Content, Reasoning
from penstock_engine.parsers.reasoning_parser import ReasoningParser
from penstock_engine.parsers.reasoning_tokens import ReasoningTokenCounter
from penstock_engine.parsers.tool_call_parser import ToolCallParser
from penstock_engine.parsers.tool_format import (
    HERMES,
    LLAMA3_JSON,
    MISTRAL,
    MISTRAL_11,
    PLAIN_LIST,
    ToolFormat,
)

FORMATS = {
    "hermes": HERMES,
    "llama3_json": LLAMA3_JSON,
    "mistral": MISTRAL,
    "mistral_11": MISTRAL_11,
    "plain_list": PLAIN_LIST,
}
TOOLS = ("add", "get_weather", "now")


ADD = JoinedCall("add", '{"a": 1, "b": [2, {"c": "}"}]}')
NOW = JoinedCall("now", "{}")
WEATHER = JoinedCall("get_weather", '{"city": "Zürich </tool_call> \\" [TOOL_CALLS]{"}')


def parse(parser: AnswerParser, chunks: list[str]) -> list[Joined]:
    return join([part for chunk in chunks for part in parser.push(chunk)] + parser.finish())


def parse_calls(form: ToolFormat, chunks: list[str]) -> list[Joined]:
    return parse(AnswerParser(None, ToolCallParser(form, TOOLS)), chunks)


def write_calls(form: ToolFormat, calls: list[JoinedCall]) -> str:
    before, after = form.call
    texts = [before % call.name + call.arguments + after for call in calls]
    return form.first + form.between.join(texts) + form.last


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("calls", [[ADD], [NOW], [WEATHER, ADD, NOW]], ids=["add", "now", "three"])
def test_calls_written_in_a_format_are_parsed(form: ToolFormat, calls: list[JoinedCall]) -> None:
    assert parse_calls(form, [write_calls(form, calls)]) == calls
    assert parse_calls(form, [f"\n {write_calls(form, calls)}\n"]) == calls


ADD_JSON = '{"name": "add", "arguments": {"a": 1}}'
ADD_1 = JoinedCall("add", '{"a": 1}')


@pytest.mark.parametrize(
    ("form", "text", "parts"),
    [
        ("hermes", "no call at all", [Content("no call at all")]),
        ("hermes", "", []),
        ("hermes", "  \n", [Content("  \n")]),
        ("hermes", f"Let me see.\n<tool_call>{ADD_JSON}</tool_call>",
         [Content("Let me see.\n"), ADD_1]),
        ("hermes", f"<tool_call>\n{ADD_JSON}\n</tool_call>\n\nDone.", [ADD_1, Content("Done.")]),
        ("hermes", f"<tool_call>{ADD_JSON}", [ADD_1]),
        ("hermes", f"<tool_call>{ADD_JSON}</tool_", [ADD_1]),
        ("hermes", f"<tool_call>{ADD_JSON}<tool_call>{ADD_JSON}", [ADD_1, ADD_1]),
        ("hermes", f"<tool_call>[{ADD_JSON}, {ADD_JSON}]</tool_call>", [ADD_1, ADD_1]),
        ("hermes", '<tool_call>{"name": "now"}</tool_call>', [NOW]),
        ("hermes", '<tool_call>{"name": "now", "arguments": null}</tool_call>', [NOW]),
        ("hermes", '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>', [ADD_1]),
        ("hermes", '<tool_call>{"name": "now", "arguments": ""}</tool_call>', [NOW]),
        ("hermes", '<tool_call>{"arguments": {"a":1}, "name": "add"}</tool_call>', [ADD_1]),
        ("hermes", '<tool_call>{"id": {}, "name": "add", "arguments": {"a": 1}, "x": [2]}</tool_call>',
         [ADD_1]),
        ("hermes", '<tool_call>{"name": "add", "arguments": {"a": 1}</tool_call>Done.',
         [ADD_1, Content("Done.")]),
        ("hermes", f"<tool_call>[{ADD_JSON}, 5]</tool_call>", [ADD_1, Content(", 5]</tool_call>")]),
        ("hermes", f"<tool_call>[{ADD_JSON}, ", [ADD_1]),
        ("hermes", f"<tool_call> oh no <tool_call>{ADD_JSON}</tool_call>",
         [Content("<tool_call> oh no "), ADD_1]),
        ("hermes", f"<tool_call>{{}}</tool_call><tool_call>{ADD_JSON}</tool_call>",
         [Content("<tool_call>{}</tool_call>"), ADD_1]),
        ("hermes", "a < b <tool> <tool_cal", [Content("a < b <tool> <tool_cal")]),
        ("llama3_json", '{"name": "add", "parameters": {"a": 1}}', [ADD_1]),
        ("llama3_json", '<|python_tag|>{"name": "add", "parameters": {"a": 1}}', [ADD_1]),
        ("llama3_json", 'Well: <|python_tag|>{"name": "add", "parameters": {"a": 1}}',
         [Content("Well: "), ADD_1]),
        ("llama3_json", f"{ADD_JSON};{ADD_JSON} ; \n{ADD_JSON}", [ADD_1, ADD_1, ADD_1]),
        ("llama3_json", f"{ADD_JSON} and that is it", [ADD_1, Content("and that is it")]),
        ("llama3_json", '{"answer": 42}', [Content('{"answer": 42}')]),
        ("llama3_json", f"say {ADD_JSON}", [Content(f"say {ADD_JSON}")]),
        ("mistral", f"[TOOL_CALLS] [{ADD_JSON}]", [ADD_1]),
        ("mistral", f"[TOOL_CALLS][{ADD_JSON},{ADD_JSON}]", [ADD_1, ADD_1]),
        ("mistral", '[TOOL_CALLS]add{"a": 1}[TOOL_CALLS]now{}', [ADD_1, NOW]),
        ("mistral", '[TOOL_CALLS]add[ARGS]{"a": 1}', [ADD_1]),
        ("mistral", '[TOOL_CALLS]add[CALL_ID]123456789[ARGS]{"a": 1}', [ADD_1]),
        ("mistral", '[TOOL_CALLS]subtract{"a": 1}', [Content('[TOOL_CALLS]subtract{"a": 1}')]),
        ("mistral", "[TOOL_CALLS]" + "x" * 300 + "{}", [Content("[TOOL_CALLS]" + "x" * 300 + "{}")]),
        ("mistral", "[TOOL_CALLS]add", [Content("[TOOL_CALLS]add")]),
        ("mistral", "a [list]", [Content("a [list]")]),
        ("plain_list", '[{"name": "add", "parameters": {"a": 1}}]', [ADD_1]),
        ("plain_list", "[1, 2]", [Content("[1, 2]")]),
    ],
)  # fmt: skip
def test_tool_calls_and_content_are_separated(form: str, text: str, parts: list[Joined]) -> None:
    assert parse_calls(FORMATS[form], [text]) == parts
    assert parse_calls(FORMATS[form], list(text)) == parts


@pytest.mark.parametrize(
    "json_text",
    [
        "[]", "{", "[1]", "null", '{"name": "rm", "arguments": {}}', '{"name": 5, "arguments": {}}',
        '{"arguments": {}}', '{"name": "add", "arguments": "{"}', '{"name": "add", "arguments": "1"}',
        '{"name": "add", "arguments": [1]}', "{'name': 'add', 'arguments': {}}",
        '{"name": "add", "arguments"', '{"name": "add", "arguments": "{}',
        '{"arguments": {"a": NaN}, "name": "add"}', '{"arguments": {"a": 1e999}, "name": "add"}',
        '{"arguments": {"a": "\\ud800"}, "name": "add"}',
        '{"arguments": {"a": ' + "9" * 5000 + '}, "name": "add"}',
        '{"arguments": ' + '{"a":' * 50_000 + "1" + "}" * 50_000 + ', "name": "add"}',
    ],
    ids=lambda text: text[:40],
)  # fmt: skip
@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_malformed_call_is_content(form: ToolFormat, json_text: str) -> None:
    text = f"{form.opening}{json_text}"
    assert parse_calls(form, [text]) == [Content(text)]


@pytest.mark.parametrize(
    "arguments",
    [
        '{"a": NaN}', '{"a": 01}', '{"a": __import__("os").getpid()}', "{'a': 1}", "{a}",
        '{"a":' * 50_000 + "1" + "}" * 50_000, '{"a": ' + "9" * 5000 + "}", '{"a": "unclosed}', "{",
    ],
    ids=lambda text: text[:40],
)  # fmt: skip
@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_call_that_has_started_keeps_arguments_that_are_not_json(
    form: ToolFormat, arguments: str
) -> None:
    """The arguments were sent already when they prove invalid. The call counts as failed."""
    text = form.first + form.call[0] % "add" + arguments
    size = (
        1 + len(text) // 10_000
    )  # one character, but of the deep arguments, where each takes 10 µs
    for chunks in ([text], [text[at : at + size] for at in range(0, len(text), size)]):
        parser = AnswerParser(None, ToolCallParser(form, TOOLS))
        assert parse(parser, chunks) == [JoinedCall("add", arguments)]
        assert parser.has_failed_call


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_call_begins_with_its_name_and_its_arguments_follow_as_they_arrive(
    form: ToolFormat,
) -> None:
    before, after = form.call
    opening = form.first + before % "add"
    arguments = '{"a": 1, "b": [2, {"c": "}"}]}'
    parser = ToolCallParser(form, TOOLS)
    parts = [parser.push(character) for character in opening + arguments + after + form.last]
    assert not any(parts[: len(opening)])
    first, *others = parts[len(opening) : len(opening) + len(arguments)]
    assert first == [Call("add"), CallArguments("{")]
    assert others == [[CallArguments(character)] for character in arguments[1:]]
    assert not any(parts[len(opening) + len(arguments) :])
    assert parser.finish() == []


def test_a_call_whose_name_comes_last_begins_at_its_end() -> None:
    parser = ToolCallParser(HERMES, TOOLS)
    text = '<tool_call>{"arguments": {"a": 1}, "name": "add"'
    assert [part for character in text for part in parser.push(character)] == []
    assert parser.push("}") == [Call("add"), CallArguments('{"a": 1}')]


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_cut_off_answer_of_forced_calls_has_partial_calls_and_no_content(
    form: ToolFormat,
) -> None:
    """However much of the text there is, it is the beginning of the whole answer."""
    text = write_calls(form, [ADD, WEATHER])
    for length in range(len(text) + 1):
        whole = parse(
            AnswerParser(None, ToolCallParser(form, TOOLS, is_forced=True)), [text[:length]]
        )
        by_character = AnswerParser(None, ToolCallParser(form, TOOLS, is_forced=True))
        assert parse(by_character, list(text[:length])) == whole
        for part, complete in zip(whole, (ADD, WEATHER), strict=False):
            assert isinstance(part, JoinedCall)
            assert part.name == complete.name
            assert complete.arguments.startswith(part.arguments)


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_forced_call_of_the_only_tool_has_a_name_from_the_first_character_on(
    form: ToolFormat,
) -> None:
    text = write_calls(form, [ADD])
    for length in range(1, len(text)):
        parser = ToolCallParser(form, ["add"], is_forced=True)
        (call,) = join(parser.push(text[:length]) + parser.finish())
        assert isinstance(call, JoinedCall)
        assert call.name == "add"
    assert ToolCallParser(form, ["add"], is_forced=True).finish() == []


@pytest.mark.parametrize(
    ("is_open", "text", "parts"),
    [
        (False, "<think>hm</think>yes", [Reasoning("hm"), Content("yes")]),
        (False, "\n<think>\nhm\n</think>\n\nyes", [Reasoning("\nhm\n"), Content("\n\nyes")]),
        (False, "yes <think>no</think>", [Content("yes <think>no</think>")]),
        (False, "<think>hm", [Reasoning("hm")]),
        (False, "<think>hm</thin", [Reasoning("hm</thin")]),
        (False, "<thin", [Content("<thin")]),
        (False, "", []),
        (True, "hm</think>yes", [Reasoning("hm"), Content("yes")]),
        (True, "<think>hm</think>yes</think>", [Reasoning("hm"), Content("yes</think>")]),
        (True, "hm", [Reasoning("hm")]),
        (True, "</think>yes", [Content("yes")]),
        (True, " <t", [Reasoning(" <t")]),
    ],
)
def test_reasoning_and_content_are_separated(is_open: bool, text: str, parts: list[Joined]) -> None:
    for chunks in ([text], list(text)):
        assert parse(AnswerParser(ReasoningParser(is_open=is_open), None), chunks) == parts


@pytest.mark.parametrize(
    ("is_open", "tokens", "num_tokens"),
    [
        (False, ["<think>", "h", "m", "</think>", "yes"], 2),
        (False, ["\n", "<th", "ink>", "h", "", "m", "</th", "ink>", "y", "es"], 3),
        (False, ["<think>", "h", "</th", "is"], 3),
        (False, ["<think>", "h", "</th"], 2),
        (False, ["yes", "<think>", "no", "</think>"], 0),
        (False, ["<think>a", "b</think>"], 2),
        (True, ["h", "m", "</think>", "yes"], 2),
        (True, ["<think>", "h", "m"], 2),
        (True, ["</think>", "yes"], 0),
        (True, ["\n", "\n", "<", "/", "think", ">", "yes"], 2),
        (True, ["a", "<", "<", "/", "think", ">"], 2),
        (True, ["\ufffd", "\ufffd", "</think>"], 2),
        (True, [], 0),
    ],
)
def test_reasoning_tokens_are_counted_without_their_tags(
    is_open: bool, tokens: list[str], num_tokens: int
) -> None:
    counter = ReasoningTokenCounter(is_open=is_open)
    for text in tokens:
        counter.push(text)
    counter.finish()
    assert counter.num_tokens == num_tokens


def test_a_call_inside_reasoning_is_reasoning() -> None:
    text = f"<think><tool_call>{ADD_JSON}</tool_call></think>\n<tool_call>{ADD_JSON}</tool_call>"
    parser = AnswerParser(ReasoningParser(is_open=False), ToolCallParser(HERMES, TOOLS))
    assert parse(parser, [text]) == [Reasoning(f"<tool_call>{ADD_JSON}</tool_call>"), ADD_1]


FRAGMENTS = [
    "<tool_call>", "</tool_call>", "<think>", "</think>", "[TOOL_CALLS]", "[ARGS]", "add", "now",
    "<|python_tag|>", ADD_JSON, f"[{ADD_JSON}]", '{"name": "now"}', "{}", '{"a": "\\"}"}', "{", "}",
    "[", "]", '"', "\\", ";", " ", "\n", "text", "<", "ü",
]  # fmt: skip


@st.composite
def chunked_texts(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Draws a text of tags and fragments of calls, and a way to split it into chunks."""
    text = "".join(draw(st.lists(st.sampled_from(FRAGMENTS), max_size=12)))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    edges = [0, *cuts, len(text)]
    return text, [text[a:b] for a, b in itertools.pairwise(edges)]


PARSERS: dict[str, Callable[[], AnswerParser]] = {
    **{
        f"{name}{' after reasoning' if is_open is not None else ''}": (
            lambda form=form, is_open=is_open: AnswerParser(
                None if is_open is None else ReasoningParser(is_open=is_open),
                ToolCallParser(form, TOOLS),
            )
        )
        for name, form in FORMATS.items()
        for is_open in (None, False)
    },
    "open reasoning": lambda: AnswerParser(ReasoningParser(is_open=True), None),
}


@pytest.mark.parametrize("make", PARSERS.values(), ids=PARSERS)
@given(chunked=chunked_texts())
@example(chunked=("<tool_call>{", ["<tool_call>", "{"]))
def test_parts_do_not_depend_on_chunking(
    make: Callable[[], AnswerParser], chunked: tuple[str, list[str]]
) -> None:
    text, chunks = chunked
    parser = make()
    whole = parse(parser, [text])
    assert parse(make(), chunks) == whole == parse(make(), list(text))
    for part in whole:
        if isinstance(part, JoinedCall):
            assert part.name in TOOLS
            assert parser.has_failed_call or isinstance(json.loads(part.arguments), dict)


@given(st.text(alphabet='abc <>[]{}"\\;/', max_size=80), st.sampled_from(list(FORMATS.values())))
@example(" [", FORMATS["mistral"])
@example(" <tool_call>", FORMATS["hermes"])
def test_text_without_calls_is_unchanged(text: str, form: ToolFormat) -> None:
    assert "".join(p.text for p in parse_calls(form, [text]) if isinstance(p, Content)) == text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(json_values.filter(lambda v: isinstance(v, (list, dict))), st.booleans())
def test_json_scanner_finds_the_end_of_a_value(value: object, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert JsonScanner().find_end(text + "]}") == len(text)
    scanner = JsonScanner()
    ends = [scanner.find_end(character) for character in text]
    assert ends == [None] * (len(text) - 1) + [1]


@pytest.mark.parametrize(
    ("text", "has_failed"),
    [
        ("Hello", False),
        ('<tool_call>{"name": "now", "arguments": {}}</tool_call>', False),
        ('<tool_call>{"name": "unknown"}</tool_call>', True),
        ("<tool_call>now</tool_call>", True),
        ('<tool_call>{"name": "now", "argu', True),
        ("<tool_call>", True),
        ('<tool_call>{"name": "now", "arguments": {', True),
        ('<tool_call>{"name": "now", "arguments": {}', False),
        ('<tool_call>{"name": "now"} and <tool_ca', False),
    ],
)
@pytest.mark.parametrize("length", [1, 1000])
def test_a_text_that_begins_like_a_call_and_is_none_has_failed(
    text: str, has_failed: bool, length: int
) -> None:
    parser = AnswerParser(None, ToolCallParser(HERMES, TOOLS))
    parse(parser, [text[at : at + length] for at in range(0, len(text), length)])
    assert parser.has_failed_call == has_failed
