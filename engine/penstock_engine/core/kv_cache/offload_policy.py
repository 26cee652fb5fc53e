"""Decides whether to copy a KV block between device and host, or to compute it again.

    a block is evicted from the device    save: copy it to the host    drop: do not
    a prefix is found in the host         restore: copy it back        compute: compute it again

The costs of copying and computing are estimated from the durations of whole steps, so that work that
a device does concurrently is not counted twice.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from penstock_engine.core.linear_fit import DECAY, LinearFit

Action = Literal["save", "drop", "restore", "compute"]
# cheaper: by the estimated costs. unmeasured: a cost is unknown, so a copy is made and measured.
# probe: a copy that is estimated to be more expensive, made to keep the estimate up to date.
Reason = Literal["cheaper", "unmeasured", "probe"]

# Every PROBE_CHOICES-th time that a copy is estimated to be more expensive, it is made as a probe.
PROBE_CHOICES = 50


class Choice(NamedTuple):
    """A decision to copy a block or not, and why."""

    action: Action
    reason: Reason


@dataclass(frozen=True, slots=True)
class CopyCosts:
    """Estimated seconds for one more token in a step, and for one block copy in either direction.

    None: not known yet.
    """

    token_s: float | None = None
    copy_s: float | None = None


def choose_on_eviction(costs: CopyCosts, block_tokens: int, *, is_probe: bool) -> Choice:
    """Choose whether to save an evicted block: it costs two copies, one now and one on its next use."""
    return _choose("save", "drop", 2, costs, block_tokens, is_probe=is_probe)


def choose_on_hit(costs: CopyCosts, block_tokens: int, *, is_probe: bool) -> Choice:
    """Choose whether to restore a block that was found in the host: it costs one copy."""
    return _choose("restore", "compute", 1, costs, block_tokens, is_probe=is_probe)


def _choose(
    copy: Action, not_copy: Action, num_copies: int, costs: CopyCosts, block_tokens: int, *,
    is_probe: bool,
) -> Choice:  # fmt: skip
    if costs.token_s is None or costs.copy_s is None:
        return Choice(copy, "unmeasured")
    if num_copies * costs.copy_s <= block_tokens * costs.token_s:
        return Choice(copy, "cheaper")
    return Choice(copy, "probe") if is_probe else Choice(not_copy, "cheaper")


class OffloadPolicy:
    """Estimates the costs from step durations, makes the choices, and counts them."""

    def __init__(self, block_tokens: int) -> None:
        self.choices: dict[Choice, int] = {}
        self._block_tokens = block_tokens
        self._steps = LinearFit()
        self._copies = self._copies_s = 0.0
        self._num_expensive = 0  # choices in which a copy was estimated to be the more expensive

    @property
    def costs(self) -> CopyCosts:
        """The current estimates."""
        fitted = self._steps.fit()
        copy_s = self._copies_s / self._copies if self._copies else None
        return CopyCosts(None if fitted is None else fitted[1], copy_s)

    def observe_step(self, num_tokens: int, num_copies: int, duration_s: float) -> None:
        """Learn from one step. A step without copies gives the cost of a token.

        In a step with copies, the time beyond the estimate for its tokens is the cost of the copies.
        """
        if not num_copies:
            self._steps.add(num_tokens, duration_s)
        elif (fitted := self._steps.fit()) is not None:
            fixed_s, token_s = fitted
            self._copies = self._copies * DECAY + num_copies
            rest_s = max(0.0, duration_s - fixed_s - token_s * num_tokens)
            self._copies_s = self._copies_s * DECAY + rest_s

    def should_save(self) -> bool:
        """Whether to copy a block that is evicted from the device to the host. Counts the choice."""
        choice = choose_on_eviction(self.costs, self._block_tokens, is_probe=self._is_probe)
        self.count(choice)
        return choice.action == "save"

    def choose_restore(self) -> Choice:
        """Choose whether to copy back a prefix found in the host. Pass it to `count` if it is used."""
        return choose_on_hit(self.costs, self._block_tokens, is_probe=self._is_probe)

    def count(self, choice: Choice) -> None:
        """Count a choice that was used."""
        self._num_expensive += choice.action in ("drop", "compute") or choice.reason == "probe"
        self.choices[choice] = self.choices.get(choice, 0) + 1

    @property
    def _is_probe(self) -> bool:
        return self._num_expensive % PROBE_CHOICES == PROBE_CHOICES - 1
