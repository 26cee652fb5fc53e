"""An engine's metrics over a real socket, and every way in which they can be of no use."""

import asyncio
import json
from dataclasses import replace

import pytest

from penstock.clients.pods import stats_report
from penstock.clients.pods.scrape import Scraper, parse
from penstock.core.canary.arm import NO_REQUESTS
from penstock.core.formats.serialization import serialize
from penstock.core.observed.gateway_report import VERSION, GatewayReport
from penstock.core.scaling.histogram import Histogram
from penstock.core.scaling.signals import CacheSettings, EngineReading, Missing

NOW_S = 1000.0
TTFT = "vllm:time_to_first_token_seconds"
TEXT = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="chat"} 3.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="chat"} 2.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",model_name="chat",reason="capacity"} 9.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="chat"} 0.25
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="128"} 1.0
# TYPE penstock:prefill_tokens_pending gauge
penstock:prefill_tokens_pending{engine="0",model_name="chat"} 77.0
penstock:max_num_seqs{engine="0",model_name="chat"} 64.0
penstock:max_num_batched_tokens{engine="0",model_name="chat"} 512.0
# TYPE vllm:prompt_tokens counter
vllm:prompt_tokens_total{engine="0",model_name="chat"} 900.0
vllm:prompt_tokens_by_source_total{engine="0",model_name="chat",source="local_compute"} 800.0
vllm:prompt_tokens_cached_total{engine="0",model_name="chat"} 100.0
vllm:generation_tokens_total{engine="0",model_name="chat"} 60.0
vllm:num_preemptions_total{engine="0",model_name="chat"} 1.0
vllm:iteration_tokens_total_count{engine="0",model_name="chat"} 50.0
vllm:request_generation_tokens_bucket{engine="0",le="+Inf",model_name="chat"} 4.0
vllm:request_generation_tokens_count{engine="0",model_name="chat"} 4.0
vllm:request_generation_tokens_sum{engine="0",model_name="chat"} 44.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="chat"} 5.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="1.0",model_name="chat"} 7.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="chat"} 8.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="chat"} 4.5
vllm:inter_token_latency_seconds_bucket{engine="0",le="0.01",model_name="chat"} 40.0
vllm:inter_token_latency_seconds_bucket{engine="0",le="+Inf",model_name="chat"} 52.0
vllm:inter_token_latency_seconds_sum{engine="0",model_name="chat"} 0.9
"""
READING = EngineReading(
    at_s=NOW_S,
    running=3,
    waiting=2,
    kv_usage=0.25,
    kv_capacity_tokens=2048,
    prefill_tokens_pending=77,
    prompt_tokens=900,
    cached_tokens=100,
    output_tokens=60,
    steps=50,
    finished=4,
    output_tokens_finished=44,
    preemptions=1,
    ttft_s=Histogram((0.1, 1.0), (5, 2, 1), 4.5),
    itl_s=Histogram((0.01,), (40, 12), 0.9),
    max_num_seqs=64,
    max_num_batched_tokens=512,
    cache=CacheSettings(block_size=16),
)


def test_what_an_engine_says():
    assert parse("p", TEXT, NOW_S) == READING


def test_vllm_has_neither_pending_tokens_nor_limits():
    text = "\n".join(line for line in TEXT.splitlines() if "penstock" not in line)
    assert parse("p", text, NOW_S) == replace(
        READING, prefill_tokens_pending=0, max_num_seqs=None, max_num_batched_tokens=None
    )


def test_settings_of_the_cache():
    labels = 'block_size="128",cache_dtype="fp8",enable_prefix_caching="False"'
    found = parse("p", TEXT.replace('block_size="16"', labels), NOW_S)
    assert isinstance(found, EngineReading)
    assert found.cache == CacheSettings(block_size=128, dtype="fp8", prefix_caching=False)


def test_a_label_may_hold_what_looks_like_another():
    text = TEXT.replace('model_name="chat"', 'model_name="a,le=\\"9\\"} 5 {"')
    assert parse("p", text, NOW_S) == READING


def test_ranks_are_added_up_and_their_use_averaged():
    twin = "".join(
        line.replace('engine="0"', 'engine="1"').replace("0.25", "0.75") + "\n"
        for line in TEXT.splitlines()
        if not line.startswith("#")
    )
    found = parse("p", TEXT + twin, NOW_S)
    assert isinstance(found, EngineReading)
    assert (found.running, found.waiting, found.kv_usage) == (6, 4, 0.5)
    assert (found.kv_capacity_tokens, found.prompt_tokens, found.steps) == (4096, 1800, 100)
    assert found.ttft_s == READING.ttft_s.plus(READING.ttft_s)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('chat"} 0.25', 'chat"} NaN', "vllm:kv_cache_usage_perc is nan"),
        ('chat"} 0.25', 'chat"} 1.5', "vllm:kv_cache_usage_perc is 1.5"),
        ('chat"} 0.25', 'chat"} -0.1', "vllm:kv_cache_usage_perc is -0.1"),
        ('chat"} 3.0', 'chat"} -1.0', "vllm:num_requests_running is -1.0"),
        ('chat"} 3.0', 'chat"} +Inf', "vllm:num_requests_running is inf"),
        ('chat"} 3.0', 'chat"} 1e308', "vllm:num_requests_running is 1e+308"),
        ('chat"} 2.0', 'chat"} NaN', "vllm:num_requests_waiting is nan"),
        ('chat"} 77.0', 'chat"} -7', "penstock:prefill_tokens_pending is -7.0"),
        ("vllm:num_requests_running{", "other{", "vllm:num_requests_running is absent"),
        ("vllm:kv_cache_usage_perc{", "other{", "vllm:kv_cache_usage_perc is absent"),
        ("vllm:cache_config_info{", "other{", "vllm:cache_config_info is absent"),
        ('gpu_blocks="128"', 'gpu_blocks="None"', "vllm:cache_config_info states no capacity"),
        ('gpu_blocks="128"', 'gpu_blocks="0"', "vllm:cache_config_info states no capacity"),
        (
            'gpu_blocks="128"',
            f'gpu_blocks="{"9" * 5000}"',
            "vllm:cache_config_info states no capacity",
        ),
        ("vllm:prompt_tokens_total{", "other{", "vllm:prompt_tokens_total is absent"),
        ('chat"} 900.0', 'chat"} -900.0', "vllm:prompt_tokens_total is -900.0"),
        (
            "vllm:iteration_tokens_total_count{",
            "other{",
            "vllm:iteration_tokens_total_count is absent",
        ),
        ('le="1.0",model_name="chat"} 7', 'le="1.0",model_name="chat"} 4', f"{TTFT} counts down"),
        (
            'le="+Inf",model_name="chat"} 8',
            'le="9",model_name="chat"} 8',
            f"{TTFT} has no last bucket",
        ),
        (
            'le="0.1",model_name="chat"} 5',
            'model_name="chat"} 5',
            f"{TTFT} has a bucket without a bound",
        ),
        ('chat"} 4.5', 'chat"} NaN', f"{TTFT}_sum is nan"),
        ('chat"} 2.0', 'chat"} two', "unreadable metrics"),
        ('chat"} 2.0', "chat", "unreadable metrics"),
    ],
)
def test_numbers_that_cannot_be_believed(old, new, reason):
    assert old in TEXT
    assert parse("p", TEXT.replace(old, new), NOW_S) == Missing("p", reason)


@pytest.mark.parametrize("text", ["", "<html>", "\x00\x01", "{}", "a" * 100_000])
def test_text_that_is_no_exposition(text):
    assert isinstance(parse("p", text, NOW_S), Missing)


@pytest.fixture
async def scraper():
    scraper = Scraper(lambda: NOW_S)
    yield scraper
    await scraper.close()


async def serve(answer):
    async def connected(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        if answer is not None:
            writer.write(answer)
            await writer.drain()
        else:
            await reader.read()
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    return server, "127.0.0.1:%d" % server.sockets[0].getsockname()[1]  # noqa: UP031


def http(body, status="200 OK"):
    head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return (head + body).encode()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (http(TEXT), READING),
        (http("", "503 Service Unavailable"), Missing("p", "status 503")),
        (http("", "404 Not Found"), Missing("p", "status 404")),
        (http("", "302 Found\r\nlocation: /metrics"), Missing("p", "status 302")),
        (b"garbage\r\n\r\n", Missing("p", "ClientResponseError")),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nx", Missing("p", "ClientPayloadError")),
        (b"", Missing("p", "ServerDisconnectedError")),
    ],
)
async def test_over_a_socket(scraper, answer, expected):
    server, address = await serve(answer)
    async with server:
        assert await scraper.read("default", "p", address) == expected


async def test_an_engine_that_hangs_or_is_gone(scraper):
    server, address = await serve(None)
    async with server:
        missing = await scraper.read("default", "p", address)
        assert isinstance(missing, Missing)
        assert "Timeout" in missing.reason
    assert await scraper.read("default", "p", address) == Missing("p", "ClientConnectorError")


FEED = GatewayReport(VERSION, 5.0, {})
FEED_TEXT = stats_report.encode(FEED).decode()


def report_with_arm(**changed):
    """A report whose only arm has other fields than it should. None: it lacks the field."""
    arm = {
        name: value
        for name, value in (serialize(NO_REQUESTS) | changed).items()
        if value is not None
    }
    return json.dumps(json.loads(FEED_TEXT) | {"arms": {"n/s": {"p": arm}}})


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (http(FEED_TEXT), FEED),
        (http("[]"), Missing("g", "unreadable stats report: GatewayReport is '[]'")),
        (http("{"), Missing("g", "unreadable stats report")),
        (http("[" * 100_000), Missing("g", "unreadable stats report")),
        (
            http(FEED_TEXT.replace(f"{VERSION},", "1,", 1)),
            Missing("g", "unreadable stats report: GatewayReport.version is '1'"),
        ),
        (
            http(report_with_arm(missed=None)),
            Missing("g", "unreadable stats report: GatewayReport.arms.n/s.p lacks missed"),
        ),
        *(
            (
                http(report_with_arm(**{name: [{"n": 1}]})),
                Missing("g", "unreadable stats report: an arm has another number of bins"),
            )
            for name in ("ttft", "tpot", "missed")
        ),
        (http(FEED_TEXT, "404 Not Found"), Missing("g", "status 404")),
    ],
)
async def test_a_gateways_feed_over_a_socket(scraper, answer, expected):
    server, address = await serve(answer)
    async with server:
        assert await scraper.stats_report("g", address) == expected
