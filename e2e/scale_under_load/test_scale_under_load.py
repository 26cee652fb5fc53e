"""Streams while the service grows and shrinks: a small run of `benchmarks/cluster/scale_campaign.py`."""

from pathlib import Path

import pytest
from tests.support.cluster.scale_under_load import scale_under_load

from penstock.demo.load import End, corpus
from penstock.demo.stage import Stage

ROOT = Path(__file__).parents[2]
SEED = 1

pytestmark = pytest.mark.e2e


async def test_no_request_is_lost(stage: Stage) -> None:
    """Streams are cut only by the kill of their engine."""
    # Pods of a test before, whose service had the same name, would count as ready and then end.
    await stage.wait_until_gone("chat", within_s=60)
    stage.kubectl("apply", "-f", str(ROOT / "examples" / "tiny-model.yaml"))
    await stage.wait_for_engines("chat", 1, within_s=120)
    outcomes = await scale_under_load(
        stage, "chat", corpus(ROOT), requests=150, kill=True, seed=SEED
    )
    print(f"seed {SEED}: {outcomes}")
    assert outcomes.first_bad is None
    assert (outcomes.peak_ready, outcomes.final_ready) == (3, 1)
    assert outcomes.ends[End.CUT] > 0, "the kill met nobody"
    assert outcomes.cut_by_nobody == 0
