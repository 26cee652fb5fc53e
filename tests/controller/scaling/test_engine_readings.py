"""Settings that engines report reach the status of their service."""

from dataclasses import fields

import pytest
from tests.support.specs.service_spec import SMALL

from penstock.controller.process.failures import Failures
from penstock.controller.process.metrics import OperatorMetrics
from penstock.controller.scaling.observer import Observer
from penstock.controller.scaling.scale_targets import ScaleTarget
from penstock.core.scaling.signals import CacheSettings, EngineReading, Missing, PodView

NOTHING = dict.fromkeys((field.name for field in fields(EngineReading)), 0)
CACHE = CacheSettings(block_size=128, dtype="auto", prefix_caching=True)
READING = EngineReading(**NOTHING | {"cache": CACHE, "max_num_seqs": None})


class Scraper:
    """Reads engines by their name: the one that is named `down` does not answer."""

    def now(self):
        return 0.0

    async def read(self, namespace, pod, address):
        return Missing(pod, "down") if pod == "down" else READING


async def test_the_observer_has_the_readings_of_engines_that_answered():
    observer = Observer(Scraper(), list, Failures(OperatorMetrics()))
    pods = tuple((PodView(name, "Ready", 0.0, 0.0, None), "") for name in ("up", "down"))
    await observer.scrape([ScaleTarget(SMALL, 2, pods, None)])
    assert observer.engine_readings(["default/down", "default/up", "default/other"]) == [READING]
    await observer.scrape([])
    assert observer.engine_readings(["default/up"]) == []


@pytest.mark.cluster
async def test_the_status_has_what_vllm_chose(stand):
    known = set()

    def readings(pods):
        known.update(pods)
        return [READING]

    stand.reconciler = stand.make_reconciler(stand.kube, engine_readings=readings)
    await stand.create(runtime={"type": "VLLM"})
    await stand.until_phase("Stable")
    cache = (await stand.status())["engine"]["kvCache"]
    assert cache == {"dtype": "auto", "blockSize": 128, "prefixCaching": {"mode": "Enabled"}}
    engines = {
        f"{stand.namespace}/{pod['metadata']['name']}"
        for pod in await stand.pods()
        if "podIP" in pod["status"]
    }
    assert engines
    assert engines <= known
