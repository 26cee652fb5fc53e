"""One tick after the other: real scrapes of real sockets, and what is written where."""

import asyncio
from dataclasses import replace

import pytest

from penstock.adapters import feed as feeds
from penstock.adapters.clock import steady
from penstock.adapters.scrape import Scraper
from penstock.controller.fleet import ScaleTarget
from penstock.controller.memory import BETWEEN_WRITES_S, Memory
from penstock.controller.observer import Observer
from penstock.controller.recorder import Recorder
from penstock.controller.scaler import NEWS_AFTER_TICKS, Scaler
from penstock.controller.sizer import Sizer
from penstock.core import quotas
from penstock.core.feed import VERSION, Feed
from penstock.core.rule import Objectives
from penstock.core.service import ScalingSpec, ServiceSpec, VariantSpec
from penstock.core.shortage import AVOIDED_S, PATIENCE_S, Shortages, Waiting
from penstock.core.signals import GatewayReading, Histogram, PodView
from penstock.errors import NotFound, Transient

SPEC = ScalingSpec(
    mode="Active",
    min_replicas=1,
    max_replicas=5,
    kv_utilization_target=0.75,
    queue_target=4,
    scale_down_delay_s=0.0,
)
KEY = ("default", "chat")
SERVICE = ServiceSpec(
    namespace="default", name="chat", uid="u1", generation=1, created_at="", served_name="chat",
    model_uri="pvc://m", max_model_len=None, max_num_seqs=32, max_num_batched_tokens=512,
    dtype="auto", seed=0, kv_memory_bytes=None, memory_utilization=0.9, block_size=16,
    prefix_caching=True, cpu="1", memory="1Gi", accelerator=None, scaling=SPEC, external_replicas=1,
    drain_s=30,
)  # fmt: skip
EMPTY = Histogram((1.0,), (0, 0), 0.0)


class Kube:
    """What the scaler asks of the API server."""

    def __init__(self):
        self.config_maps = {}
        self.writes = 0
        self.is_down = False

    async def get(self, resource, namespace, name):
        if self.is_down:
            raise Transient("down")
        if name not in self.config_maps:
            raise NotFound(name)
        return self.config_maps[name]

    async def apply(self, body, *, manager):
        if self.is_down:
            raise Transient("down")
        self.writes += 1
        self.config_maps[body["metadata"]["name"]] = body


async def http_server(answer):
    """answer(path) -> body. The server, and its port."""

    async def connected(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        body = answer(head.split()[1])
        head = f"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write((head + body).encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


class Engine:
    """Serves metrics with the KV use and the counts that it is told."""

    usage = 0.0
    steps = finished = 0

    def metrics(self, _):
        gaps = 4 * self.steps
        return (
            f"vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n"
            f"vllm:kv_cache_usage_perc {self.usage}\n"
            f'vllm:cache_config_info{{num_gpu_blocks="128",block_size="16"}} 1\n'
            f"vllm:prompt_tokens_total {100 * self.finished}\nvllm:prompt_tokens_cached_total 0\n"
            f"vllm:generation_tokens_total {gaps}\nvllm:num_preemptions_total 0\n"
            f"vllm:iteration_tokens_total_count {self.steps}\n"
            f"vllm:request_generation_tokens_count {self.finished}\n"
            f"vllm:request_generation_tokens_sum {20 * self.finished}\n"
            f'vllm:time_to_first_token_seconds_bucket{{le="+Inf"}} {self.finished}\n'
            f"vllm:time_to_first_token_seconds_sum {self.finished}\n"
            f'vllm:inter_token_latency_seconds_bucket{{le="+Inf"}} {gaps}\n'
            f"vllm:inter_token_latency_seconds_sum {0.02 * gaps}\n"
        )


class Gateway:
    """Publishes a feed with the arrivals that it is told; None: it is silent."""

    arrivals = 0
    started_s = 1.0

    def feed(self, path):
        assert path == feeds.PATH
        if self.arrivals is None:
            return "down"
        reading = GatewayReading(
            at_s=0.0, queued=0, queued_prompt_tokens=0, in_flight=0, in_flight_prefill_tokens=0,
            oldest_wait_s=0.0, arrivals=self.arrivals, prompt_tokens=100 * self.arrivals, ended=0,
            output_tokens=0, shed=0, failed=0, ttft_s=EMPTY, tpot_s=EMPTY,
        )  # fmt: skip
        return feeds.write(Feed(VERSION, self.started_s, {"default/chat": reading})).decode()


def gateway_pod(port, name="gateway-a"):
    return {
        "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "g", "ports": [{"name": "http", "containerPort": port}]}]},
        "status": {
            "podIP": "127.0.0.1",
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


class World:
    """One service with one engine, and a scaler over both."""

    mode = "Active"
    objectives = None
    provisioned = 1
    has_engine = True
    accelerator = None
    reported = None
    variants = ()

    def __init__(self, engine_port, scraper):
        self.engine_address = f"127.0.0.1:{engine_port}"
        self.scraper = scraper
        self.waiting = {}
        self.engine, self.gateway, self.kube = Engine(), Gateway(), Kube()
        self.gateways, self.changed, self.quotas = [], [], []
        self.begin_anew()

    def begin_anew(self):
        """As another leader would."""
        self.recorder = Recorder()
        self.scaler = Scaler(
            Observer(self.scraper, lambda: self.gateways),
            Sizer(Memory(self.kube), self.recorder),
            targets=self.targets,
            quotas=lambda: self.quotas,
            changed=self.changed.append,
        )

    def targets(self):
        spec = replace(SPEC, mode=self.mode, objectives=self.objectives)
        first = self.variants[0].name if self.variants else ""
        view = PodView("p", "Ready", 100.0, 107.0, None, first)
        pods = ((view, self.engine_address),) if self.has_engine else ()
        service = replace(
            SERVICE, scaling=spec, accelerator=self.accelerator, variants=self.variants
        )
        asked = {first: self.provisioned} if self.variants else {}
        return [
            ScaleTarget(
                service, self.provisioned, pods, self.reported, by_variant=asked,
                waiting=self.waiting,
            )
        ]  # fmt: skip

    async def tick(self, times=1):
        for _ in range(times):
            await self.scaler.tick()

    def state(self):
        return self.scaler._sizer._states[KEY][1]


@pytest.fixture
async def world():
    scraper = Scraper(steady)
    made = None
    engine_server, engine_port = await http_server(lambda path: made.engine.metrics(path))
    gateway_server, gateway_port = await http_server(lambda path: made.gateway.feed(path))
    made = World(engine_port, scraper)
    made.gateway_port = gateway_port
    yield made
    engine_server.close()
    gateway_server.close()
    await scraper.close()


async def test_load_becomes_a_scale_and_a_report(world):
    world.engine.usage = 1.0

    await world.tick()

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


async def test_a_calm_service_is_not_reported_again(world):
    await world.tick(10)
    assert world.changed == [KEY]


async def test_a_new_leader_keeps_the_report_that_the_status_has(world):
    await world.tick()
    world.reported = world.scaler.report(KEY)
    world.begin_anew()
    world.changed.clear()

    await world.tick()

    assert world.changed == []


async def test_a_decision_builds_on_the_last_one_not_on_what_is_there(world):
    """In Shadow nothing is done about it, and a rollout has pods on top of it."""
    world.mode = "Shadow"
    world.engine.usage = 1.0
    await world.tick(5)
    assert world.scaler.report(KEY).desired == 2

    world.engine.usage = 0.0
    await world.tick(5)

    assert world.scaler.report(KEY).desired == 1
    assert world.changed == [KEY] * 2


async def test_lost_metrics_hold_and_are_news_only_when_they_last(world):
    world.provisioned = 3
    await world.tick()
    world.changed.clear()
    world.has_engine = False

    await world.tick(NEWS_AFTER_TICKS - 1)
    assert world.changed == []
    await world.tick()

    assert world.changed == [KEY]
    assert world.scaler.report(KEY).reason_code == "MetricsMissing"


async def test_a_quota_holds_back_what_it_does_not_leave(world):
    """Two of six accelerators, of which another workload has four."""
    world.accelerator = ("nvidia.com/gpu", 2)
    world.engine.usage = 1.0
    world.quotas = [quota(hard=6, used=6)]

    await world.tick()

    report = world.scaler.report(KEY)
    assert (report.desired, report.reason_code) == (1, "OverBudget")
    assert report.reason == "1 of 2 wanted replicas: there are 2 accelerators"
    assert report.trail[-1] == ("budget", 1, report.reason)

    world.quotas = [quota(hard=8, used=6)]
    await world.tick()
    assert world.scaler.report(KEY).desired == 2


async def test_who_is_held_back_at_the_number_it_has_is_told(world):
    """And told again when that is over."""
    world.accelerator = ("nvidia.com/gpu", 2)
    world.quotas = [quota(hard=2, used=2)]
    await world.tick()
    assert world.scaler.report(KEY).reason_code != "OverBudget"

    world.engine.usage = 1.0
    await world.tick(5)
    assert (world.scaler.report(KEY).desired, world.changed) == (1, [KEY] * 2)
    assert world.scaler.report(KEY).reason_code == "OverBudget"

    world.engine.usage = 0.0
    await world.tick(5)
    assert (world.scaler.report(KEY).desired, world.changed) == (1, [KEY] * 3)
    assert world.scaler.report(KEY).reason_code != "OverBudget"


def quota(hard, used):
    name = "requests.nvidia.com/gpu"
    return {
        "metadata": {"namespace": "default", "name": "gpus"},
        "spec": {"hard": {name: str(hard)}},
        "status": {"hard": {name: str(hard)}, "used": {name: str(used)}},
    }


@pytest.fixture
async def sized(world):
    """With objectives and a gateway."""
    world.objectives = Objectives(ttft_s=2.0, tpot_s=0.1)
    world.gateways = [gateway_pod(world.gateway_port)]
    return world


async def serve(world, ticks, arrivals):
    """So many ticks of steady work."""
    for _ in range(ticks):
        world.gateway.arrivals += arrivals
        world.engine.steps += 40
        world.engine.finished += arrivals
        await world.tick()


async def test_objectives_are_sized_for(sized):
    await serve(sized, 5, arrivals=200)  # in no time: far more than one engine takes
    decision = sized.scaler.report(KEY)
    assert (decision.desired, decision.reason_code, decision.valid) == (5, "ScaleUp", True)
    assert [step for step, _, _ in decision.trail][:2] == ["capacity", "need"]
    # What the engine said of an iteration with 500 prompt tokens; the prior said more than a second.
    state = sized.state()
    assert state.fit.model.time_s(500, 4, 0) == pytest.approx(0.02, rel=0.2)
    assert state.startup.expected_s == pytest.approx(7.0)


async def test_a_silent_gateway_holds_the_number(sized):
    await serve(sized, 3, arrivals=1)
    held = sized.scaler.report(KEY).desired
    sized.gateway.arrivals = None
    await sized.tick(NEWS_AFTER_TICKS)
    report = sized.scaler.report(KEY)
    assert (report.desired, report.valid) == (held, False)
    assert "no numbers of the gateway (unreadable feed)" in report.reason


async def test_of_two_gateways_both_must_answer(sized):
    sized.gateways.append(gateway_pod(1, "gateway-b"))
    await sized.tick(NEWS_AFTER_TICKS)
    assert "no numbers of the gateway (ConnectError)" in sized.scaler.report(KEY).reason


async def test_what_is_learned_is_kept_once_and_the_next_leader_goes_on_from_it(sized):
    await serve(sized, 10, arrivals=1)
    assert sized.kube.writes == 1  # at the first start-up; the rest comes a minute later
    body = sized.kube.config_maps["chat-sizing"]
    assert body["metadata"]["ownerReferences"][0]["uid"] == "u1"

    memory = sized.scaler._sizer._memory
    kept = memory._kept[KEY]
    memory._kept[KEY] = replace(kept, may_write_s=steady() - 1)
    await serve(sized, 1, arrivals=1)
    assert sized.kube.writes == 2
    before = sized.state()

    sized.begin_anew()
    await sized.tick()

    after = sized.state()
    assert after.fit.model == before.fit.model
    assert after.startup == before.startup
    assert after.traffic.output == before.traffic.output
    assert after.demand.noise == before.demand.noise
    assert sized.kube.writes == 2


async def test_an_idle_service_is_not_written_to(sized, monkeypatch):
    await serve(sized, 10, arrivals=1)
    monkeypatch.setattr("penstock.controller.memory.BETWEEN_WRITES_S", 0.0)
    await sized.tick(5)
    writes = sized.kube.writes
    await sized.tick(20)
    sized.begin_anew()
    await sized.tick(20)
    assert sized.kube.writes == writes
    assert BETWEEN_WRITES_S == 60.0


async def test_the_record_of_an_earlier_service_of_the_name_is_not_believed(sized):
    await serve(sized, 3, arrivals=1)
    body = sized.kube.config_maps["chat-sizing"]
    body["metadata"]["ownerReferences"][0]["uid"] = "u0"
    sized.begin_anew()
    await sized.tick()
    assert sized.state().traffic.mix is None


async def test_somebody_elses_config_map_is_left_alone(sized):
    theirs = {"metadata": {"name": "chat-sizing"}, "data": {"mine": "1"}}
    sized.kube.config_maps["chat-sizing"] = theirs
    await serve(sized, 3, arrivals=1)
    assert sized.kube.config_maps["chat-sizing"] is theirs


async def test_nothing_is_decided_before_the_record_was_read(sized):
    sized.kube.is_down = True
    await serve(sized, 2, arrivals=500)
    assert sized.scaler.report(KEY) is None


async def test_of_two_variants_the_cheap_one_grows_and_a_new_leader_goes_on_from_both(sized):
    gpu = ("nvidia.com/gpu", 1)
    sized.variants = (
        VariantSpec("cheap", "1", "1Gi", gpu, 1.0, 0, 3),
        VariantSpec("dear", "1", "1Gi", gpu, 1.5, 0, 5),
    )
    await serve(sized, 5, arrivals=200)
    report = sized.scaler.report(KEY)
    # Nothing is known of the dear one, so it is taken to be as fast: it comes where there are no more.
    assert report.by_variant == {"cheap": 3, "dear": 2}
    assert [step for step, _, _ in report.trail][-1] == "variants"
    assert report.trail[-1][2] == "3 cheap + 2 dear for 6 an hour"
    assert sized.state().known["cheap"].fit.windows > 0
    assert sized.state().known["dear"].fit.windows == 0

    sized.reported = report
    sized.begin_anew()
    await serve(sized, 2, arrivals=200)
    assert sized.scaler.report(KEY) == report


async def test_a_variant_whose_quota_is_used_up_is_not_asked_for(sized):
    sized.variants = (
        VariantSpec("cheap", "1", "1Gi", ("nvidia.com/gpu", 1), 1.0, 0, 5),
        VariantSpec("dear", "1", "1Gi", ("nvidia.com/mig-1g.10gb", 1), 1.5, 0, 5),
    )
    quota = {"requests.nvidia.com/gpu": "2"}
    sized.quotas = [
        {
            "metadata": {"namespace": "default", "name": "q"},
            "spec": {"hard": quota},
            "status": {"hard": quota, "used": {}},
        }
    ]
    await serve(sized, 5, arrivals=200)
    report = sized.scaler.report(KEY)
    assert report.by_variant == {"cheap": 2, "dear": 3}
    assert report.reason_code != quotas.OVER_BUDGET


async def test_what_no_node_has_room_for_is_another_variants(sized):
    sized.variants = (
        VariantSpec("spot", "1", "1Gi", None, 1.0, 0, 5),
        VariantSpec("sure", "1", "1Gi", None, 3.0, 0, 5),
    )
    await serve(sized, 5, arrivals=200)
    assert sized.scaler.report(KEY).by_variant == {"spot": 5, "sure": 0}
    for since_s, expected in (
        (steady() - PATIENCE_S + 60, {"spot": 5, "sure": 0}),  # a node may be on its way
        (steady() - PATIENCE_S, {"spot": 2, "sure": 3}),
        (None, {"spot": 2, "sure": 3}),  # not at once again
    ):
        sized.waiting = {"spot": Waiting(since_s, 2)} if since_s else {}
        await serve(sized, 2, arrivals=200)
        assert sized.scaler.report(KEY).by_variant == expected
    assert "spot, at most 2, each 1 an hour" in sized.scaler.report(KEY).trail[0][2]


def test_a_variant_is_tried_again_after_a_while():
    short = Shortages().after(1000.0, {"spot": Waiting(1000.0 - PATIENCE_S, 2)})
    assert short.within({"spot": 4, "other": 1}) == {"spot": 2, "other": 1}
    assert short.within({"spot": 1}) == {"spot": 1}
    assert short.after(999.0 + AVOIDED_S, {}).within({}) == {"spot": 2}
    assert short.after(1000.0 + AVOIDED_S, {}).within({}) == {}
