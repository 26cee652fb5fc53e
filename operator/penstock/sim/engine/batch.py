"""The decoding sequences of one engine. Each gains one token in every iteration.

The batch stores only the last iteration of each sequence and the sum of attended tokens.
"""

from collections.abc import Collection
from heapq import heapify, heappop, heappush


class Batch:
    """Decoding batch. iteration: finished iterations. kv: tokens attended to in the next iteration."""

    def __init__(self) -> None:
        self.iteration = 0
        self.kv = 0
        self._endings: list[tuple[int, int, str]] = []  # heap: last iteration, tokens then, id

    def __len__(self) -> int:
        return len(self._endings)

    @property
    def first_ending(self) -> int:
        """Number of the iteration in which the first sequence gets its last token."""
        return self._endings[0][0]

    def join(self, request_id: str, tokens: int, tokens_to_come: int) -> None:
        last = self.iteration + tokens_to_come
        heappush(self._endings, (last, tokens + tokens_to_come, request_id))
        self.kv += tokens

    def advance(self, iterations: int) -> list[str]:
        """Run iterations, at most up to the first ending. Returns the ids of the sequences that ended."""
        self.iteration += iterations
        self.kv += iterations * len(self._endings)
        ended = []
        while self._endings and self._endings[0][0] == self.iteration:
            _, tokens, request_id = heappop(self._endings)
            self.kv -= tokens
            ended.append(request_id)
        return ended

    def remove(self, request_ids: Collection[str]) -> list[str]:
        """Remove sequences before their end. Returns the ids of those that were here."""
        if not request_ids:
            return []
        gone: list[tuple[int, int, str]] = []
        kept: list[tuple[int, int, str]] = []
        for entry in self._endings:
            (gone if entry[2] in request_ids else kept).append(entry)
        self._endings = kept
        heapify(self._endings)
        self.kv -= sum(tokens - (last - self.iteration) for last, tokens, _ in gone)
        return [request_id for _, _, request_id in gone]
