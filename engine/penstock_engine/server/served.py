"""What the routes of one process share."""

import random
import time
from dataclasses import dataclass, field

from penstock_engine.config import EngineConfig, ServeOptions
from penstock_engine.preflight import Sizing
from penstock_engine.server.bridge import Bridge
from penstock_engine.server.metrics import EngineMetrics
from penstock_engine.structured.compiler import GrammarCompiler
from penstock_engine.tokens import Tokenizer


@dataclass(slots=True)
class Served:
    """in_flight: generation requests between their first and last byte. is_draining is set once.

    seeds: for requests without one of their own. grammars: None when nothing is known of how the
    tokenizer spells.
    """

    model_name: str
    config: EngineConfig
    sizing: Sizing
    tokenizer: Tokenizer
    bridge: Bridge
    metrics: EngineMetrics
    seeds: random.Random
    options: ServeOptions
    grammars: GrammarCompiler | None
    created: int = field(default_factory=lambda: int(time.time()))
    in_flight: int = 0
    is_draining: bool = False

    @property
    def is_ready(self) -> bool:
        return self.bridge.alive and not self.is_draining

    @property
    def is_full(self) -> bool:
        """Counts requests that are still being read or tokenised, too."""
        most = self.config.max_num_seqs + self.config.max_num_queued_reqs
        return self.bridge.is_full or self.in_flight > most

    def drain(self) -> None:
        self.is_draining = True
        self.metrics.set_draining()
