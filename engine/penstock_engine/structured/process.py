"""The compiling process, as the event loop sees it."""

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
    """Started with the first job, and again, at once, after one that had to be ended with it.

    One job at a time.
    """

    def __init__(self, hello: Json) -> None:
        self._hello = hello
        self._started: asyncio.Task[Process] | None = None

    @property
    def is_starting(self) -> bool:
        return self._started is not None and not self._started.done()

    async def run(self, job: Json) -> Json | None:
        """The reply; None when the job took too long or too much memory. Raises OSError."""
        if self._started is None or _is_gone(self._started):
            self._started = asyncio.create_task(_start(self._hello))
        process = await asyncio.shield(self._started)
        reply = b""
        try:
            with contextlib.suppress(TimeoutError, ConnectionError):
                reply = await asyncio.wait_for(_ask(process, job), COMPILE_TIMEOUT_S)
        finally:
            if not reply.endswith(b"\n"):
                await _end(process)
                self._started = asyncio.create_task(_start(self._hello))
        return json.loads(reply) if reply.endswith(b"\n") else None

    async def close(self) -> None:
        if self._started is not None:
            with contextlib.suppress(OSError):
                await _end(await self._started)


def _is_gone(started: asyncio.Task[Process]) -> bool:
    """Whether it did not start, or has ended while there was nothing to do."""
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
            if await _ask(process, hello):
                return process
    except ConnectionError:
        pass
    except BaseException:
        await _end(process)
        raise
    await _end(process)
    raise OSError("the compiling process does not start")


async def _ask(process: Process, body: Json) -> bytes:
    """One line for another; empty when the process has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(body).encode() + b"\n")
    await process.stdin.drain()
    return await process.stdout.readline()


async def _end(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    if process.stdin is not None:
        process.stdin.close()
    await process.wait()
