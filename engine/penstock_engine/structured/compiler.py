"""Grammars to constraints: capped, cached, and off the event loop."""

import asyncio
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

from penstock_engine.structured.constraint import Compiled
from penstock_engine.structured.grammar import Grammar, GrammarRefused
from penstock_engine.structured.limits import make_matcher, make_tokenizer
from penstock_engine.structured.process import CompilerProcess
from penstock_engine.structured.worker import NICENESS

MAX_PROCESSES = 2
MAX_WAITING = 32
MAX_CACHED = 64


class CompilerBusy(Exception):
    """Nothing can be compiled now: too many grammars wait, or the machine refuses a process."""


class GrammarCompiler:
    """Lives on one event loop."""

    def __init__(
        self, tokenizer_json: str, vocab_size: int, eos_token_ids: Collection[int]
    ) -> None:
        """Takes about a second for 150,000 tokens, in which no other thread runs.

        Raises ValueError when the bytes of the tokens cannot be told.
        """
        self._eos_token_ids = frozenset(eos_token_ids)
        self._tokenizer = make_tokenizer(tokenizer_json, vocab_size, eos_token_ids)
        hello = {
            "tokenizer": tokenizer_json,
            "vocab_size": vocab_size,
            "eos_token_ids": sorted(eos_token_ids),
        }
        self._processes = [CompilerProcess(hello) for _ in range(MAX_PROCESSES)]
        # Those that start again come last: nobody waits for one while another is ready.
        self._idle: asyncio.PriorityQueue[tuple[bool, int]] = asyncio.PriorityQueue()
        for number in range(MAX_PROCESSES):
            self._idle.put_nowait((False, number))
        self._num_waiting = 0
        self._cache: OrderedDict[Grammar, Compiled | str] = OrderedDict()
        self._executor = ThreadPoolExecutor(1, "grammar", initializer=_yield_to_engine)

    async def compile(self, grammar: Grammar) -> Compiled:
        """Raises GrammarRefused, CompilerBusy."""
        compiled = self._cache.get(grammar)
        if compiled is None or (isinstance(compiled, Compiled) and compiled.is_spent):
            compiled = await self._compile(grammar)
            self._cache[grammar] = compiled
            if len(self._cache) > MAX_CACHED:
                self._cache.popitem(last=False)
        self._cache.move_to_end(grammar)
        if isinstance(compiled, str):
            raise GrammarRefused(compiled)
        return compiled

    async def close(self) -> None:
        await asyncio.gather(*(process.close() for process in self._processes))
        self._executor.shutdown(wait=False)

    async def _compile(self, grammar: Grammar) -> Compiled | str:
        """What can be cached: a compiled grammar, or what is wrong."""
        reply = await self._vouch(grammar)
        if reply is None:
            raise GrammarRefused("it takes too long or too much memory to compile")
        if "text" not in reply:
            return reply["error"]
        loop = asyncio.get_running_loop()
        matcher = await loop.run_in_executor(
            self._executor, make_matcher, self._tokenizer, reply["text"]
        )
        return matcher.get_error() or Compiled(matcher, self._eos_token_ids)

    async def _vouch(self, grammar: Grammar) -> dict[str, str] | None:
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


def _yield_to_engine() -> None:
    if sys.platform == "linux":  # where threads have priorities of their own
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
