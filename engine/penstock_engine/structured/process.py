"""Starts, calls and restarts the process that compiles grammars."""

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from typing import Any

from penstock_engine.structured.limits import COMPILE_TIMEOUT_S

START_TIMEOUT_S = 60
MAX_REPLY_BYTES = 16 * 2**20

Json = dict[str, Any]


class CompilerProcess:
    """A process that compiles one grammar at a time.

    It starts with the first job. After a job that is killed for taking too long it restarts at once.
    hello: its first message, with the tokenizer.
    """

    def __init__(self, hello: Json) -> None:
        self._hello = hello
        self._started: asyncio.Task[Process] | None = None

    @property
    def is_starting(self) -> bool:
        return self._started is not None and not self._started.done()

    async def run(self, job: Json) -> Json | None:
        """Returns the reply; None if the job took too long or too much memory.

        Raises OSError if the process cannot start.
        """
        if self._started is None or _has_exited(self._started):
            self._started = asyncio.create_task(_start(self._hello))
        process = await asyncio.shield(self._started)
        reply = b""
        try:
            with contextlib.suppress(TimeoutError, ConnectionError):
                reply = await asyncio.wait_for(_call(process, job), COMPILE_TIMEOUT_S)
        finally:
            if not reply.endswith(b"\n"):
                await _kill(process)
                self._started = asyncio.create_task(_start(self._hello))
        return json.loads(reply) if reply.endswith(b"\n") else None

    async def close(self) -> None:
        if self._started is not None:
            with contextlib.suppress(OSError):
                await _kill(await self._started)


def _has_exited(started: asyncio.Task[Process]) -> bool:
    """Whether the process failed to start, or exited between jobs."""
    if not started.done():
        return False
    return started.exception() is not None or started.result().returncode is not None


async def _start(hello: Json) -> Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "penstock_engine.structured.worker",
        stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=MAX_REPLY_BYTES,
    )  # fmt: skip
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            if await _call(process, hello):
                return process
    except ConnectionError:
        pass
    except BaseException:
        await _kill(process)
        raise
    await _kill(process)
    raise OSError("the process that compiles grammars does not start")


async def _call(process: Process, body: Json) -> bytes:
    """Sends one JSON line and returns the reply line; empty if the process has exited."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(body).encode() + b"\n")
    await process.stdin.drain()
    return await process.stdout.readline()


async def _kill(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    if process.stdin is not None:
        process.stdin.close()
    await process.wait()
