"""One tick after the other: real scrapes of real sockets, and what is written where."""

import asyncio
from dataclasses import replace

import pytest

from penstock.adapters.scrape import Scraper
from penstock.controller.scaler import NEWS_AFTER_TICKS, Scaler, ScaleTarget
from penstock.core.service import ScalingSpec
from penstock.errors import Transient

SPEC = ScalingSpec(
    mode="Active",
    min_replicas=1,
    max_replicas=5,
    kv_utilization_target=0.75,
    queue_target=4,
    scale_down_delay_s=0.0,
)
KEY = ("default", "chat")


class Kube:
    """What the scaler asks of the API server."""

    def __init__(self):
        self.scaled = []
        self.is_down = False

    async def scale(self, resource, namespace, name, replicas, *, manager):
        if self.is_down:
            raise Transient("down")
        self.scaled.append((resource.plural, namespace, name, replicas, manager))


class Engine:
    """Serves metrics with the KV use that it is told."""

    usage = 0.0

    async def start(self):
        self.server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.address = "127.0.0.1:%d" % self.server.sockets[0].getsockname()[1]  # noqa: UP031

    async def _answer(self, reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        body = (
            f"vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n"
            f"vllm:kv_cache_usage_perc {self.usage}\n"
            f'vllm:cache_config_info{{num_gpu_blocks="128",block_size="16"}} 1\n'
        )
        head = f"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write((head + body).encode())
        await writer.drain()
        writer.close()


@pytest.fixture
async def world():
    engine, kube, scraper = Engine(), Kube(), Scraper()
    await engine.start()
    changed = []

    class World:
        mode = "Active"
        provisioned = 1
        has_engine = True
        reported = None

        def targets(self):
            engines = (("p", engine.address),) if self.has_engine else ()
            spec = replace(SPEC, mode=self.mode)
            return [ScaleTarget(KEY, spec, "chat-r1", self.provisioned, engines, self.reported)]

        async def tick(self, times=1):
            for _ in range(times):
                for target in self.targets():
                    await scaler._tick(target)

    world = World()
    world.engine, world.kube, world.changed = engine, kube, changed
    scaler = Scaler(kube, scraper, targets=world.targets, changed=changed.append)
    world.scaler = scaler
    yield world
    engine.server.close()
    await scraper.close()


async def test_load_becomes_a_scale_and_a_report(world):
    world.engine.usage = 1.0

    await world.tick()

    assert world.kube.scaled == [("deployments", "default", "chat-r1", 2, "penstock-scaler")]
    report = world.scaler.report(KEY)
    assert (report.desired, report.reason_code, report.valid) == (2, "ScaleUp", True)
    assert report.reason.startswith("KV demand of 2,048 tokens")
    assert [step for step, _, _ in report.trail] == [
        "kv",
        "queue",
        "need",
        "starting",
        "up",
        "bounds",
    ]
    assert world.changed == [KEY]


async def test_a_calm_service_is_neither_scaled_nor_reported_again(world):
    await world.tick(10)
    assert world.kube.scaled == []
    assert world.changed == [KEY]


async def test_a_new_leader_keeps_the_report_that_the_status_has(world):
    await world.tick()
    world.reported = world.scaler.report(KEY)
    world.scaler._reports.clear()
    world.changed.clear()

    await world.tick()

    assert world.changed == []


async def test_shadow_decides_reports_and_changes_nothing(world):
    world.mode = "Shadow"
    world.engine.usage = 1.0
    await world.tick(5)
    assert (world.kube.scaled, world.scaler.report(KEY).desired) == ([], 2)

    world.engine.usage = 0.0
    await world.tick(5)

    assert (world.kube.scaled, world.scaler.report(KEY).desired) == ([], 1)
    assert world.changed == [KEY] * 2


async def test_lost_metrics_hold_and_are_news_only_when_they_last(world):
    world.provisioned = 3
    await world.tick()
    world.kube.scaled.clear()
    world.changed.clear()
    world.provisioned = world.scaler.report(KEY).desired
    world.has_engine = False

    await world.tick(NEWS_AFTER_TICKS - 1)
    assert world.changed == []
    await world.tick()

    assert world.changed == [KEY]
    assert world.kube.scaled == []
    assert world.scaler.report(KEY).reason_code == "MetricsMissing"


async def test_a_write_that_fails_is_tried_at_the_next_tick(world):
    world.engine.usage = 1.0
    world.kube.is_down = True
    await world.tick()
    assert world.changed == []

    world.kube.is_down = False
    await world.tick()

    assert len(world.kube.scaled) == 1
    assert world.changed == [KEY]
