"""Tests of /metrics against a recording of vLLM 0.32's, and of the values."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import SequenceOutput
from penstock_engine.machine.device import DeviceMemory
from penstock_engine.memory.plan import plan_memory
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.shard import unsharded
from penstock_engine.options.config import EngineConfig
from penstock_engine.server.metrics.engine_metrics import EngineMetrics
from penstock_engine.server.metrics.request_record import RequestRecord

CONTRACT = Path(__file__).parents[2] / "golden" / "vllm-0.32-metrics.json"
LABELS = {"engine": "0", "model_name": "soup"}


def scrape(client: httpx.Client) -> dict[str, Metric]:
    """Returns the metric families by name."""
    text = client.get("/metrics").text
    return {family.name: family for family in text_string_to_metric_families(text)}


def total(client: httpx.Client, name: str, **labels: str) -> float:
    """Returns the sum of the samples that have these labels."""
    return sum(
        sample.value
        for family in scrape(client).values()
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def as_contract(family: Metric) -> dict[str, Any]:
    """Returns a metric family in the format of the recording."""
    name = family.name + ("_total" if family.type == "counter" else "")
    is_histogram = family.type == "histogram"
    values: dict[str, set[str]] = defaultdict(set)
    for sample in family.samples:
        for label, value in sample.labels.items():
            values[label].add(value)
    buckets = values.pop("le", set())
    entry: dict[str, Any] = {"name": name, "type": family.type, "labels": sorted(values)}
    own = {label: sorted(v) for label, v in values.items() if label not in LABELS}
    if own and name != "vllm:cache_config_info":
        entry["label_values"] = own
    if is_histogram:
        entry["buckets"] = sorted(buckets, key=float)
    return entry


def test_vllm_metrics_equal_vllms(client: httpx.Client) -> None:
    contract = {entry["name"]: entry for entry in json.loads(CONTRACT.read_text())}
    # vLLM has this metric only if VLLM_COMPUTE_NANS_IN_LOGITS is set.
    corrupted = "vllm:corrupted_requests_total"
    contract[corrupted] = {"name": corrupted, "type": "counter", "labels": sorted(LABELS)}
    exposed = [
        as_contract(family) for name, family in scrape(client).items() if name.startswith("vllm:")
    ]

    assert {entry["name"]: entry for entry in exposed} == contract


def test_other_metrics_are_penstocks_own(client: httpx.Client) -> None:
    own = {name for name in scrape(client) if not name.startswith("vllm:")}
    assert own == {
        "penstock:prefill_tokens_pending", "penstock:request_timeouts", "penstock:startup_seconds",
        "penstock:kv_exhausted", "penstock:draining", "penstock:busy_seconds",
        "penstock:cpu_threads", "penstock:resident_memory_bytes", "penstock:structured_answers",
        "penstock:tool_parse_failures", "penstock:max_num_seqs", "penstock:max_num_batched_tokens",
    }  # fmt: skip


def test_the_limits_of_a_step_are_metrics(client: httpx.Client) -> None:
    """The server was started with --max-num-seqs only."""
    families = scrape(client)
    (seqs,) = families["penstock:max_num_seqs"].samples
    (tokens,) = families["penstock:max_num_batched_tokens"].samples
    assert (seqs.value, tokens.value) == (8, 512)  # a flag, and the default


def test_cache_config_info_has_the_cache_capacity(client: httpx.Client) -> None:
    (sample,) = scrape(client)["vllm:cache_config_info"].samples
    assert sample.value == 1
    assert sample.labels["num_gpu_blocks"] == "400"
    assert sample.labels["block_size"] == "16"
    assert sample.labels["kv_cache_size_tokens"] == "6400"


def test_each_metric_counts_a_request_once(client: httpx.Client, model_dir: Path) -> None:
    kv_bytes_per_token = unsharded(ModelConfig.load(model_dir)).kv_block_bytes(1, 4)
    names = {
        "vllm:prompt_tokens_total": 3,
        "vllm:generation_tokens_total": 4,
        "vllm:request_success_total": 1,
        "vllm:time_to_first_token_seconds_count": 1,
        "vllm:inter_token_latency_seconds_count": 3,
        "vllm:request_time_per_output_token_seconds_count": 1,
        "vllm:e2e_request_latency_seconds_count": 1,
        "vllm:request_queue_time_seconds_count": 1,
        "vllm:request_prefill_time_seconds_count": 1,
        "vllm:request_decode_time_seconds_count": 1,
        "vllm:request_inference_time_seconds_count": 1,
        "vllm:request_prompt_tokens_sum": 3,
        "vllm:request_generation_tokens_sum": 4,
        "vllm:request_params_max_tokens_sum": 4,
        "vllm:request_params_n_sum": 1,
        "vllm:iteration_tokens_total_sum": 7,
        "vllm:iteration_tokens_total_count": 4,
        "vllm:estimated_write_bytes_per_gpu_total": 6 * kv_bytes_per_token,
        "vllm:prefix_cache_queries_total": 3,
        "vllm:prefix_cache_hits_total": 0,
    }
    before = {name: total(client, name) for name in names}
    body = {"prompt": [9, 8, 7], "max_tokens": 4, "ignore_eos": True}
    client.post("/v1/completions", json=body).raise_for_status()
    assert {name: total(client, name) - before[name] for name in names} == names


@pytest.mark.parametrize(
    ("prompt", "num_prompts"), [([9, 8, 7], 1), ([[9, 8, 7], [7, 8]], 2)], ids=["one", "two"]
)
def test_choices_of_a_prompt_are_observed_as_one_request(
    client: httpx.Client, prompt: Any, num_prompts: int
) -> None:
    names = {
        "vllm:request_success_total": 3,
        "vllm:request_params_n_count": 1,
        "vllm:request_params_n_sum": 3,
        "vllm:request_max_num_generation_tokens_count": 1,
        "vllm:request_max_num_generation_tokens_sum": 4,
    }
    before = {name: total(client, name) for name in names}
    body = {"prompt": prompt, "n": 3, "max_tokens": 4, "ignore_eos": True}
    client.post("/v1/completions", json=body).raise_for_status()
    gained = {name: total(client, name) - before[name] for name in names}
    assert gained == {name: value * num_prompts for name, value in names.items()}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"max_tokens": 3, "ignore_eos": True}, "length"),
        ({"max_tokens": 500, "stop": ["a", "e", "i", " "], "ignore_eos": True}, "stop"),
    ],
    ids=["length", "stop string"],
)
def test_requests_are_counted_by_finish_reason(
    client: httpx.Client, body: dict[str, Any], reason: str
) -> None:
    name = "vllm:request_success_total"
    before = {r: total(client, name, finished_reason=r) for r in ("stop", "length", "abort")}
    body |= {"prompt": "The engine", "seed": 3}
    answer = client.post("/v1/completions", json=body).json()
    assert answer["choices"][0]["finish_reason"] == reason
    while total(
        client, "vllm:num_requests_running"
    ):  # a stop string ends the sequence a step later
        pass
    after = {r: total(client, name, finished_reason=r) for r in before}
    assert {r: after[r] - before[r] for r in before} == {r: float(r == reason) for r in before}


def test_a_cached_prompt_increases_hits_by_its_full_blocks(client: httpx.Client) -> None:
    """70 tokens fill four blocks of 16, which are found in the cache; six tokens are computed."""
    body = {"prompt": list(range(300, 370)), "max_tokens": 2, "cache_salt": "of this test"}
    first = client.post("/v1/completions", json=body).json()
    names = {
        "vllm:prefix_cache_queries_total": {},
        "vllm:prefix_cache_hits_total": {},
        "vllm:prompt_tokens_cached_total": {},
        "vllm:prompt_tokens_by_source_total": {"source": "local_compute"},
        "vllm:prompt_tokens_cached_by_source_total": {"source": "device"},
    }
    before = {name: total(client, name, **labels) for name, labels in names.items()}
    tokens_before = total(client, "vllm:iteration_tokens_total_sum")
    second = client.post("/v1/completions", json=body).json()
    gained = {name: total(client, name, **names[name]) - before[name] for name in names}

    assert first["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert second["usage"]["prompt_tokens_details"] == {"cached_tokens": 64}
    assert list(gained.values()) == [70, 64, 64, 6, 64]
    assert total(client, "vllm:iteration_tokens_total_sum") - tokens_before == 72
    assert total(client, "vllm:external_prefix_cache_hits_total") == 0


def test_another_salt_shares_no_cached_blocks(client: httpx.Client) -> None:
    body = {"prompt": list(range(300, 370)), "max_tokens": 1}
    for salt in ("one", "two"):
        answer = client.post("/v1/completions", json=body | {"cache_salt": salt}).json()
        assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


def test_startup_seconds_have_all_phases(client: httpx.Client) -> None:
    samples = scrape(client)["penstock:startup_seconds"].samples
    phases = {sample.labels["phase"]: sample.value for sample in samples}
    assert phases.keys() == {"import", "config", "weights", "warm_up", "listen"}
    assert all(seconds > 0 for seconds in phases.values())


def test_resident_memory_is_that_of_the_engine(client: httpx.Client) -> None:
    (sample,) = scrape(client)["penstock:resident_memory_bytes"].samples
    assert 50e6 < sample.value < 50e9


class ClockedEngine:
    """A real scheduler and real metrics, without a model, at times that the test sets."""

    def __init__(self, model_dir: Path) -> None:
        config = EngineConfig(model_dir=model_dir, max_model_len=64, num_gpu_blocks_override=16)
        memory_plan = plan_memory(config, device_name="cpu", memory=DeviceMemory(1 << 40))
        self.metrics = EngineMetrics("m", config, memory_plan)
        self.scheduler = Scheduler(
            SchedulerConfig(
                max_num_seqs=1,
                max_num_batched_tokens=64,
                max_model_len=64,
                block_size=16,
                num_blocks=16,
            )
        )
        self._records: dict[str, RequestRecord] = {}

    def add(self, name: str, arrival_s: float, queued_s: float, num_tokens: int) -> None:
        self._records[name] = RequestRecord(arrival_s, num_tokens)
        sampling = SamplingParams(max_tokens=num_tokens)
        self.scheduler.add(Sequence(name, [7, 8, 9], sampling, frozenset(), queued_s))

    def step(self, start_s: float, end_s: float, output: SequenceOutput | None = None) -> None:
        step = self.scheduler.schedule(start_s)
        assert step is not None
        outputs = {s.request_id: output or SequenceOutput((5,)) for s in step.sequences}
        for event in self.scheduler.complete(step, outputs, end_s):
            self.metrics.observe_event(event, self._records[event.request_id])

    def sum_of(self, name: str) -> float:
        return self.value_of(f"vllm:{name}_seconds_sum")

    def value_of(self, name: str) -> float:
        families = text_string_to_metric_families(self.metrics.exposition()[0].decode())
        samples = [s for family in families for s in family.samples]
        return sum(s.value for s in samples if s.name == name)


def test_sequences_with_nan_logits_are_counted_as_corrupted(model_dir: Path) -> None:
    engine = ClockedEngine(model_dir)
    for name, output in (
        ("corrupt", SequenceOutput(is_corrupt=True)),
        ("no token left", SequenceOutput()),
    ):
        engine.add(name, 1.0, 1.0, 2)
        engine.step(1.0, 2.0, output)
    assert engine.value_of("vllm:corrupted_requests_total") == 1
    assert engine.value_of("vllm:request_success_total") == 2


def test_latencies_match_the_clock(model_dir: Path) -> None:
    """The first request runs from 10 to 13; the other is queued at 10.5 and starts at 13.25."""
    engine = ClockedEngine(model_dir)
    engine.add("first", 9.5, 10.0, 2)
    engine.step(10.0, 12.0)
    engine.add("second", 10.25, 10.5, 3)
    engine.step(12.0, 13.0)
    names = (
        "request_queue_time", "request_prefill_time", "request_decode_time",
        "request_inference_time", "e2e_request_latency", "time_to_first_token",
        "inter_token_latency", "request_time_per_output_token",
    )  # fmt: skip
    first = {name: engine.sum_of(name) for name in names}
    for start_s, end_s in ((13.25, 14.0), (14.0, 14.5), (14.5, 15.5)):
        engine.step(start_s, end_s)
    second = {name: engine.sum_of(name) - first[name] for name in names}

    assert list(first.values()) == [0, 2, 1, 3, 3.5, 2.5, 1, 1]
    assert second == pytest.approx(
        {
            "request_queue_time": 13.25 - 10.5,
            "request_prefill_time": 0.75,
            "request_decode_time": 1.5,
            "request_inference_time": 2.25,
            "e2e_request_latency": 5.25,
            "time_to_first_token": 3.75,
            "inter_token_latency": 1.5,
            "request_time_per_output_token": 0.75,
        }
    )
