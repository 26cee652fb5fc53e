"""A LoRA adapter as its LoraAdapter resource wants it, and its names."""

import hashlib
from dataclasses import dataclass, field
from typing import Literal

from penstock.core.runtimes.paths import FETCHED_ADAPTERS, mounted_adapter_path
from penstock_engine.contract.model_source import is_fetched

Policy = Literal["All", "Fixed", "OnDemand"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Bounds on the copies of an adapter. A copy is the adapter in the memory of one engine pod.

    All: a copy on every pod. Fixed: min_copies copies. OnDemand: by demand, from min_copies to max_copies
    (None: one on every pod). is_pinned: whether its copies are never evicted for another adapter.
    priority: of two adapters with equal claims, the higher one gets the slot.
    """

    policy: Policy = "OnDemand"
    min_copies: int = 0
    max_copies: int | None = None
    is_pinned: bool = False
    priority: int = 0


@dataclass(frozen=True, slots=True)
class AdapterVersion:
    """Version of an adapter, which engines load by a name of its own. name: of the LoraAdapter.

    engine_name: name of this version in engines, such as sql@3f2a1b9c.
    """

    name: str
    uri: str
    placement: Placement = Placement()
    engine_name: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "engine_name", f"{self.name}@{self.revision}")

    @property
    def revision(self) -> str:
        """Hash of what shapes answers, 8 hexadecimal digits."""
        return hashlib.sha256(self.uri.encode()).hexdigest()[:8]

    @property
    def is_fetched(self) -> bool:
        """Whether its files are fetched into the service's cache; otherwise engines mount their volume."""
        return is_fetched(self.uri)

    @property
    def engine_path(self) -> str:
        """Folder of this version in the container of an engine, the same in engines of all revisions.

        That of a fetched one has the adapter's name: adapters with the same URI write no files of each other.
        """
        if self.is_fetched:
            return f"{FETCHED_ADAPTERS}/{self.name}/{self.revision}"
        return mounted_adapter_path(self.uri)
