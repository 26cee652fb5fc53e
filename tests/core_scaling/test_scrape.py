"""An engine's metrics over a real socket, and every way in which they can be of no use."""

import asyncio

import pytest

from penstock.adapters.scrape import Scraper, parse
from penstock.core.scaling import EngineSample, Missing

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
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="chat"} 5.0
"""


def test_what_an_engine_says():
    assert parse("p", TEXT) == EngineSample("p", 3, 2, 0.25, 2048, 77)


def test_vllm_has_no_pending_tokens():
    text = "\n".join(line for line in TEXT.splitlines() if "penstock" not in line)
    assert parse("p", text) == EngineSample("p", 3, 2, 0.25, 2048, 0)


def test_ranks_are_added_up_and_their_use_averaged():
    twin = "".join(
        line.replace('engine="0"', 'engine="1"').replace("0.25", "0.75") + "\n"
        for line in TEXT.splitlines()
        if not line.startswith("#")
    )
    assert parse("p", TEXT + twin) == EngineSample("p", 6, 4, 0.5, 4096, 154)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('chat"} 0.25', 'chat"} NaN', "vllm:kv_cache_usage_perc is nan"),
        ('chat"} 0.25', 'chat"} 1.5', "vllm:kv_cache_usage_perc is 1.5"),
        ('chat"} 0.25', 'chat"} -0.1', "vllm:kv_cache_usage_perc is -0.1"),
        ('chat"} 3.0', 'chat"} -1.0', "vllm:num_requests_running is -1.0"),
        ('chat"} 3.0', 'chat"} +Inf', "vllm:num_requests_running is inf"),
        ('chat"} 2.0', 'chat"} NaN', "vllm:num_requests_waiting is nan"),
        ('chat"} 77.0', 'chat"} -7', "penstock:prefill_tokens_pending is -7"),
        ("vllm:num_requests_running{", "other{", "vllm:num_requests_running is absent"),
        ("vllm:kv_cache_usage_perc{", "other{", "vllm:kv_cache_usage_perc is absent"),
        ("vllm:cache_config_info{", "other{", "vllm:cache_config_info is absent"),
        ('gpu_blocks="128"', 'gpu_blocks="None"', "vllm:cache_config_info states no capacity"),
        ('gpu_blocks="128"', 'gpu_blocks="0"', "vllm:cache_config_info states no capacity"),
        ('chat"} 2.0', 'chat"} two', "unreadable metrics"),
        ('chat"} 2.0', "chat", "unreadable metrics"),
    ],
)
def test_numbers_that_cannot_be_believed(old, new, reason):
    assert old in TEXT
    assert parse("p", TEXT.replace(old, new)) == Missing("p", reason)


@pytest.mark.parametrize("text", ["", "<html>", "\x00\x01", "{}", "a" * 100_000])
def test_text_that_is_no_exposition(text):
    assert isinstance(parse("p", text), Missing)


@pytest.fixture
async def scraper():
    scraper = Scraper()
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
        (http(TEXT), EngineSample("p", 3, 2, 0.25, 2048, 77)),
        (http("", "503 Service Unavailable"), Missing("p", "status 503")),
        (http("", "404 Not Found"), Missing("p", "status 404")),
        (b"garbage\r\n\r\n", Missing("p", "RemoteProtocolError")),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nx", Missing("p", "RemoteProtocolError")),
        (b"", Missing("p", "RemoteProtocolError")),
    ],
)
async def test_over_a_socket(scraper, answer, expected):
    server, address = await serve(answer)
    async with server:
        assert await scraper.sample("p", address) == expected


async def test_an_engine_that_hangs_or_is_gone(scraper):
    server, address = await serve(None)
    async with server:
        missing = await scraper.sample("p", address)
        assert isinstance(missing, Missing)
        assert "Timeout" in missing.reason
    assert await scraper.sample("p", address) == Missing("p", "ConnectError")
