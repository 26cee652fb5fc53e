"""Queue of the sequences that wait for admission.

The first one is admitted next, unless it is deferred: all adapter slots are taken by other adapters,
or the sequence that it is a fork of is still computing their common prompt. Then later ones may pass.
"""

from collections.abc import Mapping, Set

from penstock_engine.core.priority_list import PriorityList
from penstock_engine.core.sequence import Sequence


class WaitingQueue:
    """Waiting sequences by priority, then by arrival. Not thread-safe."""

    def __init__(self, max_adapters: int, adapter_max_wait_s: float) -> None:
        """max_adapters: number of adapters that may run at once. adapter_max_wait_s: time for which
        sequences whose adapter runs may pass one whose adapter does not."""
        self.sequences = PriorityList()
        self._max_adapters = max_adapters
        self._adapter_max_wait_s = adapter_max_wait_s

    def __len__(self) -> int:
        return len(self.sequences)

    def select_next(
        self, open_sequences: Mapping[str, Sequence], running_adapters: Set[str], now: float
    ) -> Sequence | None:
        """The sequence to admit next; None if all are deferred.

        Once a sequence has waited for its adapter for longer than adapter_max_wait_s, no sequence
        with an adapter is admitted before it, so that a running adapter becomes idle.

        open_sequences: all sequences that have not ended, by request id.
        """
        is_closed = False
        for sequence in self.sequences:
            if self._is_fork_deferred(sequence, open_sequences):
                continue
            if self._is_adapter_deferred(sequence, running_adapters):
                is_closed |= now - sequence.arrival_s > self._adapter_max_wait_s
            elif not (is_closed and sequence.adapter):
                return sequence
        return None

    def num_deferred(
        self, open_sequences: Mapping[str, Sequence], running_adapters: Set[str]
    ) -> int:
        """Number of waiting sequences that are deferred."""
        return sum(
            self._is_fork_deferred(sequence, open_sequences)
            or self._is_adapter_deferred(sequence, running_adapters)
            for sequence in self.sequences
        )

    def _is_fork_deferred(self, sequence: Sequence, open_sequences: Mapping[str, Sequence]) -> bool:
        parent = open_sequences.get(sequence.fork_of)
        return parent is not None and not parent.has_computed_prompt

    def _is_adapter_deferred(self, sequence: Sequence, running_adapters: Set[str]) -> bool:
        if not sequence.adapter or sequence.adapter in running_adapters:
            return False
        return len(running_adapters) >= self._max_adapters
