"""Models that clients of a node's cache hold: none of them is evicted."""

import threading
from pathlib import Path

from penstock_engine.contract.model_source import ModelSource
from penstock_engine.sources.storage.lease import Lease, try_acquire
from penstock_engine.sources.storage.store import Store


class Holds:
    """The leases of models that connections hold, one for each model. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._leases: dict[Path, Lease] = {}
        self._counts: dict[Path, int] = {}  # connections by model

    def take(self, resolved: ModelSource) -> bool:
        """Hold a model until `release`. Returns False if the store does not have it. Raises OSError."""
        model = self._store.model_path(resolved)
        with self._lock:
            if not self._store.has_marker(model):
                return False
            if model not in self._leases:
                lease = try_acquire(self._store.new_use_path(model))
                if lease is None:
                    return False
                self._leases[model] = lease
            self._counts[model] = self._counts.get(model, 0) + 1
        if self._store.has_marker(model):
            return True
        self.release(resolved)  # it was evicted before the lease was there
        return False

    @property
    def num_connections(self) -> int:
        """Number of holds of all models."""
        with self._lock:
            return sum(self._counts.values())

    def keep(self, resolved: ModelSource, time_s: float) -> bool:
        """Keep a model for so long at least. Returns False if the store does not have it. Raises OSError."""
        model = self._store.model_path(resolved)
        if not self._store.has_marker(model):
            return False
        self.extend(model, time_s)
        return self._store.has_marker(model)

    def release(self, resolved: ModelSource) -> None:
        """End one hold of a model."""
        model = self._store.model_path(resolved)
        with self._lock:
            self._counts[model] -= 1
            if self._counts[model] == 0:
                del self._counts[model]
                self._leases.pop(model).release()

    def extend(self, model: Path, time_s: float) -> None:
        """Keep a model's folder in the store for so long at least. Raises OSError."""
        with self._lock:
            self._store.extend_use(model, time_s)
