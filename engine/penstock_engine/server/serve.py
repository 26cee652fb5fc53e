"""Runs the engine: loads the model, serves until the end of the drain, and shuts down."""

import asyncio
import logging
import random
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock_engine.core.errors import ModelError
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.execution.runner import Runner
from penstock_engine.lora.base_model import BaseModel, recorded_names
from penstock_engine.lora.checkpoint import Adapter
from penstock_engine.machine import device
from penstock_engine.machine.interpreter import shorten_gil_waits
from penstock_engine.memory.plan import MemoryPlan, plan_memory
from penstock_engine.options.config import EngineConfig
from penstock_engine.options.flag_values import FIT
from penstock_engine.options.serve_options import ServeOptions
from penstock_engine.server.adapters.folders import trusted_folder
from penstock_engine.server.adapters.registry import AdapterRegistry
from penstock_engine.server.async_engine import AsyncEngine
from penstock_engine.server.configs import runner_config, scheduler_config
from penstock_engine.server.handlers.response_store import ResponseStore
from penstock_engine.server.handlers.state import ServerState
from penstock_engine.server.listen import listen
from penstock_engine.server.metrics.engine_metrics import EngineMetrics
from penstock_engine.server.requests.chat_template import template_options
from penstock_engine.server.requests.defaults import generation_defaults
from penstock_engine.server.startup import StartupTimer
from penstock_engine.server.transport.errors import RequestError
from penstock_engine.structured.compiler import GrammarCompiler
from penstock_engine.telemetry import traces
from penstock_engine.text.tokens import Tokenizer

if TYPE_CHECKING:
    from penstock_engine.kv_events.publisher import EventPublisher
    from penstock_engine.server.generation.tracing import Tracer

logger = logging.getLogger(__name__)


async def serve(config: EngineConfig, options: ServeOptions, startup_timer: StartupTimer) -> None:
    """Serves until SIGTERM or SIGINT and the end of the drain. Raises ModelError if it cannot start."""
    startup_timer.end_phase("import")
    memory_plan = _plan(config)
    shorten_gil_waits(memory_plan.device)
    tokenizer = Tokenizer(config.tokenizer_dir, template_options(options))
    defaults = generation_defaults(
        config.model_dir, options.generation_config, options.override_generation_config
    )
    scheduler = Scheduler(scheduler_config(config, memory_plan))
    grammars = _grammars(tokenizer, memory_plan)
    metrics = EngineMetrics(options.served_model_names[0], config, memory_plan)
    event_publisher = _event_publisher(config, options.host, memory_plan, metrics)
    startup_timer.end_phase("config")

    targets: dict[str, tuple[int, int]] = {}
    in_memory: dict[str, Adapter] = {}

    def load(on_weights: Callable[[], None] = lambda: None) -> Runner:
        runner = Runner.load(
            runner_config(config, memory_plan),
            on_weights=on_weights,
            on_rank_exit=lambda: engine.report_runner_death(),
            on_threads=metrics.set_cpu_threads,
        )
        if config.enable_lora:
            targets.update(runner.adapters.targets)
            for identity, adapter in list(in_memory.items()):
                runner.adapters.add(identity, adapter)
        return runner

    # No variable here refers to the runner, so that the engine can free it when it sleeps.
    engine = AsyncEngine(
        scheduler, load(lambda: startup_timer.end_phase("weights")), metrics,
        memory_plan.model.eos_token_ids, load, event_publisher,
    )  # fmt: skip
    startup_timer.end_phase("warm_up")
    adapters = AdapterRegistry(
        engine, config, metrics, targets=targets, dtype=memory_plan.dtype,
        taken_names=options.served_model_names, in_memory=in_memory,
        base=_base_model(config, options, tokenizer),
    )  # fmt: skip
    state = ServerState(
        options, config, memory_plan, tokenizer, engine, metrics, adapters,
        seeds=random.Random(config.seed),  # noqa: S311 - of sampling, not of secrets
        grammars=grammars, defaults=defaults, tracer=_tracer(options.otlp_traces_endpoint),
        responses=ResponseStore() if options.enable_responses_store else None,
    )  # fmt: skip
    _log_sizes(state)
    try:
        await _load_adapters(adapters, options)
        await listen(state, startup_timer)
    finally:
        await _close(state)


def _plan(config: EngineConfig) -> MemoryPlan:
    """The memory plan for this machine. Raises ModelError."""
    device_name = device.choose_device(config.device)
    memory = device.device_memory(
        device_name,
        utilization=config.memory_utilization,
        num_devices=config.layout.num_ranks,
    )
    return plan_memory(config, device_name=device_name, memory=memory)


def _log_sizes(state: ServerState) -> None:
    plan = state.memory_plan
    logger.info(
        "loaded: %s on %s in %s%s, %d blocks of %d tokens, context %d, at most %d sequences and %d "
        "tokens in a step",
        state.model_name, plan.device, plan.dtype, _describe_weights(state.config), plan.num_blocks,
        plan.block_size, plan.max_model_len, plan.max_num_seqs, plan.max_num_batched_tokens,
    )  # fmt: skip
    if state.config.max_model_len == FIT and plan.max_model_len < plan.model.max_model_len:
        logger.warning(
            "the context is cut to %d of the model's %d tokens, which is what the KV cache has "
            "room for", plan.max_model_len, plan.model.max_model_len,
        )  # fmt: skip


async def _close(state: ServerState) -> None:
    """Ends the engine's thread, its stored responses, traces and grammar processes."""
    await state.engine.close()
    if state.responses is not None:
        await state.responses.close()
    if state.tracer is not None:
        await asyncio.to_thread(state.tracer.close)
    if state.grammars is not None:
        await state.grammars.close()


def _describe_weights(config: EngineConfig) -> str:
    """The rounding of the weights and their division among ranks, for the log."""
    rounded = "" if config.quantization is None else f", {config.quantization} weights"
    layout = config.layout
    if layout.num_ranks == 1:
        return rounded
    experts = ", whole experts on each" if layout.splits_experts else ""
    return f"{rounded}, tensor {layout.tensor} x pipeline {layout.pipeline} ranks{experts}"


def _grammars(tokenizer: Tokenizer, memory_plan: MemoryPlan) -> GrammarCompiler | None:
    vocab_size = max(memory_plan.model.vocab_size, tokenizer.vocab_size)
    try:
        return GrammarCompiler(tokenizer.to_json(), vocab_size, memory_plan.model.eos_token_ids)
    except ValueError:
        logger.warning(
            "no structured output: the tokenizer does not say which bytes its tokens are"
        )
        return None


async def _load_adapters(adapters: AdapterRegistry, options: ServeOptions) -> None:
    """Loads the adapters of --lora-modules. Raises ModelError."""
    for module in options.adapters:
        try:
            await adapters.load(
                module.name,
                trusted_folder(module.path),
                path=module.path,
                parent=module.base_model_name,
            )
        except (ModelError, RequestError) as error:
            raise ModelError("BadAdapter", f"--lora-modules {module.name}: {error}") from error


def _base_model(config: EngineConfig, options: ServeOptions, tokenizer: Tokenizer) -> BaseModel:
    """The served model, as adapters have to fit it."""
    names = recorded_names(config.model_dir, options.served_model_names)
    return BaseModel(names, tokenizer.token_id, tokenizer.has_chat_template)


def _event_publisher(
    config: EngineConfig, host: str, memory_plan: MemoryPlan, metrics: EngineMetrics
) -> "EventPublisher | None":
    """The publisher of changes of the prefix cache. Raises ModelError if it cannot use its endpoint."""
    settings = config.kv_events_config
    if settings is None or not settings.is_published:
        if settings is not None and settings.publisher == "zmq":
            logger.warning(
                "--kv-events-config publishes nothing: set enable_kv_cache_events to true"
            )
        return None
    if not config.enable_prefix_caching:
        logger.warning("--kv-events-config publishes nothing: prefix caching is off")
    # They take 0.1 s.
    from penstock_engine.kv_events.encoding import BatchEncoder
    from penstock_engine.kv_events.publisher import EventPublisher

    encoder = BatchEncoder(memory_plan.block_size, memory_plan.window_tokens)
    try:
        address = socket.getaddrinfo(host, None)[0][4][0] if host else host
        return EventPublisher(settings, encoder, metrics.observe_kv_event_batch, str(address))
    except OSError as error:
        raise ModelError("BadArguments", f"--kv-events-config: {error}") from error


def _tracer(endpoint: str | None) -> "Tracer | None":
    if not traces.is_enabled(endpoint):
        return None
    from penstock_engine.server.generation.tracing import Tracer  # takes a second and megabytes

    return Tracer(endpoint)
