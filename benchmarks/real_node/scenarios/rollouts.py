"""Canaries under load: one is rolled back, one is promoted, and no request fails."""

import shutil

from benchmarks.cluster.rollout_campaign import CANARY, silent
from benchmarks.real_node.lab import ROOT, Lab
from benchmarks.real_node.model_folders import make_readable
from tests.support.cluster import rollouts
from tests.support.cluster.rollouts import Ending

from penstock.demo.load import End, Load, Outcome, Workload, corpus
from penstock.demo.stage import Stage
from penstock.local.models_claim import folder_claim

NAME = "released"
CLIENTS = 3
# Pauses leave processor time for engines to start.
THINK_S = 0.5
# The judge needs five minutes or more to accept a revision.
ROLLED_BACK_WITHIN_S, PROMOTED_WITHIN_S = 400, 1200
ROLLOUT = {"strategy": "Canary", "canary": CANARY}
CLAIM = "releases"
SILENT = {"model": {"uri": f"pvc://{CLAIM}/silent"}}
GOOD = {"model": {"uri": "pvc://models/penstock-tiny"}} | rollouts.GOOD


async def run(lab: Lab) -> dict[str, object]:
    async with lab.stage_in_namespace(NAME) as stage:
        mount_silent(lab, stage)
        stage.apply(rollouts.service(NAME, ROLLOUT))
        await stage.wait_for_engines(NAME, 1, within_s=240)
        workload = Workload(
            NAME, corpus(ROOT), prompt_words=60, max_tokens=16, seed=1, think_s=THINK_S
        )
        async with Load(lab.cluster.gateway_url, workload) as load:
            load.set_clients(CLIENTS)
            rolled_back = await rollouts.release(
                stage, load, NAME, "silent", SILENT, within_s=ROLLED_BACK_WITHIN_S
            )
            promoted = await rollouts.release(
                stage, load, NAME, "good", GOOD, within_s=PROMOTED_WITHIN_S
            )
            await load.finish()
        check(rolled_back, promoted, load.outcomes)
        return {
            "requests": len(load.outcomes),
            "failed": 0,
            "rolled_back_s": round(rolled_back.took_s),
            "requests_to_the_bad_revision": rolled_back.met,
            "promoted_s": round(promoted.took_s),
            "requests_to_the_good_canary": promoted.met,
        }


def mount_silent(lab: Lab, stage: Stage) -> None:
    """Mount a model as a claim whose answers have no text."""
    folder = lab.out / CLAIM
    shutil.rmtree(folder, ignore_errors=True)
    make_readable(silent(lab.models / "penstock-tiny", folder / "silent"))
    stage.mount(folder_claim(CLAIM, folder.resolve(), stage.namespace))


def check(rolled_back: Ending, promoted: Ending, outcomes: list[Outcome]) -> None:
    """Check both ends, and that every request was answered."""
    print(rolled_back, promoted, sep="\n")
    assert rolled_back.phase == "Rejected", rolled_back
    assert "empty" in rolled_back.reason, rolled_back
    assert promoted.phase == "Stable", promoted
    bad = [outcome for outcome in outcomes if outcome.end is not End.DONE]
    assert not bad, (len(bad), bad[:3])
