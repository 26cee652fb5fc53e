"""Compiles grammars off the event loop, with limits and a cache."""

import asyncio
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial

from penstock_engine.structured.constraint import CompiledGrammar
from penstock_engine.structured.grammar import Grammar, GrammarError
from penstock_engine.structured.limits import make_matcher, make_tokenizer
from penstock_engine.structured.number_limit import NumberLimit
from penstock_engine.structured.process import CompilerProcess
from penstock_engine.structured.worker import NICENESS

MAX_PROCESSES = 2  # compiling processes per engine
MAX_WAITING = 32  # grammars that wait for a process
MAX_CACHED = 64  # compiled grammars and errors


class CompilerBusy(Exception):
    """The compiler has too many waiting grammars, or the system cannot start a process."""


class GrammarCompiler:
    """Compiles grammars in separate processes and caches the results. Use it from one event loop only."""

    def __init__(
        self, tokenizer_json: str, vocab_size: int, eos_token_ids: Collection[int]
    ) -> None:
        """Builds the tables of tokens: over a second for 150,000, during which the GIL is held.

        tokenizer_json: the model's tokenizer.json. vocab_size: columns of the logits. Raises ValueError
        if the tokenizer does not say which bytes its tokens stand for.
        """
        self._eos_token_ids = frozenset(eos_token_ids)
        self._tokenizer = make_tokenizer(tokenizer_json, vocab_size, eos_token_ids)
        self._number_limit = NumberLimit(self._tokenizer)
        hello = {
            "tokenizer": tokenizer_json,
            "vocab_size": vocab_size,
            "eos_token_ids": sorted(eos_token_ids),
        }
        self._processes = [CompilerProcess(hello) for _ in range(MAX_PROCESSES)]
        # Processes that are starting sort last, so that a job goes to a ready one first.
        self._idle: asyncio.PriorityQueue[tuple[bool, int]] = asyncio.PriorityQueue()
        for number in range(MAX_PROCESSES):
            self._idle.put_nowait((False, number))
        self._num_waiting = 0
        self._cache: OrderedDict[Grammar, CompiledGrammar | str] = OrderedDict()
        self._executor = ThreadPoolExecutor(1, "grammar", initializer=_lower_priority)

    async def compile(self, grammar: Grammar) -> CompiledGrammar:
        """Returns the compiled grammar. Raises GrammarError if it is invalid or too costly, CompilerBusy."""
        compiled = self._cache.get(grammar)
        if compiled is None or (isinstance(compiled, CompiledGrammar) and compiled.is_exhausted):
            compiled = await self._compile(grammar)
            self._cache[grammar] = compiled
            if len(self._cache) > MAX_CACHED:
                self._cache.popitem(last=False)
        self._cache.move_to_end(grammar)
        if isinstance(compiled, str):
            raise GrammarError(compiled)
        return compiled

    async def close(self) -> None:
        await asyncio.gather(*(process.close() for process in self._processes))
        self._executor.shutdown(wait=False)

    async def _compile(self, grammar: Grammar) -> CompiledGrammar | str:
        """Returns the compiled grammar, or the error message of an invalid one. Both can be cached."""
        reply = await self._check_in_process(grammar)
        if reply is None:
            raise GrammarError("it takes too long or too much memory to compile")
        if "text" not in reply:
            return reply["error"]
        make = partial(make_matcher, self._tokenizer, reply["text"])
        matcher = await asyncio.get_running_loop().run_in_executor(self._executor, make)
        number_limit = self._number_limit if grammar.is_json else None
        return matcher.get_error() or CompiledGrammar(
            matcher, self._eos_token_ids, make, number_limit
        )

    async def _check_in_process(self, grammar: Grammar) -> dict[str, str] | None:
        if self._num_waiting >= MAX_WAITING:
            raise CompilerBusy
        self._num_waiting += 1
        try:
            _, number = await self._idle.get()
        finally:
            self._num_waiting -= 1
        process = self._processes[number]
        try:
            return await process.run(asdict(grammar))
        except OSError as error:
            raise CompilerBusy from error
        finally:
            self._idle.put_nowait((process.is_starting, number))


def _lower_priority() -> None:
    if sys.platform == "linux":  # only there do threads have priorities of their own
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
