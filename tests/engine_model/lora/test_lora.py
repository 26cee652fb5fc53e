"""Adapters of many sequences in one batch, against the model with the adapter merged into it."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.support.engine.families import FAMILIES

from penstock_engine.core.errors import ModelError
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.execution.runner import Runner
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.lora.adapter_files import AdapterFolder
from penstock_engine.lora.checkpoint import Adapter, AdapterCheckpoint
from penstock_engine.make_model.adapters import make_adapter as make_random

SIZES = {"num_blocks": 96, "block_size": 8, "max_model_len": 128, "max_num_seqs": 8}
RANK, ALPHA = 4, 6.0
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def make_adapter(
    folder: Path, model_dir: Path, targets: tuple[str, ...], seed: int, **changes: object
) -> Path:
    """An adapter as PEFT writes it, for both layers of the tiny model."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none"} | changes
    (folder / "adapter_config.json").write_text(json.dumps(config))
    generator = torch.Generator().manual_seed(seed)
    factors = {}
    for name, weight in load_file(model_dir / "model.safetensors").items():
        if name.split(".")[-2] in targets:
            target = f"base_model.model.{name.removesuffix('.weight')}"
            outputs, inputs = weight.shape
            a = torch.randn(RANK, inputs, generator=generator) * 0.3
            b = torch.randn(outputs, RANK, generator=generator) * 0.3
            factors |= {f"{target}.lora_A.weight": a, f"{target}.lora_B.weight": b}
    save_file(factors, folder / "adapter_model.safetensors")
    return folder


def read_adapter(folder: Path, targets: Mapping[str, tuple[int, int]]) -> Adapter:
    checkpoint = AdapterCheckpoint.check(AdapterFolder(folder), targets, max_rank=8)
    return checkpoint.read(torch.float32)


def merge_adapter(adapter_dir: Path, model_dir: Path, out: Path) -> Path:
    """The model with W + alpha / rank * B A in the place of each adapted W."""
    out.mkdir()
    weights = load_file(model_dir / "model.safetensors")
    factors = load_file(adapter_dir / "adapter_model.safetensors")
    for name, a in factors.items():
        if ".lora_A." in name:
            target = name.removeprefix("base_model.model.").replace(".lora_A.weight", ".weight")
            b = factors[name.replace("lora_A", "lora_B")]
            weights[target] = weights[target] + ALPHA / RANK * b @ a
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text((model_dir / "config.json").read_text())
    return out


def load(model_dir: Path, *, max_adapters: int) -> Runner:
    config = RunnerConfig(
        model_dir=model_dir, device="cpu", dtype="float32", max_num_batched_tokens=40,
        max_adapters=max_adapters, **SIZES,
    )  # fmt: skip
    return Runner.load(config)


def generate(runner: Runner, adapters: list[str], max_adapters: int = 3) -> list[list[int]]:
    """A sequence for each entry, all with the same prompt."""
    scheduler = Scheduler(
        SchedulerConfig(max_num_batched_tokens=40, max_adapters=max_adapters, **SIZES)
    )
    outputs: dict[str, list[int]] = {}
    for number, adapter in enumerate(adapters):
        sampling = SamplingParams(max_tokens=16, temperature=0.0, ignore_eos=True)
        prompt = [(i * i) % 60 for i in range(21)]
        scheduler.add(Sequence(str(number), prompt, sampling, frozenset(), 0.0, adapter=adapter))
        outputs[str(number)] = []
    while (step := scheduler.schedule(0.0)) is not None:
        scheduler.check()
        for event in scheduler.complete(step, runner.run(step), 0.0):
            outputs[event.request_id] += event.token_ids
    return list(outputs.values())


@pytest.fixture(scope="module")
def adapter_dirs(qwen3_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return {
        "all": make_adapter(folder / "all", qwen3_dir, TARGETS, 1),
        "attention": make_adapter(folder / "attention", qwen3_dir, ("q_proj", "v_proj"), 2),
        "mlp": make_adapter(folder / "mlp", qwen3_dir, ("up_proj", "down_proj"), 3),
    }


@pytest.mark.parametrize("max_adapters", [1, 3])
def test_each_sequence_gets_its_own_model(
    qwen3_dir: Path, adapter_dirs: dict[str, Path], tmp_path: Path, max_adapters: int
) -> None:
    """All adapters run in one batch on the same prompt, so the prefix cache must separate them as well."""
    runner = load(qwen3_dir, max_adapters=max_adapters)
    expected = {"": generate(load(qwen3_dir, max_adapters=0), [""])[0]}
    for name, folder in adapter_dirs.items():
        adapter = read_adapter(folder, runner.adapters.targets)
        runner.adapters.add(name, adapter)
        merged = load(merge_adapter(folder, qwen3_dir, tmp_path / name), max_adapters=0)
        expected[name] = generate(merged, [""])[0]
    assert len({tuple(tokens) for tokens in expected.values()}) == 4
    order = ["all", "", "mlp", "attention", "all", "mlp", ""]
    outputs = generate(runner, order, max_adapters)
    assert outputs == [expected[name] for name in order]
    assert len(runner.adapters.active) == max_adapters
    runner.adapters.remove("all")
    assert "all" not in runner.adapters.active


@pytest.mark.parametrize(
    ("changes", "reason", "word"),
    [
        ({"r": 9}, "RankTooLarge", "max-lora-rank"),
        ({"r": 3}, "ShapeMismatch", "shape"),
        ({"lora_alpha": -1}, "ConfigInvalid", "lora_alpha"),
        ({"bias": "all"}, "SettingUnsupported", "bias"),
        ({"rank_pattern": {"q_proj": 3}}, "ShapeMismatch", "shape"),
        ({"rank_pattern": {"q_proj": 9}}, "RankTooLarge", "max-lora-rank"),
        ({"rank_pattern": {"q_proj": "4"}}, "ConfigInvalid", "rank_pattern 'q_proj' must be"),
        ({"alpha_pattern": {"q_proj": 0}}, "ConfigInvalid", "alpha_pattern 'q_proj' must be"),
        ({"alpha_pattern": ["q_proj"]}, "ConfigInvalid", "alpha_pattern must be a JSON object"),
        ({"alpha_pattern": {"(a+)+": 4}}, "SettingUnsupported", "name the modules instead"),
        ({"alpha_pattern": {f"m{i}": 4 for i in range(15)}}, "ConfigInvalid", "more names"),
        ({"kasa_config": {}}, "SettingUnsupported", "kasa_config"),
        ({"alora_invocation_tokens": [5, 6]}, "SettingUnsupported", "alora_invocation_tokens"),
        ({"target_parameters": ["mlp.experts"]}, "SettingUnsupported", "target_parameters"),
        ({"use_qalora": True}, "SettingUnsupported", "use_qalora"),
        (
            {"use_dora": True},
            "SettingUnsupported",
            "the adapter sets use_dora, which is not supported",
        ),
        ({"init_lora_weights": "olora"}, "BaseWeightsChanged", "path_initial_model_for_weight_conversion"),
        ({"init_lora_weights": "loftq"}, "BaseWeightsChanged", "has changed the model's own weights"),
        ({"init_lora_weights": "new"}, "SettingUnsupported", "init_lora_weights 'new' is not supported"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_served_is_refused(
    qwen3_dir: Path, tmp_path: Path, changes: dict[str, object], reason: str, word: str
) -> None:
    folder = make_adapter(tmp_path, qwen3_dir, TARGETS, 1, **changes)
    assert word in refusal(qwen3_dir, folder, reason)


@pytest.mark.parametrize(
    "changes",
    [
        {"target_modules": ["q_proj", "self_attn.v_proj"]},
        {"target_modules": "all-linear"},
        {"target_modules": ".*_proj"},
        {"target_modules": ["q_proj", "k_proj", "v_proj"], "layers_to_transform": [0]},
        {"base_model_name_or_path": "acme/other"},  # this model records no name
        {"lora_alpha": 3.5, "use_rslora": True},
        {"modules_to_save": ["lm_head"]},  # without tensors: PEFT keeps those of the model
        {"alora_invocation_tokens": None, "target_parameters": None, "use_qalora": False},
    ],
    ids=str,
)
def test_adapters_that_fit_are_read(
    qwen3_dir: Path, tmp_path: Path, changes: dict[str, object]
) -> None:
    folder = make_adapter(tmp_path, qwen3_dir, ("q_proj", "v_proj"), 1, **changes)
    targets = load(qwen3_dir, max_adapters=1).adapters.targets
    adapter = read_adapter(folder, targets)
    assert (adapter.rank, len(adapter.factors)) == (RANK, 4)


def make_uneven(folder: Path, model_dir: Path, **changes: object) -> Path:
    """An adapter whose values of v_proj in the second layer have rank 2; its other ranks are RANK."""
    make_adapter(folder, model_dir, ("q_proj", "v_proj"), 1, **changes)
    path = folder / "adapter_model.safetensors"
    factors = load_file(path)
    target = "base_model.model.model.layers.1.self_attn.v_proj"
    factors[f"{target}.lora_A.weight"] = factors[f"{target}.lora_A.weight"][:2].clone()
    factors[f"{target}.lora_B.weight"] = factors[f"{target}.lora_B.weight"][:, :2].clone()
    save_file(factors, path)
    return folder


@pytest.mark.parametrize(
    ("changes", "scales"),
    [
        ({}, (ALPHA / RANK, ALPHA / RANK, ALPHA / 2)),
        ({"alpha_pattern": {"v_proj": 20}}, (ALPHA / RANK, 20 / RANK, 10)),
        ({"alpha_pattern": {r"^model\.layers\.1\.self_attn\.v_proj": 20}}, (1.5, 1.5, 10)),
        ({"alpha_pattern": {"layers.0.self_attn.v_proj$": 20}}, (1.5, 5, 3)),
        ({"alpha_pattern": {"proj": 20}}, (1.5, 1.5, 3)),
        ({"use_rslora": True}, (ALPHA / 2, ALPHA / 2, ALPHA / 2**0.5)),
    ],
    ids=str,
)
def test_ranks_and_alphas_may_differ_by_projection(
    qwen3_dir: Path, tmp_path: Path, changes: dict[str, object], scales: tuple[float, ...]
) -> None:
    """scales: of q_proj and v_proj in the first layer, and of v_proj in the second."""
    ranks = {"layers.1.self_attn.v_proj": 2}
    folder = make_uneven(tmp_path, qwen3_dir, rank_pattern=ranks, **changes)
    targets = load(qwen3_dir, max_adapters=1).adapters.targets
    adapter = read_adapter(folder, targets)
    assert adapter.rank == RANK
    stored = load_file(folder / "adapter_model.safetensors")
    names = ("0.self_attn.q_proj", "0.self_attn.v_proj", "1.self_attn.v_proj")
    for name, scale in zip(names, scales, strict=True):
        target = f"model.layers.{name}"
        b = stored[f"base_model.model.{target}.lora_B.weight"]
        torch.testing.assert_close(adapter.factors[target].b, scale * b)


def test_projections_that_a_checkpoint_packs_are_adapted_together(tmp_path: Path) -> None:
    """Phi-3 has qkv_proj and gate_up_proj, so that its adapters have them too."""
    FAMILIES["phi3"].make(tmp_path / "model")
    packed = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
    folder = make_adapter(
        tmp_path / "adapter", tmp_path / "model", packed, 1, target_modules=packed
    )
    runner = load(tmp_path / "model", max_adapters=1)
    adapter = read_adapter(folder, runner.adapters.targets)
    runner.adapters.add("all", adapter)
    merged = load(merge_adapter(folder, tmp_path / "model", tmp_path / "merged"), max_adapters=0)
    plain = load(tmp_path / "model", max_adapters=0)
    expected = [generate(model, [""])[0] for model in (merged, plain)]
    assert generate(runner, ["all", ""], 1) == expected
    assert expected[0] != expected[1]
    random_folder = make_random(tmp_path / "model", tmp_path / "random", seed=0)
    made = read_adapter(random_folder, runner.adapters.targets)
    assert len(made.factors) == 12
    unpacked = make_adapter(
        tmp_path / "other", tmp_path / "model", packed, 1, target_modules=["q_proj"]
    )
    message = refusal(tmp_path / "model", unpacked, "TargetUnsupported")
    assert message.endswith("it adapts down_proj, gate_up_proj, o_proj, qkv_proj")


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_file_that_changes_between_its_check_and_its_read_is_refused(
    qwen3_dir: Path, tmp_path: Path, is_replaced: bool
) -> None:
    """Its tensors may be elsewhere now: what lay at the old places would be read as factors."""
    folder = make_adapter(tmp_path / "old", qwen3_dir, TARGETS, 1)
    targets = load(qwen3_dir, max_adapters=1).adapters.targets
    checked = AdapterCheckpoint.check(AdapterFolder(folder), targets, max_rank=8)
    assert checked.read(torch.float32).rank == RANK
    weights = folder / "adapter_model.safetensors"
    other = make_adapter(tmp_path / "new", qwen3_dir, TARGETS, 2) / weights.name
    if is_replaced:
        other.rename(weights)
    else:
        weights.write_bytes(other.read_bytes())
    with pytest.raises(ModelError) as refused:
        checked.read(torch.float32)
    assert refused.value.reason == "WeightsChanged"


def refusal(model_dir: Path, folder: Path, reason: str) -> str:
    targets = load(model_dir, max_adapters=1).adapters.targets
    with pytest.raises(ModelError) as refused:
        read_adapter(folder, targets)
    assert refused.value.reason == reason
    return str(refused.value)
