"""Settings of block events, with the names and defaults of vLLM 0.32."""

from dataclasses import dataclass
from typing import Literal, get_args

Publisher = Literal["null", "zmq"]
SCHEMES = ("tcp://", "ipc://")
# Bound on what one setting may count, so that none of them stands for no bound.
MAX_COUNT = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KVEventsConfig:
    """Settings of block events. Raises ValueError that names the setting and says what to change."""

    enable_kv_cache_events: bool = False
    publisher: Publisher | None = None  # default: "zmq" if events are enabled, else "null"
    endpoint: str = "tcp://*:5557"  # of the PUB socket
    replay_endpoint: str | None = None  # of the ROUTER socket, which is bound; None: no replay
    buffer_steps: int = 10_000  # batches that are kept for replay
    hwm: int = 100_000  # batches that wait for one slow subscriber; it misses further ones
    max_queue_size: int = 100_000  # batches that wait to be published; further ones are dropped
    topic: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.enable_kv_cache_events, bool):
            raise ValueError("enable_kv_cache_events must be true or false")
        if self.publisher not in (None, *get_args(Publisher)):
            raise ValueError('publisher must be "null" or "zmq"')
        if not isinstance(self.topic, str):
            raise ValueError("topic must be a string")
        for name in ("buffer_steps", "hwm", "max_queue_size"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= MAX_COUNT:
                raise ValueError(f"{name} must be a whole number from 1 to {MAX_COUNT}")
        for name, endpoint in (
            ("endpoint", self.endpoint),
            ("replay_endpoint", self.replay_endpoint or SCHEMES[0]),
        ):
            if not isinstance(endpoint, str) or not endpoint.startswith(SCHEMES):
                raise ValueError(f"{name} must start with {' or '.join(SCHEMES)}")

    @property
    def is_published(self) -> bool:
        """Whether there are events and a publisher for them."""
        return self.enable_kv_cache_events and self.publisher != "null"

    @property
    def is_bound(self) -> bool:
        """Whether the PUB socket is bound to its endpoint, by vLLM's rule. Otherwise it connects to it."""
        return "*" in self.endpoint or "::" in self.endpoint or self.endpoint.startswith("ipc://")
