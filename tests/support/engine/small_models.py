"""Makes small models of every kind that an engine serves, with one tokenizer, for campaigns over specs."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from tests.support.engine.families import FAMILIES
from tests.support.engine.gguf_files import write_gguf
from tests.support.engine.quantized_weights import FORMATS, quantize
from tests.support.engine.tiny_model import make_tiny_model

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
# Models by name, and the family and sizes of those with random weights.
RANDOM: dict[str, tuple[str, dict[str, Any]]] = {
    "untied": ("llama", {}),
    "window": ("mistral", {}),
    "moe": ("mixtral", {}),
    "draft": ("qwen2", {"num_hidden_layers": 1}),
}
QUANTIZED = {"gptq": "gptq-4-desc-act", "fp8": "fp8-block-ragged"}
# Models that can be served by themselves. `bare` has no chat template, `head` is a draft head.
SERVED = ("plain", *RANDOM, *QUANTIZED, "gguf", "bare")
# Chat templates by the key of their ConfigMap.
TEMPLATES = {
    "chat.jinja": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
    "broken.jinja": "{% for m in messages %}{{ m.role }",
}


def make_models(folder: Path) -> None:
    """Make all models, each in a folder of its name, and the chat templates in `templates`."""
    plain = folder / "plain"
    make_tiny_model(plain)
    vocab_size = json.loads((plain / "config.json").read_text())["vocab_size"]
    for name, (family, sizes) in RANDOM.items():
        shape = FAMILIES[family]
        with torch.random.fork_rng():
            torch.manual_seed(0)
            config = {**shape.config, "vocab_size": vocab_size} | sizes
            replace(shape, config=config).make(folder / name)
        _copy(plain, folder / name, TOKENIZER_FILES)
    for name, form in QUANTIZED.items():
        quantize(plain, FORMATS[form], folder / name, folder / "written")
        _copy(plain, folder / name, TOKENIZER_FILES)
    shutil.rmtree(folder / "written")
    (folder / "gguf").mkdir()
    write_gguf(plain, folder / "gguf/plain-F16.gguf", "F16")
    shutil.copytree(plain, folder / "bare")
    _remove_template(folder / "bare")
    _make_head(plain, folder / "head")
    (folder / "templates").mkdir()
    for key, text in TEMPLATES.items():
        (folder / "templates" / key).write_text(text)


def _copy(source: Path, target: Path, names: tuple[str, ...]) -> None:
    for name in names:
        if (source / name).exists():
            shutil.copy(source / name, target)


def _remove_template(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    settings.pop("chat_template", None)
    path.write_text(json.dumps(settings))


def _make_head(target: Path, folder: Path) -> None:
    """Make a draft head of a model, with random weights: its drafts are mostly rejected."""
    own = json.loads((target / "config.json").read_text())
    hidden_size = own["hidden_size"]
    config = transformers.LlamaConfig(
        vocab_size=own["vocab_size"], hidden_size=hidden_size, intermediate_size=64,
        num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=own["max_position_embeddings"], architectures=["LlamaForCausalLM"],
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    weights = {
        name.removeprefix("model."): value.contiguous()
        for name, value in model.state_dict().items()
        if ".layers." in name and "input_layernorm" not in name
    }
    weights["fc.weight"] = torch.randn(hidden_size, 2 * hidden_size) * 0.02
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
