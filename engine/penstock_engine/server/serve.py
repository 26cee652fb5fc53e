"""Loading, listening, draining, ending."""

import asyncio
import logging
import signal
from dataclasses import dataclass

import uvicorn

from penstock_engine import device
from penstock_engine.config import EngineConfig, Sizing, size
from penstock_engine.core.scheduler import Scheduler, SchedulerConfig
from penstock_engine.preflight import check_files
from penstock_engine.runner import Runner
from penstock_engine.server.app import Served, build_app
from penstock_engine.server.bridge import Bridge, now_s
from penstock_engine.server.metrics import EngineMetrics
from penstock_engine.tokens import Tokenizer

logger = logging.getLogger(__name__)

MAX_HEADER_BYTES = 65_536
# Longer than the gateway keeps idle connections (30 s), so that none is closed as it is used.
KEEP_ALIVE_S = 75


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The flags of `serve` that do not shape the engine."""

    host: str
    port: int
    served_model_name: str
    api_key: str | None
    shutdown_timeout_s: float


async def serve(config: EngineConfig, options: ServeOptions) -> None:
    """Until SIGTERM or SIGINT, and the end of the drain. Raises ModelError when it cannot start."""
    started_s = now_s()
    check_files(config.model_dir)
    device_name = device.choose_device(config.device)
    sizing = size(config, device_name=device_name, memory_limit_bytes=device.memory_limit_bytes())
    tokenizer = Tokenizer(config.model_dir)
    runner = _load(config, sizing)
    scheduler = Scheduler(
        SchedulerConfig(
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            max_model_len=sizing.max_model_len,
            block_size=config.block_size,
            num_blocks=sizing.num_blocks,
            prefix_caching=config.enable_prefix_caching,
        )
    )
    metrics = EngineMetrics(options.served_model_name, config, sizing)
    bridge = Bridge(scheduler, runner, metrics, sizing.model.eos_token_ids)
    served = Served(options.served_model_name, sizing.max_model_len, tokenizer, bridge, metrics)
    logger.info(
        "ready in %.1f s: %s on %s in %s, %d blocks of %d tokens, context %d",
        now_s() - started_s, options.served_model_name, device_name, sizing.dtype,
        sizing.num_blocks, config.block_size, sizing.max_model_len,
    )  # fmt: skip
    try:
        await _listen(served, options)
    finally:
        await bridge.close()


def _load(config: EngineConfig, sizing: Sizing) -> Runner:
    return Runner.load(
        config.model_dir,
        device=sizing.device,
        dtype=sizing.dtype,
        num_blocks=sizing.num_blocks,
        block_size=config.block_size,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_model_len=sizing.max_model_len,
        seed=config.seed,
    )


async def _listen(served: Served, options: ServeOptions) -> None:
    server = uvicorn.Server(
        uvicorn.Config(
            build_app(served, options.api_key),
            host=options.host,
            port=options.port,
            log_level="warning",
            access_log=False,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            http="h11",  # the one with the header cap
            timeout_graceful_shutdown=5,
            lifespan="off",
            timeout_keep_alive=KEEP_ALIVE_S,
        )
    )
    draining = asyncio.create_task(_drain_on_signal(server, served, options.shutdown_timeout_s))
    try:
        # Not `serve`: that would take the signals that the drain listens to.
        await server._serve()
    finally:
        draining.cancel()


async def _drain_on_signal(server: uvicorn.Server, served: Served, timeout_s: float) -> None:
    """First signal: no new requests, finish the running ones. Second signal: end now."""
    signalled = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled.set)
    await signalled.wait()
    signalled.clear()
    served.draining = True
    served.metrics.set_draining()
    logger.info("draining %d requests", served.bridge.in_flight)
    waits = [asyncio.ensure_future(e.wait()) for e in (served.bridge.idle, signalled)]
    await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    if served.bridge.in_flight:
        logger.warning("%d requests are cut off", served.bridge.in_flight)
        await served.bridge.close()  # each gets an error event
        await asyncio.sleep(0.2)
    server.should_exit = True
