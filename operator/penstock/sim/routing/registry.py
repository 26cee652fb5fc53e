"""Routing rules by name."""

from collections.abc import Callable, Mapping

from penstock.sim.routing.bounded_hashing import BoundedHashing, first_block
from penstock.sim.routing.dynamo import Dynamo
from penstock.sim.routing.least_loaded import LeastLoaded
from penstock.sim.routing.llmd import LlmD
from penstock.sim.routing.penstock import Penstock
from penstock.sim.routing.picker import Picker
from penstock.sim.routing.round_robin import RoundRobin
from penstock.sim.routing.session import SessionAffinity
from penstock.sim.routing.uniform import Uniform

# Each with what it is
PICKERS: Mapping[str, tuple[Callable[[], Picker], str]] = {
    "penstock": (Penstock, "the gateway's own routing"),
    "round-robin": (RoundRobin, "the engines in turn"),
    "random": (Uniform, "a random engine"),
    "least-loaded": (LeastLoaded, "the fewest tokens in flight"),
    "session": (SessionAffinity, "the engine of the conversation's last request"),
    "kubeai": (BoundedHashing, "KubeAI: consistent hashing of conversations, bounded loads"),
    "prefix-hash": (
        lambda: BoundedHashing(first_block),
        "as kubeai, by the first block of the prompt",
    ),
    "llm-d": (LlmD, "llm-d: approximate prefix index, queue and KV usage"),
    "llm-d-sized": (
        lambda: LlmD(index_size=1.0),
        "as llm-d, with an index as large as the KV cache",
    ),
    "dynamo": (Dynamo, "Dynamo: exact block events, prefill and active blocks"),
}


def make_picker(name: str) -> Picker:
    """A new rule. Raises ValueError if there is none of this name."""
    if name not in PICKERS:
        raise ValueError(f"no routing rule {name!r}; there are: {', '.join(PICKERS)}")
    return PICKERS[name][0]()
