"""Work that runs in the background of a block."""

import asyncio

import pytest
from tests.support.background import background


async def fail() -> None:
    raise ValueError("no pod is ready")


async def run_block(ended: list[str], error: Exception | None = None) -> None:
    """Run a block with failing work in its background. error: raised by the block."""
    async with background(fail()):
        await asyncio.sleep(0)
        if error is not None:
            raise error
        ended.append("block")


async def test_work_ends_with_the_block() -> None:
    async with background(asyncio.sleep(1000)) as work:
        await asyncio.sleep(0)
    assert work.cancelled()


async def test_an_error_of_the_work_is_raised_at_the_end_of_the_block() -> None:
    ended: list[str] = []
    with pytest.raises(ValueError, match="no pod is ready"):
        await run_block(ended)
    assert ended == ["block"]


async def test_an_error_of_the_block_is_raised_instead_of_the_work_s() -> None:
    with pytest.raises(TimeoutError):
        await run_block([], TimeoutError())
