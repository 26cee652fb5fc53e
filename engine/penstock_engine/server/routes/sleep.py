"""Sleep mode: an idle engine frees its memory and keeps its port.

Level 1 leaves the weight files in the kernel's page cache, so that waking is fast. Level 2 drops them
from the page cache too.
"""

import asyncio
import logging
import os
from pathlib import Path
from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response

from penstock_engine.checkpoints.weights import weight_files
from penstock_engine.core.errors import ModelError
from penstock_engine.machine.device import release_memory
from penstock_engine.server.handlers.state import ServerState
from penstock_engine.server.transport.errors import RequestError

logger = logging.getLogger(__name__)

Level = Literal[1, 2]

LEVELS: dict[str, Level] = {"1": 1, "2": 2}
MODES = ("abort", "wait")
TAGS = frozenset({"weights", "kv_cache"})


class SleepController:
    """Puts the engine to sleep and wakes it, one change at a time."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._lock = asyncio.Lock()
        self._woken_tags: frozenset[str] = frozenset()

    async def sleep(self, level: Level, *, waits: bool) -> None:
        """Frees the memory. waits: whether running requests finish; otherwise they are aborted."""
        async with self._lock:
            self._woken_tags = frozenset()
            await self._state.engine.sleep(waits=waits)
            await asyncio.to_thread(release_memory, self._state.memory_plan.device)
            if level == 2:
                await asyncio.to_thread(_drop_page_cache, self._state.config.model_dir)
            self._state.metrics.set_sleep(level)
            logger.info("asleep at level %d", level)

    async def wake_up(self, tags: frozenset[str]) -> None:
        """Wakes the engine once calls have named all of TAGS; until then it stays asleep.

        Raises RequestError (503) if the model cannot be loaded again.
        """
        async with self._lock:
            if self._state.engine.is_asleep:
                self._woken_tags |= tags
                if self._woken_tags < TAGS:
                    return
                try:
                    await self._state.engine.wake_up()
                except ModelError as error:
                    raise RequestError(503, f"the engine stays asleep: {error}") from error
                await self._state.adapters.catch_up()
                self._state.metrics.set_sleep(None)
                logger.info("awake")


def sleep_routes(state: ServerState) -> APIRouter:
    """Returns vLLM's routes /sleep, /wake_up and /is_sleeping."""
    router = APIRouter()
    controller = SleepController(state)

    @router.post("/sleep")
    async def sleep(http: Request) -> Response:
        level = LEVELS.get(http.query_params.get("level", "1"))
        mode = http.query_params.get("mode", "abort")
        if level is None:
            raise RequestError(400, "level must be 1 or 2", param="level")
        if mode not in MODES:
            raise RequestError(400, f"mode must be one of {', '.join(MODES)}", param="mode")
        await controller.sleep(level, waits=mode == "wait")
        return Response()

    @router.post("/wake_up")
    async def wake_up(http: Request) -> Response:
        tags = frozenset(http.query_params.getlist("tags"))
        if not tags <= TAGS:
            raise RequestError(400, f"tags must be one of {', '.join(sorted(TAGS))}", param="tags")
        await controller.wake_up(tags or TAGS)
        return Response()

    @router.get("/is_sleeping")
    async def is_sleeping() -> dict[str, bool]:
        return {"is_sleeping": state.engine.is_asleep}

    return router


def _drop_page_cache(model_dir: Path) -> None:
    """Drops the weight files from the kernel's page cache."""
    for path in weight_files(model_dir):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
