"""Canaries under load: broken ones are rolled back automatically; users can promote and abort.

Longer runs of the judge are in `benchmarks/cluster/rollout_campaign.py`.
"""

from pathlib import Path

import pytest
from benchmarks.cluster.rollout_campaign import silent
from tests.support.cluster import rollouts

from penstock.demo.load import End, Load, Workload, corpus
from penstock.demo.stage import Stage

ROOT = Path(__file__).parents[2]
NAME = "released"
# Pauses leave CPU for new engines to start.
THINK_S = 1.0
CANARY = {"strategy": "Canary", "canary": {"minWeightPercent": 30, "maxWeightPercent": 40}}
MIRROR = {"mirror": {"percent": 100, "duration": "15s"}}

pytestmark = pytest.mark.e2e


async def test_bad_canaries_are_rolled_back_without_lost_requests(stage: Stage) -> None:
    stage.apply(rollouts.service(NAME, CANARY))
    await stage.wait_for_engines(NAME, 1, within_s=120)
    workload = Workload(NAME, corpus(ROOT), prompt_words=60, max_tokens=16, seed=1, think_s=THINK_S)
    async with Load(stage.cluster.gateway_url, workload) as load:
        load.set_clients(3)
        ending = await rollouts.release(
            stage, load, NAME, "a model that is not there", rollouts.MISSING, within_s=120
        )
        print(ending)
        assert (ending.phase, ending.met) == ("Rejected", 0)
        assert "ModelNotFound" in ending.reason
        code, said = await stage.rollout("status", NAME, "--watch")
        assert (code, "ModelNotFound" in said) == (1, True), said
        code, said = await stage.rollout("undo", NAME, "--watch")
        assert code == 0, said
        stage.patch(NAME, rollouts.GOOD)
        await stage.wait_until(
            lambda view: len(view.status["traffic"]) == 3,
            NAME, within_s=120, what="a canary beside its control",
        )  # fmt: skip
        shares = (await stage.view(NAME)).status["traffic"]
        assert sorted((s["cohort"], s["percent"]) for s in shares) == [
            ("Control", 30), ("Primary", 30), ("Primary", 40),
        ]  # fmt: skip
        code, said = await stage.rollout("promote", NAME, "--watch")
        assert code == 0, said
        await load.finish()
    assert [each for each in load.outcomes if each.end is not End.DONE] == []
    view = await stage.view(NAME)
    assert [share["percent"] for share in view.status["traffic"]] == [100]
    assert {(pod.revision, pod.cohort) for pod in view.pods} == {
        (view.status["stableRevision"], "")
    }
    print(f"{len(load.outcomes)} requests, all done")


async def test_copies_reject_what_says_nothing_before_anybody_meets_it(
    stage: Stage, models: Path, tmp_path: Path
) -> None:
    shown = {"strategy": "Canary", "canary": CANARY["canary"] | MIRROR}
    stage.apply(rollouts.service(NAME, shown))
    await stage.wait_for_engines(NAME, 1, within_s=120)
    quiet = rollouts.other_model(silent(models / "penstock-tiny", tmp_path / "silent"))
    workload = Workload(NAME, corpus(ROOT), prompt_words=60, max_tokens=16, seed=1, think_s=THINK_S)
    async with Load(stage.cluster.gateway_url, workload) as load:
        load.set_clients(3)
        title = "answers without text"
        ending = await rollouts.release(stage, load, NAME, title, quiet, within_s=180)
        print(ending)
        assert (ending.phase, ending.met) == ("Rejected", 0)
        assert "empty" in ending.reason
        assert "copies of requests, whose answers no client saw" in ending.reason
        good = {"model": rollouts.service(NAME, shown)["spec"]["model"]} | rollouts.GOOD
        stage.patch(NAME, good)
        await stage.wait_until(
            lambda view: bool(view.status.get("mirror")), NAME, within_s=180, what="copies"
        )
        status = (await stage.view(NAME)).status
        assert status["rollout"]["phase"] == "Mirroring"
        assert {target["cohort"] for target in status["mirror"]["targets"]} == {
            "Primary",
            "Control",
        }
        assert status["candidateRevision"] not in {s["revision"] for s in status["traffic"]}
        await stage.wait_until(
            lambda view: len(view.status["traffic"]) == 3 and not view.status.get("mirror"),
            NAME, within_s=120, what="traffic after the copies",
        )  # fmt: skip
        await load.finish()
    assert [each for each in load.outcomes if each.end is not End.DONE] == []
    print(f"{len(load.outcomes)} requests, all done")
