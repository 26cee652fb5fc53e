"""Sleep and waking: an idle engine gives its memory back and keeps its port.

Level 1 leaves the weights where they were read from, in the kernel's copy of their files, and is
quick to wake. Level 2 gives that up too.
"""

import asyncio
import logging
import os
from pathlib import Path
from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response

from penstock_engine.core.errors import ModelError
from penstock_engine.device import release_memory
from penstock_engine.server.errors import RequestError
from penstock_engine.server.served import Served
from penstock_engine.weights import weight_files

logger = logging.getLogger(__name__)

Level = Literal[1, 2]

LEVELS: dict[str, Level] = {"1": 1, "2": 2}
MODES = ("abort", "wait")
TAGS = frozenset({"weights", "kv_cache"})


class Sleeper:
    """One change at a time."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._turn = asyncio.Lock()
        self._woken: frozenset[str] = frozenset()

    async def sleep(self, level: Level, *, waits: bool) -> None:
        async with self._turn:
            self._woken = frozenset()
            await self._served.bridge.sleep(waits=waits)
            await asyncio.to_thread(release_memory, self._served.sizing.device)
            if level == 2:
                await asyncio.to_thread(_drop_pages, self._served.config.model_dir)
            self._served.metrics.set_sleep(level)
            logger.info("asleep at level %d", level)

    async def wake_up(self, tags: frozenset[str]) -> None:
        """Wakes the engine up once all of TAGS have been given; until then it stays asleep."""
        async with self._turn:
            if self._served.bridge.is_asleep:
                self._woken |= tags
                if self._woken < TAGS:
                    return
                try:
                    await self._served.bridge.wake_up()
                except ModelError as error:
                    raise RequestError(503, f"the engine stays asleep: {error}") from error
                self._served.metrics.set_sleep(None)
                logger.info("awake")


def sleeping(served: Served) -> APIRouter:
    router = APIRouter()
    sleeper = Sleeper(served)

    @router.post("/sleep")
    async def sleep(http: Request) -> Response:
        level = LEVELS.get(http.query_params.get("level", "1"))
        mode = http.query_params.get("mode", "abort")
        if level is None:
            raise RequestError(400, "level must be 1 or 2", param="level")
        if mode not in MODES:
            raise RequestError(400, f"mode must be one of {', '.join(MODES)}", param="mode")
        await sleeper.sleep(level, waits=mode == "wait")
        return Response()

    @router.post("/wake_up")
    async def wake_up(http: Request) -> Response:
        tags = frozenset(http.query_params.getlist("tags"))
        if not tags <= TAGS:
            raise RequestError(400, f"tags must be one of {', '.join(sorted(TAGS))}", param="tags")
        await sleeper.wake_up(tags or TAGS)
        return Response()

    @router.get("/is_sleeping")
    async def is_sleeping() -> dict[str, bool]:
        return {"is_sleeping": served.bridge.is_asleep}

    return router


def _drop_pages(model_dir: Path) -> None:
    """Tells the kernel that nobody needs its copy of the files soon."""
    for path in weight_files(model_dir):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
