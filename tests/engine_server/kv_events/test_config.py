"""Tests of --kv-events-config: vLLM's names and defaults, and bad values."""

from pathlib import Path

import pytest
from typer import BadParameter

from penstock_engine.kv_events.config import KVEventsConfig
from penstock_engine.options.config import EngineConfig
from penstock_engine.options.flag_values import kv_events


def test_the_defaults_are_those_of_vllm() -> None:
    config = kv_events("{}")
    assert config == KVEventsConfig(
        enable_kv_cache_events=False, publisher=None, endpoint="tcp://*:5557", replay_endpoint=None,
        buffer_steps=10_000, hwm=100_000, max_queue_size=100_000, topic="",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "is_published"),
    [
        ("{}", False),
        ('{"publisher": "zmq"}', False),
        ('{"enable_kv_cache_events": true}', True),
        ('{"enable_kv_cache_events": true, "publisher": null}', True),
        ('{"enable_kv_cache_events": true, "publisher": "zmq"}', True),
        ('{"enable_kv_cache_events": true, "publisher": "null"}', False),
    ],
)
def test_events_need_the_switch_and_a_publisher(text: str, is_published: bool) -> None:
    config = EngineConfig(model_dir=Path("model"), kv_events_config=kv_events(text))
    assert config.block_events is is_published


@pytest.mark.parametrize(
    ("endpoint", "is_bound"),
    [
        ("tcp://*:5557", True),
        ("tcp://[::]:5557", True),
        ("ipc:///run/kv", True),
        ("tcp://collector:5557", False),
    ],
)
def test_an_endpoint_is_bound_by_vllms_rule(endpoint: str, is_bound: bool) -> None:
    assert KVEventsConfig(endpoint=endpoint).is_bound is is_bound


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "is not a JSON object"),
        ('{"port": 1, "host": 2}', "host, port: there is no such setting"),
        ('{"enable_kv_cache_events": 1}', "enable_kv_cache_events must be true or false"),
        ('{"publisher": "kafka"}', 'publisher must be "null" or "zmq"'),
        ('{"publisher": []}', 'publisher must be "null" or "zmq"'),
        ('{"endpoint": "*:5557"}', "endpoint must start with tcp:// or ipc://"),
        ('{"endpoint": null}', "endpoint must start with tcp:// or ipc://"),
        ('{"replay_endpoint": "udp://*:1"}', "replay_endpoint must start with tcp:// or ipc://"),
        ('{"hwm": 0}', "hwm must be a whole number from 1 to 10000000"),
        ('{"hwm": true}', "hwm must be a whole number from 1 to 10000000"),
        ('{"buffer_steps": 1.5}', "buffer_steps must be a whole number from 1 to 10000000"),
        ('{"max_queue_size": -1}', "max_queue_size must be a whole number from 1 to 10000000"),
        ('{"topic": 3}', "topic must be a string"),
    ],
)
def test_a_bad_value_is_refused_with_the_setting(text: str, message: str) -> None:
    with pytest.raises(BadParameter) as raised:
        kv_events(text)
    assert message in str(raised.value)
