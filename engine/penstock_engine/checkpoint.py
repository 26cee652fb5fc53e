"""Checks a model's files by their headers. Imports no torch."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from penstock_engine import device
from penstock_engine.core.errors import ModelError
from penstock_engine.gguf_file.file import find_gguf, read_gguf
from penstock_engine.gguf_file.names import headers as gguf_headers
from penstock_engine.models.config import ModelConfig
from penstock_engine.quantization.rounding import Quantization
from penstock_engine.quantization.scheme import Header, cannot_split_order
from penstock_engine.tokenizer_files import check_tokenizer
from penstock_engine.weights import (
    checkpoint_files,
    parts_of,
    read_headers,
    renamed,
    shapes_and_bytes,
)


def check_model(
    model_dir: Path,
    quantization: Quantization | None = None,
    dtype: str = "float32",
    tokenizer_dir: Path | None = None,
) -> tuple[ModelConfig, dict[str, int]]:
    """Check a model. Returns its configuration, and the bytes of its tensors in memory, by name.

    The configuration's end tokens are those of the model's files and of the tokenizer.

    quantization: of weights while loading; None: as in the checkpoint. dtype: of the model.
    tokenizer_dir: directory or GGUF file of the tokenizer; None: model_dir. Raises ModelError if a file
    is missing, truncated, or belongs to another model.
    """
    model = ModelConfig.load(model_dir)
    gguf = find_gguf(model_dir)
    headers: dict[str, Header] = {}
    if gguf is not None:
        headers = gguf_headers(read_gguf(gguf))
    else:
        for path in safetensors_files(model_dir):
            headers |= read_headers(path)
    scheme = model.scheme(quantization, dtype)
    shapes, num_bytes = shapes_and_bytes(headers, scheme, device.DTYPE_BYTES[dtype])
    _check_shapes(shapes, model, "config.json" if gguf is None else gguf.name)
    try:
        ends = model.eos_token_ids | check_tokenizer(tokenizer_dir or model_dir, model.vocab_size)
    except ModelError as error:
        if tokenizer_dir in (None, model_dir):
            raise
        raise ModelError(error.reason, f"--tokenizer {tokenizer_dir}: {error}") from error
    # No token has an id outside of the vocabulary; some configurations say -1 for none.
    drawn = frozenset(end for end in ends if 0 <= end < model.vocab_size)
    return replace(model, eos_token_ids=drawn), num_bytes


def check_order(model_dir: Path, model: ModelConfig) -> None:
    """Raise ModelError if weights cannot be split by inputs: in the order of their activations."""
    if model.quantization is None:
        return
    headers: dict[str, Header] = {}
    for path in safetensors_files(model_dir):
        headers |= read_headers(path)
    if any(matrix.has_order for matrix in model.quantization.describe(headers).values()):
        raise cannot_split_order()


def safetensors_files(model_dir: Path) -> list[Path]:
    try:
        return checkpoint_files(model_dir)
    except ModelError as error:
        pickled = [*model_dir.glob("*.bin"), *model_dir.glob("*.pt"), *model_dir.glob("*.pth")]
        if error.reason != "NoSafetensors":
            raise
        found = "only pickled weights, which are never read" if pickled else "no weights"
        raise ModelError(
            "NoSafetensors",
            f"the folder has {found}: convert the model to safetensors and set spec.model.uri to "
            f"the result",
        ) from error


def _check_shapes(shapes: Mapping[str, tuple[int, ...]], model: ModelConfig, source: str) -> None:
    """Compares tensor shapes with the configuration: first and last layer, width, heads, vocabulary.

    source: name of the configuration's file. Raises ModelError.
    """
    names = model.family.names
    last = f"model.layers.{model.num_layers - 1}.self_attn"
    width, kv_width = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    vocabulary = (model.vocab_size, model.hidden_size)
    expected = {"model.embed_tokens.weight": vocabulary}
    if (whole := renamed(f"{last}.qkv_proj.weight", names)) in shapes:
        expected[whole] = (width + 2 * kv_width, model.hidden_size)
    else:
        for part, rows in zip(
            parts_of(f"{last}.qkv_proj.weight", names), (width, kv_width, kv_width), strict=True
        ):
            expected[part] = (rows, model.hidden_size)
    if not model.tie_word_embeddings:
        expected["lm_head.weight"] = vocabulary
    for name, shape in expected.items():
        if name not in shapes:
            raise ModelError("WeightsMismatch", f"{source} asks for {name}, which is not there")
        if shapes[name] != shape:
            raise ModelError(
                "WeightsMismatch",
                f"{source} says that {name} is {list(shape)}, but the weights say "
                f"{list(shapes[name])}",
            )
