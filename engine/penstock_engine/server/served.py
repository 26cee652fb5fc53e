"""What the routes of one process share."""

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from penstock_engine.config import EngineConfig
from penstock_engine.serve_options import ServeOptions
from penstock_engine.server.adapters import AdapterRegistry
from penstock_engine.server.bridge import Bridge
from penstock_engine.server.defaults import GenerationDefaults
from penstock_engine.server.errors import RequestError
from penstock_engine.server.metrics import EngineMetrics
from penstock_engine.server.responses.store import ResponseStore
from penstock_engine.sizing import Sizing
from penstock_engine.structured.compiler import GrammarCompiler
from penstock_engine.tokens import Tokenizer

if TYPE_CHECKING:
    from penstock_engine.server.tracing import Tracer


@dataclass(slots=True)
class Served:
    """in_flight: generation requests between their first and last byte. is_draining is set once.

    seeds: for requests without one of their own. grammars: None when nothing is known of how the
    tokenizer spells. tracer: None when nobody collects traces. responses: None if they are not stored.
    """

    options: ServeOptions
    config: EngineConfig
    sizing: Sizing
    tokenizer: Tokenizer
    bridge: Bridge
    metrics: EngineMetrics
    adapters: AdapterRegistry
    seeds: random.Random
    grammars: GrammarCompiler | None
    defaults: GenerationDefaults = field(default_factory=GenerationDefaults)
    tracer: "Tracer | None" = None
    responses: ResponseStore | None = None
    created: int = field(default_factory=lambda: int(time.time()))
    in_flight: int = 0
    is_draining: bool = False

    @property
    def model_names(self) -> list[str]:
        """What clients may call the model."""
        return self.options.served_model_names

    @property
    def model_name(self) -> str:
        """What answers call it."""
        return self.model_names[0]

    @property
    def is_ready(self) -> bool:
        return self.state == "ready"

    @property
    def state(self) -> str:
        if not self.bridge.alive:
            return "engine stopped"
        if self.is_draining:
            return "draining"
        return "asleep" if self.bridge.is_asleep else "ready"

    @property
    def max_open_choices(self) -> int:
        """Maximum number of choices that run or wait."""
        return self.config.max_num_seqs + self.config.max_num_queued_reqs

    def admit(self) -> None:
        """Raise RequestError if no request can be accepted now.

        Requests that are still being read or tokenised count too.
        """
        if not self.is_ready:
            told = "asleep" if self.bridge.is_asleep else "stopping"
            raise RequestError(503, f"the engine is {told}: try again")
        if self.bridge.is_full or self.in_flight > self.max_open_choices:
            self._refuse("max_num_queued_reqs")

    def admit_tokens(self, num_tokens: int) -> None:
        """Raises RequestError when the queue has no room for so many prompt tokens.

        An empty queue has room for any prompt.
        """
        most, queued = self.config.max_num_queued_tokens, self.bridge.num_queued_tokens
        if most is not None and queued and queued + num_tokens > most:
            self._refuse("max_num_queued_tokens")

    def drain(self) -> None:
        self.is_draining = True
        self.metrics.set_draining()

    def _refuse(self, reason: str) -> NoReturn:
        self.metrics.rejected(reason)
        raise RequestError(503, "the engine's queue is full: try again")
