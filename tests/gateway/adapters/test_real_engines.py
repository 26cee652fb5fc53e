"""Adapters through the gateway on real engines: answers are those of the merged weights."""

import asyncio
import json
import shutil
from dataclasses import replace

import pytest
from tests.engine_server import launched_engine
from tests.gateway.adapters.adapter_engine import adapter
from tests.support.engine.merged import MergedModel
from tests.support.gateway_snapshots import build

from penstock.core.observed.lora_engine import LoraEngine
from penstock.core.routing.pick import Endpoint, Side
from penstock.core.runtimes import paths
from penstock.gateway.snapshots.snapshot import Snapshot
from penstock_engine.make_model.adapters import make_adapters

pytestmark = pytest.mark.slow

model_dir = launched_engine.model_dir
launch = launched_engine.launch

NUM_TOKENS = 8
PROMPT = list(range(40, 60))
NUM_ADAPTERS, SLOTS = 5, 2


@pytest.fixture
async def front(model_dir, launch, start_gateway, make_service, tmp_path, monkeypatch, until):
    """A gateway in front of two engines with two slots each, and five adapters; one more is damaged."""
    monkeypatch.setattr(paths, "ADAPTERS_MOUNT", str(tmp_path))
    folders = make_adapters(model_dir, tmp_path / "file", NUM_ADAPTERS, rank=4)
    damaged = shutil.copytree(folders[0], tmp_path / "file" / "damaged")
    (damaged / "adapter_model.safetensors").write_bytes(b"damaged")
    flags = (
        "--max-model-len", "256", "--enable-lora", "--max-loras", str(SLOTS), "--max-cpu-loras",
        str(SLOTS), "--lora-dir", str(tmp_path),
    )  # fmt: skip
    engines = [
        Endpoint(f"default/engine-{n}", f"127.0.0.1:{launch(*flags)[0].base_url.port}", "r1")
        for n in range(2)
    ]
    service = replace(
        make_service(served_name="soup"),
        endpoints=tuple(engines),
        sides=dict.fromkeys((e.pod for e in engines), Side("r1")),
        lora_engines=dict.fromkeys((e.pod for e in engines), LoraEngine("Penstock", SLOTS)),
    )
    bodies = [adapter(folder.name, uri=f"file:///{folder.name}") for folder in [*folders, damaged]]
    front = await start_gateway(wait_for_endpoint_s=60.0)
    front.snapshots.publish(Snapshot((service,), (), build([], [], [], bodies).adapters))
    copies = front.gateway.state.adapters.residency.copies
    await until(lambda: all(copies(engine.pod) is not None for engine in engines))
    return front


async def complete(front, model):
    status, body = await front.ask(
        "/v1/completions", model=model, prompt=PROMPT, max_tokens=NUM_TOKENS, temperature=0,
        ignore_eos=True, return_token_ids=True, stream=False,
    )  # fmt: skip
    return status, json.loads(body)


async def test_answers_are_those_of_the_merged_weights(front, model_dir, tmp_path):
    """More adapters than slots, and all at once: copies are loaded and evicted meanwhile."""
    reference = MergedModel(model_dir)
    folders = {each.name: each for each in sorted((tmp_path / "file").glob("adapter-*"))}
    expected = {name: reference.greedy(f, PROMPT, NUM_TOKENS) for name, f in folders.items()}
    expected["soup"] = reference.greedy(None, PROMPT, NUM_TOKENS)
    assert len({tuple(tokens) for tokens in expected.values()}) == NUM_ADAPTERS + 1
    for _ in range(2):
        models = [name for name in expected for _ in range(3)]
        answers = await asyncio.gather(*(complete(front, model) for model in models))
        for model, (status, answer) in zip(models, answers, strict=True):
            assert (status, answer["choices"][0]["token_ids"]) == (200, expected[model])
            assert answer["model"].partition("@")[0] == model
    counts = front.gateway.state.stats.adapters.of_service("default/chat")
    assert sum(stats.arrivals for stats in counts.values()) == 6 * NUM_ADAPTERS
    assert sum(stats.load_failures for stats in counts.values()) == 0


async def test_a_damaged_adapter_has_an_error_and_harms_no_other_request(front):
    answers = await asyncio.gather(
        *(complete(front, model) for model in ["damaged", "soup", "adapter-000"] * 3)
    )
    assert [status for status, _ in answers] == [424, 200, 200] * 3
    error = answers[0][1]["error"]
    assert error["code"] == "adapter_load_failed"
    assert error["message"].startswith("engines refuse the adapter `damaged`: ")
    assert not front.gateway.state.endpoints.suspects
