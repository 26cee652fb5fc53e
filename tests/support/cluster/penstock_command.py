"""Runs the `penstock` command against the cluster of a stage."""

import asyncio
import os
import sys
from dataclasses import dataclass

from penstock.demo.stage import Stage


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Exit code and output of a command."""

    code: int
    text: str


async def run_penstock(stage: Stage, *args: str) -> CommandResult:
    """Run `penstock ARGS`. The output includes that of standard error."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "penstock", *args,
        env=os.environ | {"KUBECONFIG": str(stage.cluster.kubeconfig), "COLUMNS": "200"},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return CommandResult(await process.wait(), out.decode())


async def penstock(stage: Stage, *args: str, code: int = 0) -> str:
    """Run `penstock ARGS` and return its output. Raises AssertionError at any other exit code."""
    result = await run_penstock(stage, *args)
    assert result.code == code, result.text
    return result.text
