"""Engine metrics read from a real Prometheus equal those read from the engine at the same time."""

import signal
from dataclasses import replace

import pytest

from penstock.api.conversion.convert import to_core
from penstock.api.inferenceservice.kind import KIND
from penstock.clients.machine.clock import steady
from penstock.clients.pods.scrape import Scraper
from penstock.clients.prometheus.promql import Server
from penstock.clients.prometheus.scraper import PODS_PER_QUERY, PrometheusScraper, readings
from penstock.controller.process.failures import Failures
from penstock.controller.process.metrics import OperatorMetrics
from penstock.controller.scaling.observer import Observer
from penstock.controller.scaling.scale_targets import ScaleTarget
from penstock.core.scaling.signals import STALE_S, EngineReading, Missing, PodView
from penstock.core.spec.service import API_VERSION
from penstock.demo.stage import poll_until

POD = "chat-b-1"
NOBODY = "127.0.0.1:1"


@pytest.fixture
async def scraper():
    made = Scraper(steady)
    yield made
    await made.close()


def scraped(prometheus):
    return PrometheusScraper(Server(prometheus.url), steady)


async def test_readings_equal_those_of_the_engine_with_their_age(
    prometheus, engine, scraper, waiting
):
    await prometheus.until(f"vllm:num_requests_waiting == {waiting}")
    told = (await scraped(prometheus).read("default", [POD]))[POD]
    direct = await scraper.read("default", POD, engine)
    assert isinstance(told, EngineReading)
    assert isinstance(direct, EngineReading)
    assert (told.source, told.waiting, told.running) == ("Prometheus", waiting, 1)
    assert told.kv_capacity_tokens == direct.kv_capacity_tokens > 0
    assert told.ttft_s.bounds == direct.ttft_s.bounds
    assert 0 < told.output_tokens <= direct.output_tokens
    # Prometheus reports its clock in whole seconds, and a scrape takes time.
    assert -1 <= direct.at_s - told.at_s <= STALE_S


async def test_readings_of_an_idle_engine_are_equal(prometheus, engine, scraper):
    async def is_at_rest():
        return not (await scraper.read("default", POD, engine)).running

    await poll_until(is_at_rest, within_s=30, what="an engine at rest")
    direct = await scraper.read("default", POD, engine)
    tokens = f"vllm:generation_tokens_total == {direct.output_tokens}"
    await prometheus.until(f"({tokens}) and (vllm:num_requests_running == 0)")
    told = (await scraped(prometheus).read("default", [POD]))[POD]
    assert replace(told, at_s=0.0) == replace(direct, at_s=0.0, source="Prometheus")


async def test_unknown_pods_are_missing(prometheus):
    await prometheus.until("vllm:num_requests_running")  # it has scraped the engine once
    pods = [f"p-{number}" for number in range(PODS_PER_QUERY)]
    found = await scraped(prometheus).read("default", [*pods, POD])
    assert isinstance(found.pop(POD), EngineReading)
    assert found == {
        pod: Missing(pod, "Prometheus has none of it in the last 30 s") for pod in pods
    }
    (there,) = (await scraped(prometheus).read("elsewhere", [POD])).values()
    assert isinstance(there, Missing)


async def test_unreachable_server():
    found = await PrometheusScraper(Server(f"http://{NOBODY}"), steady).read("default", [POD])
    assert found == {POD: Missing(POD, f"{NOBODY} cannot be queried: ConnectionError")}


SERIES = {"__name__": "vllm:num_requests_running", "pod": POD}


@pytest.mark.parametrize(
    "result",
    [
        [{"metric": {"pod": POD}, "values": [[1.0, "1"]]}],
        [{"metric": SERIES, "values": [[1.0]]}],
        [{"metric": SERIES, "values": [[1.0, "many"]]}],
        [{"values": [[1.0, "1"]]}],
        ["what"],
        7,
    ],
)
def test_result_that_is_no_matrix(result):
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError, IndexError)):
        readings([POD], result, 1.0, 1.0)


def matrix(text, at_s, **labels):
    """Series of one scrape, from lines of name, label and value."""
    result = []
    for line in text.split("\n"):
        name, label, value = line.split(" ")
        own = {"le": label} if label.startswith(("0", "+")) else {}
        metric = {"__name__": name, "pod": POD, **own, **labels}
        result.append({"metric": metric, "values": [[at_s - 15, "0"], [at_s, value]]})
    return result


SCRAPE = """\
vllm:num_requests_running - 3
vllm:num_requests_waiting - 2
vllm:kv_cache_usage_perc - 0.25
vllm:cache_config_info - 1
vllm:prompt_tokens_total - 900
vllm:prompt_tokens_cached_total - 100
vllm:generation_tokens_total - 60
vllm:num_preemptions_total - 1
vllm:iteration_tokens_total_count - 50
vllm:request_generation_tokens_count - 4
vllm:request_generation_tokens_sum - 44
vllm:time_to_first_token_seconds_bucket 0.1 5
vllm:time_to_first_token_seconds_bucket +Inf 8
vllm:time_to_first_token_seconds_sum - 4.5
vllm:inter_token_latency_seconds_bucket 0.01 40
vllm:inter_token_latency_seconds_bucket +Inf 52
vllm:inter_token_latency_seconds_sum - 0.9"""
SIZE = {"num_gpu_blocks": "128", "block_size": "16"}


def test_only_the_newest_scrape_counts():
    """Series of a second scrape job, or from before a restart, are not added."""
    older = matrix(SCRAPE, 1000.0, job="other", **SIZE)
    newer = matrix(SCRAPE, 1007.0, job="one", model_name='a",le="9', **SIZE)
    found = readings([POD], older + newer, 1010.0, 5010.0)[POD]
    assert isinstance(found, EngineReading)
    assert (found.at_s, found.running, found.waiting) == (5007.0, 3, 2)
    assert (found.kv_capacity_tokens, found.ttft_s.counts) == (2048, (5, 3))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("vllm:num_requests_running -", "other -", "vllm:num_requests_running is absent"),
        ("usage_perc - 0.25", "usage_perc - NaN", "vllm:kv_cache_usage_perc is nan"),
    ],
)
def test_impossible_values_are_missing(old, new, reason):
    result = matrix(SCRAPE.replace(old, new), 1000.0, **SIZE)
    assert readings([POD], result, 1000.0, 1000.0) == {POD: Missing(POD, reason)}


def target(address):
    metadata = {
        "name": "chat", "namespace": "default", "uid": "u", "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    spec = {"model": {"uri": "pvc://models/soup"}}
    service = to_core({"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec})
    view = PodView(POD, "Ready", 0.0, 1.0, None)
    return ScaleTarget(service, 1, ((view, address),), None)


async def test_engine_is_read_directly_if_it_can_be(prometheus, engine, scraper):
    """Prometheus is used only while the engine is unreachable, and never for older readings."""
    observer = Observer(scraper, list, Failures(OperatorMetrics()), scraped(prometheus))

    async def read_through_prometheus(address):
        seen = (await observer.scrape([target(address)]))["default", "chat"]
        return seen.pods[0].reading, seen.prometheus_note

    await prometheus.until("up == 1")
    reading, note = await read_through_prometheus(NOBODY)
    assert reading.source == "Prometheus"
    assert note.startswith("numbers of 1 of 1 engines are Prometheus', up to ")
    reading, note = await read_through_prometheus(engine)
    assert (reading.source, note) == ("Engine", None)
    heard_s = reading.at_s
    reading, _ = await read_through_prometheus(NOBODY)
    if isinstance(reading, EngineReading):
        assert reading.at_s >= heard_s
    else:
        assert reading == Missing(POD, "ClientConnectorError")

    async def is_known():
        return isinstance((await read_through_prometheus(NOBODY))[0], EngineReading)

    await poll_until(is_known, within_s=20, what="a scrape that is newer than the engine's word")


async def test_engine_and_prometheus_are_unreachable(prometheus, scraper):
    observer = Observer(scraper, list, Failures(OperatorMetrics()), scraped(prometheus))
    prometheus.pause()
    try:
        (seen,) = (await observer.scrape([target(NOBODY)])).values()
    finally:
        prometheus.process.send_signal(signal.SIGCONT)
    (missing,) = seen.missing
    assert missing.reason.startswith("ClientConnectorError; ")
    assert "cannot be queried" in missing.reason
