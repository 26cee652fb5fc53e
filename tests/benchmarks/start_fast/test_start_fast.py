"""The measurement of starts, with a small model."""

import hashlib
from pathlib import Path

import pytest
import torch
from benchmarks.start_fast.__main__ import cpu_seconds, seconds, summary
from benchmarks.start_fast.checkpoint import NUM_SHARDS, write_checkpoint
from benchmarks.start_fast.rate_limit import BURST_S, TokenBucket, rate_limited
from benchmarks.start_fast.starts import RATES, URI, Pair, measure_starts
from benchmarks.start_fast.steps import Step
from benchmarks.start_fast.stream import build_model, stream_model
from tests.support.sources.object_store import KEY, REGION, SECRET, s3_server

from penstock_engine.checkpoints.loading import load_weights
from penstock_engine.sources.limits import FetchLimits


def test_streamed_parameters_and_digests_are_those_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tmp_path / "buckets/models/model"
    write_checkpoint(files, 1 << 20)
    loaded = build_model(files)
    load_weights(loaded, files, loaded.shard.config.family.names, torch.bfloat16, "cpu")
    with s3_server(tmp_path / "buckets") as url, rate_limited(url, 100 << 20) as limited:
        for name, value in {
            "AWS_ENDPOINT_URL": limited, "AWS_REGION": REGION, "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        limits = FetchLimits(part_bytes=50_001)  # parts that end within numbers
        streamed, digests = stream_model(URI, tmp_path / "headers", limits, is_hashed=True)
    expected = dict(loaded.named_parameters())
    found = dict(streamed.named_parameters())
    assert found.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(expected[name], found[name])] == []
    shards = sorted(files.glob("*.safetensors"))
    assert len(shards) == NUM_SHARDS
    assert digests == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in shards}


@pytest.mark.slow
def test_each_way_is_measured_at_each_rate(tmp_path: Path) -> None:
    pairs = list(measure_starts(tmp_path, 1 << 20, 1, ""))
    assert [pair.rate for pair in pairs] == [*RATES]
    names = {"fetch", "stream", "stream, SHA-256"} | {
        f"{loader}{cache}" for loader in ("load", "load_file") for cache in ("", ", dropped")
    }
    assert [set(pair.by_way) for pair in pairs] == [names] * len(RATES)
    assert {path.name for path in tmp_path.iterdir()} == {"buckets"}


def test_a_token_bucket_spreads_bytes_over_time_and_keeps_a_burst() -> None:
    bucket = TokenBucket(100.0)
    assert bucket.delay_s(50, now=10.0) == pytest.approx(0.5 - BURST_S)
    assert bucket.delay_s(100, now=10.0) == pytest.approx(1.5 - BURST_S)
    assert bucket.delay_s(0, now=20.0) == 0.0
    assert bucket.delay_s(10, now=20.0) == pytest.approx(0.1 - BURST_S)


def test_a_way_of_two_steps_takes_the_seconds_of_both() -> None:
    steps = {"fetch": Step(2.0, 0.3, 1, 1, None), "load": Step(0.5, 0.2, 1, 1, 7)}
    pair = Pair(None, 0.0, steps)
    assert seconds(pair, ("fetch", "load")) == 2.5
    assert cpu_seconds(pair, ("fetch", "load")) == 0.5
    assert summary([3.0, 1.0, 2.5]) == "2.50 (1.00 to 3.00)"
