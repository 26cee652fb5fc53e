"""What the routes of one process share."""

import random
import time
from dataclasses import dataclass, field

from penstock_engine.config import EngineConfig, ServeOptions
from penstock_engine.preflight import Sizing
from penstock_engine.server.bridge import Bridge
from penstock_engine.server.defaults import GenerationDefaults
from penstock_engine.server.metrics import EngineMetrics
from penstock_engine.tokens import Tokenizer


@dataclass(slots=True)
class Served:
    """in_flight: generation requests between their first and last byte. is_draining is set once.

    seeds: for requests without one of their own.
    """

    options: ServeOptions
    config: EngineConfig
    sizing: Sizing
    tokenizer: Tokenizer
    bridge: Bridge
    metrics: EngineMetrics
    seeds: random.Random
    defaults: GenerationDefaults = field(default_factory=GenerationDefaults)
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
        return self.bridge.alive and not self.is_draining

    @property
    def is_full(self) -> bool:
        """Counts requests that are still being read or tokenised, too."""
        most = self.config.max_num_seqs + self.config.max_num_queued_reqs
        return self.bridge.is_full or self.in_flight > most

    def has_room_for(self, num_tokens: int) -> bool:
        """Whether so many prompt tokens may be queued. An empty queue has room for any prompt."""
        most, queued = self.config.max_num_queued_tokens, self.bridge.num_queued_tokens
        return most is None or not queued or queued + num_tokens <= most

    def drain(self) -> None:
        self.is_draining = True
        self.metrics.set_draining()
