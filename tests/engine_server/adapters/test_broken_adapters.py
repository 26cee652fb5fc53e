"""Tests of adapters that an engine refuses: each has its own reason, and harms nothing else."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.cluster.broken_adapters import BROKEN, MAX_RANK, make_broken

from penstock_engine.make_model.adapters import make_adapter

PROMPT = {"prompt": "A penstock is", "max_tokens": 4, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def root(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("broken") / "root"
    make_adapter(model_dir, root / "good", seed=0)
    return root


@pytest.fixture(scope="module", params=[1, 2], ids=["one rank", "two ranks"])
def engine(request: pytest.FixtureRequest, launch: Any, model_dir: Path, root: Path) -> Any:
    """An engine with one place for adapters, which a good one takes, and its answer."""
    client, process = launch(
        "--max-model-len", "512", "--enable-lora", "--max-loras", "1", "--lora-dir", str(root),
        "--max-lora-rank", str(MAX_RANK), "--tensor-parallel-size", str(request.param),
        model=model_dir,
    )  # fmt: skip
    assert load(client, "good").status_code == 200
    yield client, process, ask(client)
    process.kill()


def load(client: httpx.Client, name: str) -> httpx.Response:
    body = {"lora_name": name, "lora_path": name}
    return client.post("/v1/load_lora_adapter", json=body, timeout=20)


def ask(client: httpx.Client) -> Any:
    answer = client.post("/v1/completions", json=PROMPT | {"model": "good"})
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_adapter_is_refused_for_its_own_reason(
    engine: Any, model_dir: Path, root: Path, name: str
) -> None:
    client, process, expected = engine
    if not (root / name).is_symlink() and not (root / name).exists():
        make_broken(name, model_dir, root)
    code, _ = BROKEN[name]
    answer = load(client, name)
    error = answer.json()["error"]
    assert (answer.status_code in (400, 404), error["code"]) == (True, code), error
    assert str(root) not in error["message"]
    # A refused adapter takes no place. Only values are read after a place was made for them.
    entries = {each["id"]: each["state"] for each in client.get("/v1/adapters").json()["data"]}
    assert entries == {"good": "evicted" if code == "values_not_finite" else "resident"}
    assert ask(client) == expected
    assert process.is_alive()
    assert client.get("/health").status_code == 200
