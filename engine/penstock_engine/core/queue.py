"""Who is admitted next.

The first in line, unless it waits for something else than its turn: its adapter has no place, or
its prompt is just being computed by the sequence that it is a fork of. Then others may pass.
"""

from collections.abc import Mapping, Set

from penstock_engine.core.line import Line
from penstock_engine.core.sequence import Sequence


class Queue:
    """max_adapters: that may run at once. patience_s: how long others may pass a sequence because
    their adapter runs and its own does not."""

    def __init__(self, max_adapters: int, patience_s: float) -> None:
        self.line = Line()
        self._max_adapters = max_adapters
        self._patience_s = patience_s

    def __len__(self) -> int:
        return len(self.line)

    def next(
        self, sequences: Mapping[str, Sequence], running_adapters: Set[str], now: float
    ) -> Sequence | None:
        """The sequence to admit; None when all are deferred. sequences: all there are, by id.

        When one has run out of patience, no sequence with an adapter is admitted before it, so
        that a running adapter comes to its end.
        """
        is_closed = False
        for sequence in self.line:
            if self._is_fork_deferred(sequence, sequences):
                continue
            if self._is_adapter_deferred(sequence, running_adapters):
                is_closed |= now - sequence.arrival_s > self._patience_s
            elif not (is_closed and sequence.adapter):
                return sequence
        return None

    def num_deferred(self, sequences: Mapping[str, Sequence], running_adapters: Set[str]) -> int:
        return sum(
            self._is_fork_deferred(sequence, sequences)
            or self._is_adapter_deferred(sequence, running_adapters)
            for sequence in self.line
        )

    def _is_fork_deferred(self, sequence: Sequence, sequences: Mapping[str, Sequence]) -> bool:
        parent = sequences.get(sequence.fork_of)
        return parent is not None and not parent.has_computed_prompt

    def _is_adapter_deferred(self, sequence: Sequence, running_adapters: Set[str]) -> bool:
        if not sequence.adapter or sequence.adapter in running_adapters:
            return False
        return len(running_adapters) >= self._max_adapters
