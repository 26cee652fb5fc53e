"""Tests of the grammar compiler: limits, cache, timeouts, error messages."""

import asyncio
import json
import os
import time
from typing import Any

import pytest

from penstock_engine.structured import compiler as compilers
from penstock_engine.structured.compiler import CompilerBusy, GrammarCompiler
from penstock_engine.structured.constraint import CompiledGrammar
from penstock_engine.structured.grammar import (
    MAX_CHOICES,
    MAX_GRAMMAR_BYTES,
    MAX_REGEX_CHARS,
    MAX_SCHEMA_DEPTH,
    GrammarError,
    choice_grammar,
    ebnf_grammar,
    json_schema_grammar,
    regex_grammar,
)

# Compiles for minutes without reaching llguidance's own limits.
SLOW_SCHEMA: dict[str, Any] = {"allOf": [{"multipleOf": p} for p in (101, 103, 107, 109, 113, 127)]}


def nested(levels: int) -> Any:
    schema: Any = {}
    for _ in range(levels - 1):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: json_schema_grammar(nested(MAX_SCHEMA_DEPTH + 1)), "nested"),
        (lambda: json_schema_grammar({"enum": ["x" * MAX_GRAMMAR_BYTES]}), "KiB"),
        (lambda: json_schema_grammar({"pattern": "x" * (MAX_REGEX_CHARS + 1)}), "pattern"),
        (lambda: json_schema_grammar({"minProperties": 2}), "minProperties"),
        (lambda: json_schema_grammar([]), "object"),
        (
            lambda: json_schema_grammar(
                {"properties": {"a": {"type": "string", "format": "regex"}}}
            ),
            "properties.a.format: regex cannot be enforced",
        ),
        (lambda: json_schema_grammar({"format": "json-pointer"}), "^format: json-pointer"),
        (lambda: json_schema_grammar({"x-guidance": []}), "x-guidance"),
        (lambda: regex_grammar("x" * (MAX_REGEX_CHARS + 1)), "characters"),
        (lambda: choice_grammar([]), "choices"),
        (lambda: choice_grammar(["x"] * (MAX_CHOICES + 1)), "choices"),
        (lambda: choice_grammar(["x" * MAX_GRAMMAR_BYTES]), "KiB"),
        (lambda: ebnf_grammar(" \n"), "empty"),
        (lambda: ebnf_grammar("x" * (MAX_GRAMMAR_BYTES + 1)), "KiB"),
    ],
)
def test_size_limits_are_checked_before_compiling(make: Any, says: str) -> None:
    with pytest.raises(GrammarError, match=says):
        make()


def test_grammars_at_the_size_limits_are_accepted() -> None:
    json_schema_grammar(nested(MAX_SCHEMA_DEPTH))
    regex_grammar("x" * MAX_REGEX_CHARS)
    choice_grammar(["x"] * MAX_CHOICES)
    json_schema_grammar(True)


async def test_a_grammar_is_compiled_once(compiler: GrammarCompiler) -> None:
    first = await compiler.compile(json_schema_grammar({"type": "integer"}))
    assert await compiler.compile(json_schema_grammar({"type": "integer"})) is first
    assert await compiler.compile(json_schema_grammar({"type": "string"})) is not first


async def test_an_error_is_cached(compiler: GrammarCompiler) -> None:
    for _ in range(2):
        with pytest.raises(GrammarError, match="uniqueItems"):
            await compiler.compile(json_schema_grammar({"uniqueItems": True}))
    assert list(compiler._cache.values()) == ['Unimplemented keys: ["uniqueItems"]']


async def test_the_cache_evicts_the_least_recently_used_grammar(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilers, "MAX_CACHED", 2)
    a, b, c = (regex_grammar(letter) for letter in "abc")
    first = await compiler.compile(a)
    await compiler.compile(b)
    await compiler.compile(a)
    await compiler.compile(c)
    assert list(compiler._cache) == [a, c]
    assert await compiler.compile(a) is first


async def test_a_timeout_kills_the_process_and_starts_another(compiler: GrammarCompiler) -> None:
    await compiler.compile(regex_grammar("a"))
    (process,) = [p._started.result() for p in compiler._processes if p._started]
    with pytest.raises(GrammarError, match="too long"):
        await compiler.compile(json_schema_grammar(SLOW_SCHEMA))
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
    assert isinstance(await compiler.compile(regex_grammar("b")), CompiledGrammar)


async def test_cancelling_kills_the_process(compiler: GrammarCompiler) -> None:
    await compiler.compile(regex_grammar("a"))
    (process,) = [p._started.result() for p in compiler._processes if p._started]
    waiting = asyncio.create_task(compiler.compile(json_schema_grammar(SLOW_SCHEMA)))
    await asyncio.sleep(0.2)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


async def test_a_slow_grammar_does_not_delay_others(compiler: GrammarCompiler) -> None:
    await asyncio.gather(compiler.compile(regex_grammar("a")), compiler.compile(regex_grammar("b")))
    slow = asyncio.create_task(compiler.compile(json_schema_grammar(SLOW_SCHEMA)))
    await asyncio.sleep(0)
    await compiler.compile(regex_grammar("c"))
    assert not slow.done()
    with pytest.raises(GrammarError):
        await slow


async def test_grammars_beyond_the_queue_limit_fail_as_busy(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilers, "MAX_WAITING", 2)
    grammars = [regex_grammar(f"a{{{n}}}") for n in range(1, 9)]
    work = [compiler.compile(grammar) for grammar in grammars]
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds.count(CompiledGrammar) == compilers.MAX_PROCESSES + 2
    assert kinds.count(CompilerBusy) == 4


async def test_a_process_that_dies_is_replaced(compiler: GrammarCompiler) -> None:
    await compiler.compile(regex_grammar("a"))
    (process,) = [p._started.result() for p in compiler._processes if p._started]
    process.kill()
    await process.wait()
    assert isinstance(await compiler.compile(regex_grammar("b")), CompiledGrammar)


async def test_close_ends_all_processes(compiler: GrammarCompiler) -> None:
    await asyncio.gather(*(compiler.compile(regex_grammar(letter)) for letter in "abcd"))
    processes = [p._started.result() for p in compiler._processes if p._started]
    assert len(processes) == compilers.MAX_PROCESSES
    await compiler.close()
    assert all(process.returncode is not None for process in processes)


async def test_an_exhausted_grammar_is_compiled_again(
    compiler: GrammarCompiler,
) -> None:
    grammar = regex_grammar("a+")
    first = await compiler.compile(grammar)
    first.is_exhausted = True
    assert await compiler.compile(grammar) is not first


async def test_the_process_has_a_lower_priority_than_the_engine(compiler: GrammarCompiler) -> None:
    await compiler.compile(regex_grammar("a"))
    (process,) = [p._started.result() for p in compiler._processes if p._started]
    assert os.getpriority(os.PRIO_PROCESS, process.pid) > os.getpriority(os.PRIO_PROCESS, 0)


async def test_the_event_loop_runs_while_a_large_schema_compiles(
    compiler: GrammarCompiler,
) -> None:
    """A schema of a thousand properties compiles in the process, then again in the engine."""
    longest_s = 0.0

    async def tick() -> None:
        nonlocal longest_s
        while True:
            started_s = time.monotonic()
            await asyncio.sleep(0.001)
            longest_s = max(longest_s, time.monotonic() - started_s)

    words = [f"word-{i}" for i in range(1000)]
    ticking = asyncio.create_task(tick())
    await compiler.compile(json_schema_grammar({"type": "object", "required": words}))
    ticking.cancel()
    print(f"the longest pause was {longest_s * 1e3:.1f} ms")


async def test_error_messages_name_the_cause(compiler: GrammarCompiler) -> None:
    for grammar, says in (
        (
            regex_grammar("(?=a)b"),
            "look-around, including look-ahead and look-behind, is not supported",
        ),
        (json_schema_grammar({"$ref": "#"}), "nothing can satisfy it"),
        (ebnf_grammar("start: foo"), "unknown name"),
        (ebnf_grammar('root ::= "a'), "end of input"),
    ):
        with pytest.raises(GrammarError) as refusal:
            await compiler.compile(grammar)
        assert says in str(refusal.value)
        assert json.dumps(str(refusal.value)).isascii()
