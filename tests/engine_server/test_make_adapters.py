"""Tests of random adapters and of their merged weights, which are the reference for served answers."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from safetensors.torch import load_file
from tests.support.engine.merged import MergedModel, merge_adapter, weight_changes
from typer.testing import CliRunner

from penstock_engine.cli import app
from penstock_engine.make_model.adapters import STRENGTH, make_adapter, make_adapters
from penstock_engine.models.config import ModelConfig

NUM_TOKENS = 12
PROMPT = list(range(40, 60))


@pytest.fixture(scope="module")
def folders(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return make_adapters(model_dir, tmp_path_factory.mktemp("adapters"), 4, rank=4)


def test_the_same_seed_makes_the_same_adapters(
    model_dir: Path, folders: list[Path], tmp_path: Path
) -> None:
    again = make_adapters(model_dir, tmp_path / "again", 2, rank=4)
    other = make_adapters(model_dir, tmp_path / "other", 1, rank=4, seed=1)
    weights = [
        (folder / "adapter_model.safetensors").read_bytes() for folder in (*folders, *again, *other)
    ]
    assert [folder.name for folder in again] == ["adapter-000", "adapter-001"]
    assert weights[4:6] == weights[:2]
    assert len(set(weights)) == 5


def test_other_users_can_read_an_adapter(folders: list[Path]) -> None:
    modes = {path.stat().st_mode & 0o444 for path in folders[0].iterdir()}
    assert modes == {0o444}


def test_adapters_change_the_projections_that_are_named(model_dir: Path, tmp_path: Path) -> None:
    folder = make_adapter(model_dir, tmp_path / "a", seed=1, projections=("q_proj", "up_proj"))
    names = {name.split(".")[-2] for name in weight_changes(folder)}
    weights = load_file(model_dir / "model.safetensors")
    assert names == {"q_proj", "up_proj"}
    for name, change in weight_changes(folder).items():
        assert change.norm().item() == pytest.approx(
            STRENGTH * weights[name].norm().item(), rel=1e-3
        )


def test_an_engine_answers_as_the_merged_model(
    launch: Callable[..., tuple[httpx.Client, object]], model_dir: Path, folders: list[Path]
) -> None:
    client, _ = launch(
        "--max-model-len", "512", "--enable-lora", "--max-loras", "2", "--max-cpu-loras", "4",
        "--lora-dir", str(folders[0].parent),
    )  # fmt: skip
    reference = MergedModel(model_dir)
    answers = set()
    for folder in (None, *folders, None):
        if folder is not None:
            body = {"lora_name": folder.name, "lora_path": folder.name}
            assert client.post("/v1/load_lora_adapter", json=body).status_code == 200
        model = "soup" if folder is None else folder.name
        answer = client.post(
            "/v1/completions",
            json={"model": model, "prompt": PROMPT, "max_tokens": NUM_TOKENS, "temperature": 0,
                  "ignore_eos": True, "return_token_ids": True},
        )  # fmt: skip
        tokens = answer.json()["choices"][0]["token_ids"]
        assert tokens == reference.greedy(folder, PROMPT, NUM_TOKENS)
        answers.add(tuple(tokens))
    assert len(answers) == 1 + len(folders)


def test_a_merged_model_can_be_served(model_dir: Path, folders: list[Path], tmp_path: Path) -> None:
    merged = merge_adapter(model_dir, folders[0], tmp_path / "merged")
    tokens = MergedModel(merged).greedy(None, PROMPT, NUM_TOKENS)
    assert tokens == MergedModel(model_dir).greedy(folders[0], PROMPT, NUM_TOKENS)
    assert ModelConfig.load(merged) == ModelConfig.load(model_dir)
    assert (merged / "tokenizer.json").is_file()


def test_the_command_makes_adapters_or_says_why_not(model_dir: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    args = ["make-adapters", str(model_dir), str(tmp_path), "--count", "2", "--rank", "2"]
    done = runner.invoke(app, args)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "adapter-001" / "adapter_config.json").is_file()
    for changed in (args, [*args[:-1], "0"], ["make-adapters", str(tmp_path), str(tmp_path)]):
        failed = runner.invoke(app, changed)
        assert failed.exit_code == 1
        assert len(failed.output.splitlines()) == 1
