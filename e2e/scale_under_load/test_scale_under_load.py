"""Streams while the service grows and shrinks: a small run of `benchmarks/scale_campaign.py`."""

from pathlib import Path

import pytest

from penstock.demo.campaigns import corpus, scale_under_load
from penstock.demo.load import End
from penstock.demo.stage import Stage

ROOT = Path(__file__).parents[2]
SEED = 1

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("kill", [False, True], ids=["calm", "kill"])
async def test_no_request_is_lost(stage: Stage, kill: bool) -> None:
    stage.kubectl("apply", "-f", str(ROOT / "examples" / "quickstart.yaml"))
    await stage.until(lambda view: view.ready == 1, "chat", within_s=120, what="an engine")
    tally = await scale_under_load(stage, "chat", corpus(ROOT), requests=150, kill=kill, seed=SEED)
    print(f"seed {SEED}, kill {kill}: {tally}")
    assert tally.first_bad is None
    assert (tally.peak_ready, tally.final_ready) == (3, 1)
    if not kill:
        assert tally.ends[End.CUT] == 0
