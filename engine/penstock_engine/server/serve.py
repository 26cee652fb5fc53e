"""Loading, listening, draining, ending."""

import asyncio
import logging
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from penstock_engine import device
from penstock_engine.config import EngineConfig, ServeOptions
from penstock_engine.core.scheduler import Scheduler, SchedulerConfig
from penstock_engine.preflight import Sizing, size
from penstock_engine.runner import Runner
from penstock_engine.server.app import build_app
from penstock_engine.server.bridge import Bridge, now_s
from penstock_engine.server.metrics import EngineMetrics
from penstock_engine.server.served import Served
from penstock_engine.tokens import Tokenizer

logger = logging.getLogger(__name__)

MAX_HEADER_BYTES = 65_536
# Longer than the gateway keeps idle connections (30 s), so that none is closed as it is used.
KEEP_ALIVE_S = 75
DRAIN_POLL_S = 0.05
# What is left after the drain: last bytes to clients that read slowly.
CLOSE_TIMEOUT_S = 5


class Server(uvicorn.Server):
    """Leaves the signals to the drain."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(config: EngineConfig, options: ServeOptions) -> None:
    """Until SIGTERM or SIGINT, and the end of the drain. Raises ModelError when it cannot start."""
    started_s = now_s()
    device_name = device.choose_device(config.device)
    sizing = size(config, device_name=device_name, memory_limit_bytes=device.memory_limit_bytes())
    tokenizer = Tokenizer(config.model_dir)
    scheduler = Scheduler(_scheduler_config(config, sizing))
    runner = _load(config, sizing)
    metrics = EngineMetrics(options.served_model_name, config, sizing)
    bridge = Bridge(scheduler, runner, metrics, sizing.model.eos_token_ids)
    runner.watch(bridge.lose)
    served = Served(
        options.served_model_name, config, sizing, tokenizer, bridge, metrics,
        seeds=random.Random(config.seed),  # noqa: S311 - of sampling, not of secrets
    )  # fmt: skip
    logger.info(
        "loaded in %.1f s: %s on %s in %s, %d blocks of %d tokens, context %d",
        now_s() - started_s, options.served_model_name, device_name, sizing.dtype,
        sizing.num_blocks, sizing.block_size, sizing.max_model_len,
    )  # fmt: skip
    try:
        await _listen(served, options)
    finally:
        await bridge.close()
        runner.close()


def _scheduler_config(config: EngineConfig, sizing: Sizing) -> SchedulerConfig:
    return SchedulerConfig(
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_model_len=sizing.max_model_len,
        block_size=sizing.block_size,
        num_blocks=sizing.num_blocks,
        prefix_caching=config.enable_prefix_caching,
        max_num_queued_seqs=config.max_num_queued_reqs,
        speculation=config.speculative_config,
    )


def _load(config: EngineConfig, sizing: Sizing) -> Runner:
    return Runner.load(
        config.model_dir,
        device=sizing.device,
        dtype=sizing.dtype,
        num_blocks=sizing.num_blocks,
        block_size=sizing.block_size,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_model_len=sizing.max_model_len,
        draft_model_dir=config.draft_model_dir,
        layout=config.layout,
    )


async def _listen(served: Served, options: ServeOptions) -> None:
    server = Server(
        uvicorn.Config(
            build_app(served, options.api_key),
            host=options.host,
            port=options.port,
            log_level="warning",
            access_log=False,
            http="h11",  # the one that caps headers
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            ws="none",
            lifespan="off",
            timeout_graceful_shutdown=CLOSE_TIMEOUT_S,
            timeout_keep_alive=KEEP_ALIVE_S,
            server_header=False,
        )
    )
    draining = asyncio.create_task(_drain_on_signal(server, served, options.shutdown_timeout_s))
    try:
        await server.serve()
    finally:
        draining.cancel()
        await asyncio.gather(draining, return_exceptions=True)


async def _drain_on_signal(server: Server, served: Served, timeout_s: float) -> None:
    """First signal: no new requests, finish the running ones. Second signal: end now."""
    signalled = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled.set)
    await signalled.wait()
    signalled.clear()
    served.drain()
    logger.info("draining %d requests", served.in_flight)
    deadline_s = now_s() + timeout_s
    while (  # noqa: ASYNC110 - three conditions, one of them a time
        served.in_flight and now_s() < deadline_s and not signalled.is_set()
    ):
        await asyncio.sleep(DRAIN_POLL_S)
    if served.in_flight:
        logger.warning("%d requests are cut off", served.in_flight)
        await served.bridge.close()  # each gets an error, which is sent before the server exits
    server.should_exit = True
