"""State that all routes of the server share, and the admission of requests."""

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from penstock_engine.memory.plan import MemoryPlan
from penstock_engine.options.config import EngineConfig
from penstock_engine.options.serve_options import ServeOptions
from penstock_engine.server.adapters.registry import AdapterRegistry
from penstock_engine.server.async_engine import AsyncEngine
from penstock_engine.server.handlers.response_store import ResponseStore
from penstock_engine.server.metrics.engine_metrics import EngineMetrics
from penstock_engine.server.requests.defaults import GenerationDefaults
from penstock_engine.server.transport.arriving_bodies import ArrivingBodies
from penstock_engine.server.transport.errors import RequestError
from penstock_engine.structured.compiler import GrammarCompiler
from penstock_engine.text.tokens import Tokenizer

if TYPE_CHECKING:
    from penstock_engine.server.generation.tracing import Tracer


@dataclass(slots=True)
class ServerState:
    """The server's configuration, engine and counters."""

    options: ServeOptions
    config: EngineConfig
    memory_plan: MemoryPlan
    tokenizer: Tokenizer
    engine: AsyncEngine
    metrics: EngineMetrics
    adapters: AdapterRegistry
    seeds: random.Random  # source of seeds for requests without one
    # Grammars are refused without a compiler: the tokenizer does not map its tokens to bytes
    grammars: GrammarCompiler | None
    defaults: GenerationDefaults = field(default_factory=GenerationDefaults)
    bodies: ArrivingBodies = field(default_factory=ArrivingBodies)
    tracer: "Tracer | None" = None  # set if traces are exported
    responses: ResponseStore | None = None  # set if responses are stored
    created: int = field(default_factory=lambda: int(time.time()))  # Unix time of the start
    in_flight: int = 0  # generation requests between their first and last byte
    is_draining: bool = False  # whether new requests are rejected before shutdown

    @property
    def model_names(self) -> list[str]:
        """All names by which requests can address the model."""
        return self.options.served_model_names

    @property
    def model_name(self) -> str:
        """The name of the model in answers: the first of model_names."""
        return self.model_names[0]

    @property
    def is_ready(self) -> bool:
        return self.status == "ready"

    @property
    def status(self) -> str:
        """The server's state: "ready", or the reason why it accepts no requests."""
        if not self.engine.alive:
            return "engine stopped"
        if self.is_draining:
            return "draining"
        return "asleep" if self.engine.is_asleep else "ready"

    @property
    def max_open_choices(self) -> int:
        """Maximum number of choices that run or wait in the queue."""
        return self.memory_plan.max_num_seqs + self.config.max_num_queued_reqs

    def admit(self) -> None:
        """Raises RequestError if no request can be accepted now.

        Requests that are still being read or tokenized count too.
        """
        if not self.is_ready:
            status = "asleep" if self.engine.is_asleep else "stopping"
            raise RequestError(503, f"the engine is {status}: try again")
        if self.engine.is_full or self.in_flight > self.max_open_choices:
            self._reject("max_num_queued_reqs")

    def admit_tokens(self, num_tokens: int) -> None:
        """Raises RequestError if the queue has no room for a request with this many prompt tokens.

        An empty queue has room for any request.
        """
        most, queued = self.config.max_num_queued_tokens, self.engine.num_queued_tokens
        if most is not None and queued and queued + num_tokens > most:
            self._reject("max_num_queued_tokens")

    def drain(self) -> None:
        """Rejects new requests from now on."""
        self.is_draining = True
        self.metrics.set_draining()

    def _reject(self, reason: str) -> NoReturn:
        self.metrics.observe_rejection(reason)
        raise RequestError(503, "the engine's queue is full: try again")
