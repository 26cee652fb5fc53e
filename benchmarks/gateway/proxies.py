"""Other proxies before engines, each in a Python environment of its own."""

import argparse
import asyncio
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

# LiteLLM imports for half a minute on a busy machine.
START_TIMEOUT_S = 180.0
KEY = "sk-benchmark"
# A key with limits. LiteLLM's own virtual keys need a server of PostgreSQL, so a function of its
# configuration returns what the database would have.
LITELLM_AUTHENTICATION = f"""
from litellm.proxy._types import UserAPIKeyAuth
from litellm.proxy.proxy_server import hash_token

KEY = {KEY!r}

async def authenticate(request, api_key):
    if api_key != KEY:
        raise Exception("invalid key")
    return UserAPIKeyAuth(
        api_key=hash_token(KEY), tpm_limit=10**10, rpm_limit=10**7, max_parallel_requests=10**4
    )
"""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy that runs. keys: that its clients send in turn."""

    name: str
    port: int
    pid: int
    keys: Sequence[str]


def proxies(
    options: argparse.Namespace, engine_port: int, folder: Path, redis_port: int
) -> Iterator[AbstractAsyncContextManager[Proxy]]:
    """The proxies that the command line has a Python for, not yet started."""
    if options.litellm:
        yield litellm(options.litellm, engine_port, folder, redis_port)
    if options.stack_router:
        yield stack_router(options.stack_router, engine_port, folder)
    if options.vllm_router:
        yield vllm_router(options.vllm_router, engine_port, folder)


@asynccontextmanager
async def litellm(
    python: str, engine_port: int, folder: Path, redis_port: int
) -> AsyncIterator[Proxy]:
    """LiteLLM's proxy with one worker, a key with limits, and their counts in Redis."""
    (folder / "authentication.py").write_text(LITELLM_AUTHENTICATION)
    parameters = {
        "model": "openai/plain", "api_base": f"http://127.0.0.1:{engine_port}/v1", "api_key": "none",
    }  # fmt: skip
    configuration = {
        "model_list": [{"model_name": "plain", "litellm_params": parameters}],
        "general_settings": {
            "master_key": "sk-master",
            "custom_auth": "authentication.authenticate",
        },
        "router_settings": {"redis_host": "127.0.0.1", "redis_port": redis_port},
        "litellm_settings": {
            "cache": True,
            "cache_params": {
                "type": "redis", "host": "127.0.0.1", "port": redis_port, "supported_call_types": [],
            },
            "num_retries": 0,
        },
    }  # fmt: skip
    (folder / "litellm.yaml").write_text(json.dumps(configuration))
    program = str(Path(python).parent / "litellm")
    arguments = ["--config", str(folder / "litellm.yaml"), "--host", "127.0.0.1"]
    environment = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False", "LITELLM_LOG": "ERROR",
        "PYTHONPATH": str(folder),
    }  # fmt: skip
    started = _start("LiteLLM", [program, *arguments], folder, environment)
    async with started as proxy:
        yield proxy


@asynccontextmanager
async def stack_router(python: str, engine_port: int, folder: Path) -> AsyncIterator[Proxy]:
    """The router of vLLM's production stack."""
    arguments = [
        "-m", "vllm_router.app", "--host", "127.0.0.1", "--service-discovery", "static",
        "--static-backends", f"http://127.0.0.1:{engine_port}", "--static-models", "plain",
        "--routing-logic", "roundrobin", "--log-level", "warning",
    ]  # fmt: skip
    async with _start("stack's router", [python, *arguments], folder) as proxy:
        yield proxy


@asynccontextmanager
async def vllm_router(python: str, engine_port: int, folder: Path) -> AsyncIterator[Proxy]:
    """The package vllm-router, which is written in Rust."""
    arguments = [
        "-m", "vllm_router.launch_router", "--host", "127.0.0.1", "--worker-urls",
        f"http://127.0.0.1:{engine_port}", "--policy", "round_robin", "--log-level", "warning",
    ]  # fmt: skip
    async with _start("vllm-router", [python, *arguments], folder) as proxy:
        yield proxy


@asynccontextmanager
async def _start(
    name: str, command: list[str], folder: Path, environment: Mapping[str, str] = {}
) -> AsyncIterator[Proxy]:
    """Start a proxy, and wait until it listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        child = await asyncio.create_subprocess_exec(
            *command, "--port", str(port),
            stdout=output, stderr=output, cwd=folder, env={**os.environ, **environment},
        )  # fmt: skip
    try:
        await _wait_for(port, child, log)
        yield Proxy(name, port, child.pid, [KEY])
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def _wait_for(port: int, child: asyncio.subprocess.Process, log: Path) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s and child.returncode is None:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.2)
        else:
            writer.close()
            return
    raise RuntimeError(f"{log} tells why the proxy does not start")
