"""Deletes the status of a service at random moments of its rollouts, under load.

.venv/bin/python -m benchmarks.cluster.lost_status [--losses 50] [--seed 1]

A service with two engines gets one revision after another: by Rolling, BlueGreen and Canary, promoted or
aborted by command. Its status is deleted several times in each rollout. No request may fail, and each
rollout must end as it does with its status. Exits with 1 otherwise.
"""

import asyncio
import random
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cluster.campaigns.temporary_stage import temporary_stage
from benchmarks.options import option_parser
from tests.support.background import background
from tests.support.cluster import rollouts

from penstock.clients.kubernetes.client import Object
from penstock.clients.kubernetes.resources import INFERENCE_SERVICES
from penstock.demo.load import End, Load, Workload, corpus
from penstock.demo.model import ensure_model
from penstock.demo.stage import Stage, View

ROOT = Path(__file__).parents[2]
NAME = "chat"
LOSSES_PER_ROLLOUT = 4
# Time between two losses, s: a rollout takes about 15 s.
MAX_PAUSE_S = 5.0
PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class Release:
    """A rollout. command: given once the canary is judged. ending: the phase at the end."""

    rollout: Object
    command: str | None
    ending: str


RELEASES = (
    Release({"strategy": "Rolling", "blueGreen": None}, None, "Stable"),
    Release({"strategy": "BlueGreen", "blueGreen": {"scaleDownDelay": "2s"}}, None, "Stable"),
    Release({"strategy": "Canary", "blueGreen": None}, "promote", "Stable"),
    Release({"strategy": "Canary", "blueGreen": None}, "abort", "Rejected"),
)


class Campaign:
    """Rollouts of one service, and the losses of its status. draw: chooses the moments."""

    def __init__(self, stage: Stage, draw: random.Random) -> None:
        self._stage, self._draw = stage, draw
        self.phases: Counter[str] = Counter()

    async def release(self, number: int, release: Release) -> str:
        """Roll out a change and lose the status meanwhile. Returns the phase at the end."""
        self._stage.patch(NAME, {"engine": {"seed": number}, "rollout": release.rollout})
        async with background(self._lose_status()) as losing:
            if release.command is not None:
                await self._until(lambda view: _phase(view) == "Judging")
                code, output = await self._stage.rollout(release.command, NAME)
                if code:
                    raise RuntimeError(output)
            await losing
            await self._until(lambda view: _phase(view) in rollouts.SETTLED and _is_current(view))
        return _phase(await self._stage.view(NAME))

    async def _lose_status(self) -> None:
        for _ in range(LOSSES_PER_ROLLOUT):
            await asyncio.sleep(self._draw.uniform(0, MAX_PAUSE_S))
            self.phases[_phase(await self._stage.view(NAME))] += 1
            await self._stage.kube.merge(
                INFERENCE_SERVICES, "default", NAME, {"status": None}, manager="test", sub="status"
            )

    async def _until(self, done) -> None:
        def is_done(view: View) -> bool:
            with suppress(KeyError):  # the status is lost at this moment
                return done(view)
            return False

        await self._stage.wait_until(is_done, NAME, within_s=PATIENCE_S, what="the next step")


def _phase(view: View) -> str:
    return str((view.status.get("rollout") or {}).get("phase", "lost"))


def _is_current(view: View) -> bool:
    """Whether the operator has seen the last spec, and has ended its rollout."""
    condition = view.condition("RolledOut")
    return bool(condition) and not view.status.get("candidateRevision")


async def run(losses: int, seed: int) -> bool:
    print(f"seed {seed}", flush=True)
    workload = Workload(NAME, corpus(ROOT), prompt_words=30, max_tokens=24, think_s=0.5)
    wrong = []
    async with temporary_stage("lost-status", ensure_model(ROOT / "docs")) as stage:
        stage.apply(rollouts.service(NAME, {"strategy": "Rolling"}, replicas=2))
        await stage.wait_until(
            lambda view: view.ready == 2 and _phase(view) == "Stable",
            NAME, within_s=PATIENCE_S, what="two engines",
        )  # fmt: skip
        campaign = Campaign(stage, random.Random(seed))
        async with Load(stage.cluster.gateway_url, workload) as load:
            load.set_clients(3)
            for number in range(-(-losses // LOSSES_PER_ROLLOUT)):
                release = RELEASES[number % len(RELEASES)]
                ending = await campaign.release(number + 1, release)
                strategy = release.rollout["strategy"]
                print(f"{strategy} {release.command or ''}: {ending}", flush=True)
                if ending != release.ending:
                    wrong.append(number)
            await load.finish()
    ends = Counter(outcome.end for outcome in load.outcomes)
    print(f"lost in {', '.join(f'{phase} {count}' for phase, count in campaign.phases.items())}")
    print(f"requests: {', '.join(f'{count} {end}' for end, count in ends.items())}")
    return not wrong and ends.keys() == {End.DONE}


if __name__ == "__main__":
    options = option_parser(__doc__, losses=50, seed=1).parse_args()
    sys.exit(0 if asyncio.run(run(options.losses, options.seed)) else 1)
