"""The sequences of one engine that decode: one token each in every iteration.

So it is enough to know in which iteration each of them ends, and what they attend to together.
"""

from heapq import heapify, heappop, heappush


class Batch:
    """iteration: how many are done. kv: tokens attended to in the next one."""

    def __init__(self) -> None:
        self.iteration = 0
        self.kv = 0
        self._endings: list[tuple[int, int, str]] = []  # heap: last iteration, tokens then, id

    def __len__(self) -> int:
        return len(self._endings)

    @property
    def first_ending(self) -> int:
        """The iteration that gives some sequence its last token."""
        return self._endings[0][0]

    def join(self, request_id: str, tokens: int, tokens_to_come: int) -> None:
        last = self.iteration + tokens_to_come
        heappush(self._endings, (last, tokens + tokens_to_come, request_id))
        self.kv += tokens

    def advance(self, iterations: int) -> list[str]:
        """Not beyond the first ending. Who has ended with it."""
        self.iteration += iterations
        self.kv += iterations * len(self._endings)
        ended = []
        while self._endings and self._endings[0][0] == self.iteration:
            _, tokens, request_id = heappop(self._endings)
            self.kv -= tokens
            ended.append(request_id)
        return ended

    def keep(self, request_ids: set[str]) -> list[str]:
        """The others are taken out, unfinished; who they are."""
        gone = [entry for entry in self._endings if entry[2] not in request_ids]
        self._endings = [entry for entry in self._endings if entry[2] in request_ids]
        heapify(self._endings)
        self.kv -= sum(tokens - (last - self.iteration) for last, tokens, _ in gone)
        return [request_id for _, _, request_id in gone]
