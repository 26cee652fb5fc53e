"""Fixtures: a tiny model with adapters and sampling defaults, a mixture of experts, a span sink."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import transformers
from tests.engine_server import launched_engine
from tests.engine_server.adapters.test_adapters import make_adapter
from tests.support.span_sink import SpanSink, running_span_sink

model_dir = launched_engine.model_dir

TEMPLATE = (
    "LOUD {% if tone is defined %}{{ tone }}: {% endif %}"
    "{% for tool in tools or [] %}TOOL {% endfor %}"
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}PARTS "
    "{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}{% endfor %}"
)


@dataclass
class Places:
    """Folders that specs name, and the sink of traces."""

    model: Path
    experts: Path
    config_maps: dict[str, Path]
    span_sink: SpanSink


@pytest.fixture(scope="session")
def span_sink() -> Iterator[SpanSink]:
    with running_span_sink() as server:
        yield server


@pytest.fixture(scope="session")
def places(
    model_dir: Path, tmp_path_factory: pytest.TempPathFactory, span_sink: SpanSink
) -> Places:
    root = tmp_path_factory.mktemp("places")
    model = root / "soup"
    shutil.copytree(model_dir, model)
    _add_sampling_default(model)
    for seed, name in enumerate(("law", "poetry")):
        make_adapter(model / name, model_dir, seed)
    make_adapter(model / "wide", model_dir, 9, rank=32)
    config_map = root / "templates"
    config_map.mkdir()
    (config_map / "shout").write_text(TEMPLATE)
    (config_map / "broken").write_text("{% if %}")
    experts = root / "experts"
    _make_experts(experts, model_dir)
    return Places(model, experts, {"templates": config_map}, span_sink)


def _add_sampling_default(model: Path) -> None:
    path = model / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"temperature": 0}))


def _make_experts(folder: Path, model_dir: Path) -> None:
    """A random mixture of experts with the tokenizer of the tiny model."""
    vocab_size = json.loads((model_dir / "config.json").read_text())["vocab_size"]
    config = transformers.Qwen3MoeConfig(
        vocab_size=vocab_size, hidden_size=32, intermediate_size=64, moe_intermediate_size=16,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        num_experts=4, num_experts_per_tok=2, max_position_embeddings=512,
        bos_token_id=None, eos_token_id=0,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.Qwen3MoeForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(model_dir / name, folder / name)
