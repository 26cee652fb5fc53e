"""Fixtures: a service with an engine and a gateway on real sockets, and a scaler over both."""

import asyncio
from dataclasses import replace

import pytest
from tests.support.specs.service_spec import pod_resources, service_spec

from penstock.clients.pods import stats_report
from penstock.clients.pods.scrape import Scraper
from penstock.controller.http.recorder import Recorder
from penstock.controller.process.failures import Failures
from penstock.controller.process.metrics import OperatorMetrics
from penstock.controller.scaling.kv_scaler import KvScaler
from penstock.controller.scaling.learned_state import LearnedStateStore
from penstock.controller.scaling.objective_scaler import ObjectiveScaler
from penstock.controller.scaling.observer import Observer
from penstock.controller.scaling.scale_targets import ScaleTarget
from penstock.controller.scaling.scaler import TICK_S, Scaler
from penstock.core.observed.gateway_report import VERSION, GatewayReport
from penstock.core.scaling.histogram import Histogram
from penstock.core.scaling.signals import GatewayReading, PodView
from penstock.core.spec.objectives import Objectives
from penstock.core.spec.service import ScalingSpec
from penstock.errors import NotFound, Transient

SPEC = ScalingSpec(
    mode="Active",
    min_replicas=1,
    max_replicas=5,
    kv_utilization_target=0.75,
    queue_length_target=4,
    scale_down_delay_s=0.0,
)
KEY = ("default", "chat")
SERVICE = service_spec(uid="u1", scaling=SPEC)
EMPTY = Histogram((1.0,), (0, 0), 0.0)


class Kube:
    """API server with the objects that the scaler reads."""

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
    """Engine that serves metrics with the given KV use and counts."""

    usage = 0.0
    steps = finished = 0

    def work(self, requests):
        """Answers as many of them as 40 steps suffice for, 4 at a time, of 20 tokens each."""
        self.steps += 40
        self.finished += min(requests, 40 * 4 // 20)

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
    """Gateway that publishes a stats report with the given arrivals; None: it does not respond."""

    arrivals = 0
    started_s = 1.0

    def feed(self, path):
        assert path == stats_report.PATH
        if self.arrivals is None:
            return "down"
        reading = GatewayReading(
            at_s=0.0, queued=0, queued_prompt_tokens=0, in_flight=0, in_flight_prefill_tokens=0,
            oldest_wait_s=0.0, arrivals=self.arrivals, prompt_tokens=100 * self.arrivals, ended=0,
            output_tokens=0, attended_tokens=0, shed=0, failed=0, late=0, ttft_s=EMPTY, tpot_s=EMPTY,
        )  # fmt: skip
        return stats_report.encode(
            GatewayReport(VERSION, self.started_s, {"default/chat": reading})
        ).decode()


def gateway_pod(port, name):
    return {
        "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "containers": [{"name": "g", "ports": [{"name": "management", "containerPort": port}]}]
        },
        "status": {
            "podIP": "127.0.0.1",
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


class World:
    """key: of the service. now_s: goes on by itself from one tick to the next. others: targets of
    other services."""

    key = KEY
    now_s = 1_000_000.0
    mode = "Active"
    objectives = None
    provisioned = 1
    has_engine = True
    accelerator = None
    reported = None
    variants = ()
    others = ()

    def __init__(self, engine_port):
        self.engine_address = f"127.0.0.1:{engine_port}"
        self.scraper = Scraper(lambda: self.now_s)
        self.unschedulable = {}
        self.engine, self.gateway, self.kube = Engine(), Gateway(), Kube()
        self.gateways, self.changed, self.quotas = [], [], []
        self.begin_anew()

    def errors(self, loop):
        name = "penstock_operator_unexpected_errors_total"
        return self.metrics_of_process.registry.get_sample_value(name, {"loop": loop})

    def begin_anew(self):
        """Replace the scaler by that of a new leader."""
        self.recorder = Recorder()
        self.metrics_of_process = OperatorMetrics()
        failures = Failures(self.metrics_of_process)
        self.scaler = Scaler(
            Observer(self.scraper, lambda: self.gateways, failures),
            ObjectiveScaler(LearnedStateStore(self.kube), self.recorder, failures),
            KvScaler(self.recorder, failures),
            targets=self.targets,
            quotas=lambda: self.quotas,
            changed=self.changed.append,
            failures=failures,
        )

    uid = SERVICE.uid

    def targets(self):
        spec = replace(SPEC, mode=self.mode, objectives=self.objectives)
        first = self.variants[0].name if self.variants else ""
        view = PodView("p", "Ready", 100.0, 107.0, None, first)
        pods = ((view, self.engine_address),) if self.has_engine else ()
        service = replace(
            SERVICE, uid=self.uid, scaling=spec, resources=pod_resources(accelerator=self.accelerator),
            variants=self.variants,
        )  # fmt: skip
        asked = {first: self.provisioned} if self.variants else {}
        return [
            ScaleTarget(
                service, self.provisioned, pods, self.reported, by_variant=asked,
                unschedulable=self.unschedulable,
            ),
            *self.others,
        ]  # fmt: skip

    async def tick(self, times=1):
        for _ in range(times):
            self.now_s += TICK_S
            await self.scaler.tick()

    async def serve(self, ticks, arrivals):
        """Run ticks with constant load."""
        for _ in range(ticks):
            self.gateway.arrivals += arrivals
            self.engine.work(arrivals)
            await self.tick()

    def add_gateway(self, port, name):
        self.gateways.append(gateway_pod(port, name))

    def report(self):
        return self.scaler.report(KEY, self.uid)

    def state(self):
        return self.scaler._by_objectives._states[KEY][1]


@pytest.fixture
async def world():
    made = None
    engine_server, engine_port = await http_server(lambda path: made.engine.metrics(path))
    gateway_server, gateway_port = await http_server(lambda path: made.gateway.feed(path))
    made = World(engine_port)
    made.gateway_port = gateway_port
    yield made
    engine_server.close()
    gateway_server.close()
    await made.scraper.close()


@pytest.fixture
async def sized(world):
    """Bench with objectives and a gateway."""
    world.objectives = Objectives(ttft_s=2.0, tpot_s=0.1)
    world.add_gateway(world.gateway_port, "gateway-a")
    return world
