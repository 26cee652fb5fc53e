"""Whether the contents of a block are worth a copy, by what copying and computing have taken.

    a block's contents are given up     save: copy them to the host, and back if asked for
                                        drop: compute them again if asked for
    a prefix is found in the host       restore: copy it back    compute: it again

Both are measured from whole steps, so that what a device does at the same time is not counted twice.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from penstock_engine.core.trend import DECAY, Trend

Action = Literal["save", "drop", "restore", "compute"]
# cheaper: by what was measured. unmeasured: too little is known, so copies are made, and timed.
# probe: a copy that seems too dear, made so that its price stays known.
Reason = Literal["cheaper", "unmeasured", "probe"]

PROBE_CHOICES = 50


class Choice(NamedTuple):
    action: Action
    reason: Reason


@dataclass(frozen=True, slots=True)
class Prices:
    """Seconds for one more token in a step, and for one block copied to the host or back. None:
    not known yet."""

    token_s: float | None = None
    copy_s: float | None = None


def on_eviction(prices: Prices, block_tokens: int, *, is_probe: bool) -> Choice:
    """What is saved is copied twice until it is of use."""
    return _choose("save", "drop", 2, prices, block_tokens, is_probe=is_probe)


def on_find(prices: Prices, block_tokens: int, *, is_probe: bool) -> Choice:
    return _choose("restore", "compute", 1, prices, block_tokens, is_probe=is_probe)


def _choose(
    copy: Action, not_copy: Action, num_copies: int, prices: Prices, block_tokens: int, *,
    is_probe: bool,
) -> Choice:  # fmt: skip
    if prices.token_s is None or prices.copy_s is None:
        return Choice(copy, "unmeasured")
    if num_copies * prices.copy_s <= block_tokens * prices.token_s:
        return Choice(copy, "cheaper")
    return Choice(copy, "probe") if is_probe else Choice(not_copy, "cheaper")


class Copying:
    """Learns the prices, makes the choices and counts them."""

    def __init__(self, block_tokens: int) -> None:
        self.choices: dict[Choice, int] = {}
        self._block_tokens = block_tokens
        self._steps = Trend()
        self._copies = self._copies_s = 0.0
        self._num_dear = 0

    @property
    def prices(self) -> Prices:
        fitted = self._steps.fit()
        copy_s = self._copies_s / self._copies if self._copies else None
        return Prices(None if fitted is None else fitted[1], copy_s)

    def timed(self, num_tokens: int, num_copies: int, duration_s: float) -> None:
        """Of one step. Of a step with copies, what its tokens do not explain is theirs."""
        if not num_copies:
            self._steps.add(num_tokens, duration_s)
        elif (fitted := self._steps.fit()) is not None:
            fixed_s, token_s = fitted
            self._copies = self._copies * DECAY + num_copies
            rest_s = max(0.0, duration_s - fixed_s - token_s * num_tokens)
            self._copies_s = self._copies_s * DECAY + rest_s

    def saves(self) -> bool:
        """Whether to copy a block that is evicted on the device to the host; counts the choice."""
        choice = on_eviction(self.prices, self._block_tokens, is_probe=self._is_probe)
        self.count(choice)
        return choice.action == "save"

    def choose_restore(self) -> Choice:
        """Whether to copy a prefix found in the host back. To be passed to `count` if acted on."""
        return on_find(self.prices, self._block_tokens, is_probe=self._is_probe)

    def count(self, choice: Choice) -> None:
        """Count a choice that was acted on."""
        self._num_dear += choice.action in ("drop", "compute") or choice.reason == "probe"
        self.choices[choice] = self.choices.get(choice, 0) + 1

    @property
    def _is_probe(self) -> bool:
        return self._num_dear % PROBE_CHOICES == PROBE_CHOICES - 1
