"""A world with one adapter: engines that load and unload what the rollout places, and its status."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.core.adapters.adapter import AdapterVersion, Placement
from penstock.core.canary.verdict import Verdict
from penstock.core.rollout import commands
from penstock.core.rollout.adapter_events import AdapterInputs, VersionCopies
from penstock.core.rollout.adapter_rollout import AdapterRollout, step_adapter
from penstock.core.rollout.commands import Command
from penstock.core.spec.canary import CanarySpec
from penstock.core.spec.service import Object

START_S = 1_800_000_000.0
URIS = tuple(f"pvc://adapters/sql/v{n}" for n in range(4))
REVISIONS = tuple(AdapterVersion("sql", uri).revision for uri in URIS)


@dataclass
class AdapterWorld:
    """copies: in memory by revision. bad: versions (by number) that engines refuse."""

    placement: Placement = field(default_factory=Placement)
    status: Object = field(default_factory=dict)
    copies: dict[str, int] = field(default_factory=dict)
    bad: set[int] = field(default_factory=set)
    wanted: int = 0
    is_used: bool = True
    verdict: Verdict | None = None
    command: Command | None = None
    applied: dict[str, int | None] = field(default_factory=lambda: {"g": 0})
    now_s: float = START_S
    max_copies: int = 8

    @property
    def version(self) -> AdapterVersion:
        return AdapterVersion("sql", URIS[self.wanted], self.placement)

    @property
    def phase(self) -> str:
        phase: str = self.status["rollout"]["phase"]
        return phase

    def order(self, action: commands.Action, mark: str = "x") -> None:
        rollout = self.status["rollout"]
        rejected = (rollout.get("rejected") or {}).get("revision")
        revision = rollout.get("revision") or rejected or "0" * 8
        text = commands.format_command(action, revision, f"{mark}{self.now_s}")
        self.command = commands.parse_command(text)

    def step(self) -> AdapterRollout:
        """Run one pass of the operator, and store its status."""
        candidate = self.status.get("candidateRevision")
        is_bad = candidate in {REVISIONS[n] for n in self.bad}
        inputs = AdapterInputs(
            canary=CanarySpec(),
            wanted=self.version.revision,
            now_s=self.now_s,
            copies={revision: VersionCopies(n, n) for revision, n in self.copies.items()},
            is_used=self.is_used,
            failure="pickle file" if is_bad else "",
            verdict=self.verdict,
            command=self.command,
            applied_generations=self.applied,
        )
        rollout = step_adapter(self.version, self.status, inputs)
        # The API server drops what is None, in nested objects as well.
        self.status = _without_none(self.status | rollout.as_status(self.status, None))
        return rollout

    def settle(self, rollout: AdapterRollout) -> None:
        """Engines load what is placed, and unload what is not."""
        wanted = {
            version.revision: version.placement.min_copies
            for version in rollout.placed
            if version.uri not in {URIS[n] for n in self.bad}
        }
        self.copies = {
            revision: min(self.max_copies, max(least, self.copies.get(revision, 0)))
            for revision, least in wanted.items()
        }

    def obey(self) -> None:
        """All gateways apply the stored traffic."""
        self.applied = dict.fromkeys(self.applied, self.status["trafficGeneration"])

    def round(self, seconds: float = 2.0) -> None:
        self.settle(self.step())
        self.obey()
        self.now_s += seconds

    def run(self, rounds: int = 60) -> None:
        for _ in range(rounds):
            self.round()

    def shares(self) -> dict[int, int]:
        return {
            REVISIONS.index(each["revision"]): each["percent"] for each in self.status["traffic"]
        }


def serving(**changes: object) -> AdapterWorld:
    """A world whose first version has copies and requests."""
    world = replace(AdapterWorld(), **changes)  # type: ignore[arg-type]
    world.round()
    world.copies[REVISIONS[0]] = 2
    return world


def _without_none(value: Mapping[str, object]) -> Object:
    return {
        name: _without_none(each) if isinstance(each, dict) else each
        for name, each in value.items()
        if each is not None
    }
