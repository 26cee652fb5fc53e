"""Grammars compiled within their limits: cached, refused in words, ended when they go on."""

import asyncio
import json
import os
import time
from typing import Any

import pytest

from penstock_engine.structured import compiler as compilers
from penstock_engine.structured.compiler import CompilerBusy, GrammarCompiler
from penstock_engine.structured.constraint import Compiled
from penstock_engine.structured.grammar import (
    MAX_CHOICES,
    MAX_GRAMMAR_BYTES,
    MAX_REGEX_CHARS,
    MAX_SCHEMA_DEPTH,
    GrammarRefused,
    of_choices,
    of_regex,
    of_rules,
    of_schema,
)

# Takes minutes to compile, whatever its limits on grammars.
ENDLESS: dict[str, Any] = {"allOf": [{"multipleOf": p} for p in (101, 103, 107, 109, 113, 127)]}


def nested(levels: int) -> Any:
    schema: Any = {}
    for _ in range(levels - 1):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: of_schema(nested(MAX_SCHEMA_DEPTH + 1)), "nested"),
        (lambda: of_schema({"enum": ["x" * MAX_GRAMMAR_BYTES]}), "KiB"),
        (lambda: of_schema({"pattern": "x" * (MAX_REGEX_CHARS + 1)}), "pattern"),
        (lambda: of_schema({"minProperties": 2}), "minProperties"),
        (lambda: of_schema([]), "object"),
        (lambda: of_schema({"x-guidance": []}), "x-guidance"),
        (lambda: of_regex("x" * (MAX_REGEX_CHARS + 1)), "characters"),
        (lambda: of_choices([]), "choices"),
        (lambda: of_choices(["x"] * (MAX_CHOICES + 1)), "choices"),
        (lambda: of_choices(["x" * MAX_GRAMMAR_BYTES]), "KiB"),
        (lambda: of_rules(" \n"), "empty"),
        (lambda: of_rules("x" * (MAX_GRAMMAR_BYTES + 1)), "KiB"),
    ],
)
def test_caps_come_before_work(make: Any, says: str) -> None:
    with pytest.raises(GrammarRefused, match=says):
        make()


def test_what_is_just_within_the_caps_is_let_through() -> None:
    of_schema(nested(MAX_SCHEMA_DEPTH))
    of_regex("x" * MAX_REGEX_CHARS)
    of_choices(["x"] * MAX_CHOICES)
    of_schema(True)


async def test_a_grammar_is_compiled_once(compiler: GrammarCompiler) -> None:
    first = await compiler.compile(of_schema({"type": "integer"}))
    assert await compiler.compile(of_schema({"type": "integer"})) is first
    assert await compiler.compile(of_schema({"type": "string"})) is not first


async def test_a_refusal_is_remembered(compiler: GrammarCompiler) -> None:
    for _ in range(2):
        with pytest.raises(GrammarRefused, match="uniqueItems"):
            await compiler.compile(of_schema({"uniqueItems": True}))
    assert list(compiler._cache.values()) == ['Unimplemented keys: ["uniqueItems"]']


async def test_the_cache_keeps_what_was_used_last(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilers, "MAX_CACHED", 2)
    a, b, c = (of_regex(letter) for letter in "abc")
    first = await compiler.compile(a)
    await compiler.compile(b)
    await compiler.compile(a)
    await compiler.compile(c)
    assert list(compiler._cache) == [a, c]
    assert await compiler.compile(a) is first


async def test_what_takes_too_long_is_ended(compiler: GrammarCompiler) -> None:
    """Its process is gone, and the next grammar gets another."""
    await compiler.compile(of_regex("a"))
    (process,) = [p._started.result() for p in compiler._processes if p._started]
    with pytest.raises(GrammarRefused, match="too long"):
        await compiler.compile(of_schema(ENDLESS))
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
    assert isinstance(await compiler.compile(of_regex("b")), Compiled)


async def test_a_client_that_leaves_ends_its_work(compiler: GrammarCompiler) -> None:
    await compiler.compile(of_regex("a"))
    (process,) = [p._started.result() for p in compiler._processes if p._started]
    waiting = asyncio.create_task(compiler.compile(of_schema(ENDLESS)))
    await asyncio.sleep(0.2)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


async def test_a_slow_grammar_holds_up_no_other(compiler: GrammarCompiler) -> None:
    await asyncio.gather(compiler.compile(of_regex("a")), compiler.compile(of_regex("b")))
    slow = asyncio.create_task(compiler.compile(of_schema(ENDLESS)))
    await asyncio.sleep(0)
    await compiler.compile(of_regex("c"))
    assert not slow.done()
    with pytest.raises(GrammarRefused):
        await slow


async def test_too_many_grammars_are_turned_away(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilers, "MAX_WAITING", 2)
    grammars = [of_regex(f"a{{{n}}}") for n in range(1, 9)]
    work = [compiler.compile(grammar) for grammar in grammars]
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds.count(Compiled) == compilers.MAX_PROCESSES + 2
    assert kinds.count(CompilerBusy) == 4


async def test_a_process_that_dies_is_replaced(compiler: GrammarCompiler) -> None:
    await compiler.compile(of_regex("a"))
    (process,) = [p._started.result() for p in compiler._processes if p._started]
    process.kill()
    await process.wait()
    assert isinstance(await compiler.compile(of_regex("b")), Compiled)


async def test_closing_leaves_no_process(compiler: GrammarCompiler) -> None:
    await asyncio.gather(*(compiler.compile(of_regex(letter)) for letter in "abcd"))
    processes = [p._started.result() for p in compiler._processes if p._started]
    assert len(processes) == compilers.MAX_PROCESSES
    await compiler.close()
    assert all(process.returncode is not None for process in processes)


async def test_a_grammar_whose_limits_are_used_up_is_compiled_anew(
    compiler: GrammarCompiler,
) -> None:
    grammar = of_regex("a+")
    first = await compiler.compile(grammar)
    first.is_spent = True
    assert await compiler.compile(grammar) is not first


async def test_the_work_yields_to_the_engine(compiler: GrammarCompiler) -> None:
    await compiler.compile(of_regex("a"))
    (process,) = [p._started.result() for p in compiler._processes if p._started]
    assert os.getpriority(os.PRIO_PROCESS, process.pid) > os.getpriority(os.PRIO_PROCESS, 0)


async def test_the_event_loop_goes_on(compiler: GrammarCompiler) -> None:
    """While a schema of a thousand properties is compiled, twice."""
    longest_s = 0.0

    async def tick() -> None:
        nonlocal longest_s
        while True:
            started_s = time.monotonic()
            await asyncio.sleep(0.001)
            longest_s = max(longest_s, time.monotonic() - started_s)

    words = [f"word-{i}" for i in range(1000)]
    ticking = asyncio.create_task(tick())
    await compiler.compile(of_schema({"type": "object", "required": words}))
    ticking.cancel()
    print(f"the longest pause was {longest_s * 1e3:.1f} ms")


async def test_messages_say_what_is_wrong(compiler: GrammarCompiler) -> None:
    for grammar, says in (
        (of_regex("(?=a)b"), "look-around, including look-ahead and look-behind, is not supported"),
        (of_schema({"$ref": "#"}), "nothing can satisfy it"),
        (of_rules("start: foo"), "unknown name"),
        (of_rules('root ::= "a'), "end of input"),
    ):
        with pytest.raises(GrammarRefused) as refusal:
            await compiler.compile(grammar)
        assert says in str(refusal.value)
        assert json.dumps(str(refusal.value)).isascii()
