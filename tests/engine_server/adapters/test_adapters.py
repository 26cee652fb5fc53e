"""Tests of LoRA adapters over HTTP: loading, residency, answers, metrics and errors."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families
from safetensors.torch import load_file, save_file

PROMPT = {"prompt": "A penstock is", "max_tokens": 12, "temperature": 0, "ignore_eos": True}


def make_adapter(folder: Path, model_dir: Path, seed: int, rank: int = 4, **settings: Any) -> Path:
    folder.mkdir(parents=True)
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 16, "bias": "none"} | settings
    (folder / "adapter_config.json").write_text(json.dumps(config))
    generator = torch.Generator().manual_seed(seed)
    factors = {}
    for name, weight in load_file(model_dir / "model.safetensors").items():
        if name.endswith(("q_proj.weight", "down_proj.weight")):
            target = f"base_model.model.{name.removesuffix('.weight')}"
            outputs, inputs = weight.shape
            factors[f"{target}.lora_A.weight"] = torch.randn(rank, inputs, generator=generator)
            factors[f"{target}.lora_B.weight"] = torch.randn(outputs, rank, generator=generator)
    save_file(factors, folder / "adapter_model.safetensors")
    return folder


@pytest.fixture(scope="module")
def root(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("adapters")
    for seed, name in enumerate(("law", "medicine", "poetry")):
        make_adapter(root / name, model_dir, seed)
    make_adapter(root / "wide", model_dir, 9, rank=32)
    make_adapter(root / "pissa", model_dir, 9, init_lora_weights="pissa_niter_4")
    (root / "escape").symlink_to("/etc")
    return root


@pytest.fixture(scope="module")
def adapted(launch: Any, root: Path) -> httpx.Client:
    """An engine with at most two adapters in host memory, and one per step."""
    client: httpx.Client
    client, _ = launch(
        "--max-model-len", "2048", "--enable-lora", "--max-loras", "1", "--max-cpu-loras", "2",
        "--lora-dir", str(root), "--enable-sleep-mode", "--lora-modules",
        json.dumps({"name": "law", "path": str(root / "law"), "base_model_name": "base"}),
        "--enable-prompt-tokens-details",
    )  # fmt: skip
    return client


def load(client: httpx.Client, name: str, path: str) -> httpx.Response:
    body = {"lora_name": name, "lora_path": path}
    return client.post("/v1/load_lora_adapter", json=body)


def text(client: httpx.Client, model: str) -> str:
    answer = client.post("/v1/completions", json=PROMPT | {"model": model})
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == model
    generated: str = answer.json()["choices"][0]["text"]
    return generated


def tiers(client: httpx.Client) -> dict[str, str]:
    return {entry["id"]: entry["tier"] for entry in client.get("/v1/adapters").json()["data"]}


def test_adapters_are_loaded_evicted_reloaded_and_unloaded(
    adapted: httpx.Client, root: Path
) -> None:
    assert load(adapted, "medicine", "medicine").status_code == 200
    texts = {name: text(adapted, name) for name in ("soup", "law", "medicine")}
    assert len(set(texts.values())) == 3
    assert tiers(adapted) == {"law": "host", "medicine": "device"}
    cards = adapted.get("/v1/models").json()["data"]
    assert {card["id"]: card["parent"] for card in cards} == {
        "soup": None, "law": "base", "medicine": "soup",
    }  # fmt: skip
    assert [card["root"] for card in cards] == ["soup", str(root / "law"), "medicine"]

    # A third adapter evicts the least recently used one; a request for that reads it again.
    assert load(adapted, "poetry", "poetry").status_code == 200
    assert tiers(adapted) == {"law": "disk", "medicine": "device", "poetry": "host"}
    assert text(adapted, "law") == texts["law"]
    assert tiers(adapted)["law"] == "device"

    # Sleeping and waking changes no answer.
    assert adapted.post("/sleep").status_code == 200
    assert adapted.post("/wake_up").status_code == 200
    assert {name: text(adapted, name) for name in texts} == texts

    unloaded = adapted.post("/v1/unload_lora_adapter", json={"lora_name": "medicine"})
    assert unloaded.status_code == 200
    answer = adapted.post("/v1/completions", json=PROMPT | {"model": "medicine"})
    assert answer.status_code == 404
    # Other weights under the same name reuse nothing of the first ones, in the prefix cache either.
    assert load(adapted, "medicine", "poetry").status_code == 200
    assert text(adapted, "medicine") == text(adapted, "poetry") != texts["medicine"]


def test_an_adapter_with_changed_files_reuses_no_cached_blocks(
    adapted: httpx.Client, root: Path, model_dir: Path
) -> None:
    """The adapter is evicted, its files are rewritten, and the next request reads them again."""
    prompt = {
        "prompt": "A penstock is a gated pipe that feeds a turbine. " * 4,
        "model": "changing",
    }
    settings = {"logprobs": 3, "temperature": 0, "max_tokens": 4, "return_token_ids": True}

    def ask(**body: Any) -> Any:
        answer = adapted.post("/v1/completions", json=prompt | settings | body)
        assert answer.status_code == 200, answer.text
        cached = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        return answer.json()["choices"][0]["logprobs"], cached

    make_adapter(root / "changing", model_dir, 7)
    assert load(adapted, "changing", "changing").status_code == 200
    first, _ = ask()
    assert ask()[1] > 0
    for name in ("first", "second"):
        assert load(adapted, name, "law").status_code == 200
        text(adapted, name)
    assert tiers(adapted)["changing"] == "disk"
    shutil.rmtree(root / "changing")
    make_adapter(root / "changing", model_dir, 8)
    changed, cached = ask()
    assert cached == 0
    assert changed == ask(cache_salt="nothing of this is cached")[0] != first
    for name in ("changing", "first", "second"):
        adapted.post("/v1/unload_lora_adapter", json={"lora_name": name})


def test_metrics_count_requests_and_tokens_by_adapter(adapted: httpx.Client) -> None:
    def total(name: str, **labels: str) -> float:
        families = text_string_to_metric_families(adapted.get("/metrics").text)
        return sum(
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    before = total("penstock:adapter_tokens_total", adapter="law", kind="generation")
    text(adapted, "law")
    assert total("penstock:adapter_tokens_total", adapter="law", kind="generation") == before + 12
    assert total("penstock:adapter_requests_total", adapter="law", finished_reason="length") >= 1
    assert total("penstock:lora_resident", adapter="law") == 1
    families = text_string_to_metric_families(adapted.get("/metrics").text)
    [info] = [family for family in families if family.name == "vllm:lora_requests_info"]
    [sample] = info.samples
    assert set(sample.labels) == {
        "max_lora", "running_lora_adapters", "waiting_lora_adapters",
    }  # fmt: skip
    assert sample.value > 1.7e9


@pytest.mark.parametrize(
    ("name", "path", "status", "word"),
    [
        ("law", "poetry", 400, "already"),
        ("soup", "law", 400, "soup is a name of the model"),
        ("../x", "law", 400, "not a valid adapter name"),
        ("x", "nowhere", 404, "no folder"),
        ("x", "wide", 400, "max-lora-rank"),
        ("x", "../../etc", 404, "--lora-dir"),
        ("x", "/etc", 404, "--lora-dir"),
        ("x", "/nowhere/at/all", 404, "--lora-dir"),
        ("x", "escape", 404, "--lora-dir"),
        ("x", "pissa", 400, "has changed the model's own weights"),
    ],
)
def test_invalid_adapters_are_rejected(
    adapted: httpx.Client, name: str, path: str, status: int, word: str
) -> None:
    answer = load(adapted, name, path)
    assert (answer.status_code, word in answer.json()["error"]["message"]) == (status, True)
    assert "x" not in tiers(adapted)


def test_a_second_load_of_the_same_path_changes_nothing(adapted: httpx.Client, root: Path) -> None:
    """vLLM answers with an error; clients here load again without harm."""
    name = "sql@0a1b2c3d"  # as the operator names versions
    assert load(adapted, name, "poetry").status_code == 200
    first = text(adapted, name)
    for path in ("poetry", str(root / "poetry"), "./law/../poetry"):
        assert load(adapted, name, path).status_code == 200
    assert load(adapted, "law", "law").status_code == 200  # that of --lora-modules
    other = load(adapted, name, "law")
    assert (other.status_code, other.json()["error"]["code"]) == (400, "name_in_use")
    assert text(adapted, name) == first
    [entry] = [e for e in adapted.get("/v1/adapters").json()["data"] if e["id"] == name]
    assert (entry["path"], entry["state"], entry["rank"]) == ("poetry", "resident", 4)
    assert entry["bytes"] > 0
    unload(adapted, name)


def test_a_load_has_a_deadline(adapted: httpx.Client) -> None:
    body = {"lora_name": "late", "lora_path": "law"}
    headers = {"x-request-timeout-s": "0"}
    late = adapted.post("/v1/load_lora_adapter", json=body, headers=headers)
    assert (late.status_code, late.json()["error"]["code"]) == (503, "read_timeout")
    assert "late" not in tiers(adapted)


def unload(client: httpx.Client, *names: str) -> None:
    for name in names:
        assert client.post("/v1/unload_lora_adapter", json={"lora_name": name}).status_code == 200


def resident(client: httpx.Client, name: str) -> bool:
    return resident_value(client, name) == 1


def resident_value(client: httpx.Client, name: str) -> float | None:
    """The gauge of an adapter; None without a series."""
    families = text_string_to_metric_families(client.get("/metrics").text)
    samples = (sample for family in families for sample in family.samples)
    values = [
        each.value
        for each in samples
        if each.name == "penstock:lora_resident" and each.labels["adapter"] == name
    ]
    return values[0] if values else None


def test_an_adapter_is_replaced_in_place(adapted: httpx.Client) -> None:
    body = {"lora_name": "newest", "load_inplace": True}
    texts, expected = [], []
    for name in ("law", "medicine"):
        assert (
            adapted.post("/v1/load_lora_adapter", json=body | {"lora_path": name}).status_code
            == 200
        )
        texts.append(text(adapted, "newest"))
        assert resident(adapted, "newest")
        assert load(adapted, f"as_{name}", name).status_code == 200
        expected.append(text(adapted, f"as_{name}"))
    cards = {card["id"]: card["root"] for card in adapted.get("/v1/models").json()["data"]}
    rejected = adapted.post("/v1/load_lora_adapter", json=body | {"lora_path": "wide"})
    kept = text(adapted, "newest")
    unload(adapted, "newest", "as_law", "as_medicine")
    assert texts == expected
    assert texts[0] != texts[1]
    assert cards["newest"] == "medicine"
    assert (rejected.status_code, kept) == (400, texts[1])
    assert not resident(adapted, "newest")


def test_metrics_show_evictions_and_forget_unloaded_adapters(adapted: httpx.Client) -> None:
    names = [f"many{number}" for number in range(6)]
    for name in names:
        assert load(adapted, name, "law").status_code == 200
        text(adapted, name)
    assert {resident_value(adapted, name) for name in names} == {0, 1}
    unload(adapted, *names)
    assert 'adapter="many' not in adapted.get("/metrics").text


async def complete(client: httpx.AsyncClient, model: str, **body: Any) -> httpx.Response:
    return await client.post("/v1/completions", json=PROMPT | {"model": model} | body)


async def test_concurrent_requests_for_more_adapters_than_fit_all_succeed(
    adapted: httpx.Client,
) -> None:
    names = [f"turn{number}" for number in range(6)]
    assert [load(adapted, name, "law").status_code for name in names] == [200] * 6
    async with httpx.AsyncClient(base_url=adapted.base_url, timeout=60) as client:
        answers = await asyncio.gather(
            *(complete(client, name, max_tokens=40) for name in names * 3)
        )
    unload(adapted, *names)
    assert [answer.status_code for answer in answers] == [200] * 18
    assert len({answer.json()["choices"][0]["text"] for answer in answers}) == 1


def test_unloading_an_unknown_adapter_is_a_404(adapted: httpx.Client) -> None:
    answer = adapted.post("/v1/unload_lora_adapter", json={"lora_name": "nobody"})
    assert answer.status_code == 404


def test_an_engine_without_adapters_has_no_adapter_routes(client: httpx.Client) -> None:
    assert load(client, "law", "law").status_code == 404
    assert client.get("/v1/adapters").status_code == 404
