"""Checks a model's files by their headers. Imports no torch."""

from dataclasses import replace
from pathlib import Path

from penstock_engine.checkpoints.gguf.file import find_gguf, read_gguf
from penstock_engine.checkpoints.gguf.names import headers as gguf_headers
from penstock_engine.checkpoints.weights import checkpoint_files, read_headers, shapes_and_bytes
from penstock_engine.core.errors import ModelError
from penstock_engine.memory.number_types import DTYPE_BYTES
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.parameters import Shapes, checkpoint_tensors, model_parameters
from penstock_engine.quantization.errors import cannot_split_order
from penstock_engine.quantization.rounding import Quantization
from penstock_engine.quantization.scheme import Header, Scheme
from penstock_engine.text.tokenizer_files import check_tokenizer

# Bounds on the tensors of all of a model's files together, and on their names, in bytes. A check holds them
# in memory, with 0.6 KB for each tensor. The largest models have 200,000 tensors, and 14 MiB of names.
MAX_TENSORS, MAX_NAMES_BYTES = 500_000, 64 << 20


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
    is missing, truncated, or belongs to another model, and OSError if it cannot be read.
    """
    model = ModelConfig.load(model_dir)
    scheme = model.scheme(quantization, dtype)
    num_bytes = check_tensors(model_dir, model, model_parameters(model), scheme, dtype)
    try:
        ends = model.eos_token_ids | check_tokenizer(tokenizer_dir or model_dir, model.vocab_size)
    except ModelError as error:
        if tokenizer_dir in (None, model_dir):
            raise
        raise ModelError(error.reason, f"--tokenizer {tokenizer_dir}: {error}") from error
    # No token has an id outside of the vocabulary; some configurations say -1 for none.
    known = frozenset(end for end in ends if 0 <= end < model.vocab_size)
    return replace(model, eos_token_ids=known), num_bytes


def check_tensors(
    model_dir: Path, model: ModelConfig, parameters: Shapes, scheme: Scheme | None, dtype: str
) -> dict[str, int]:
    """Compare a checkpoint's headers with parameters of a model.

    Returns the bytes in memory of the tensors that are loaded, by name; others are left in the file.
    Raises ModelError for a tensor that is missing, of another shape, or of numbers that are not read.
    """
    gguf = find_gguf(model_dir)
    headers = read_all_headers(model_dir)
    shapes, num_bytes = shapes_and_bytes(headers, scheme, DTYPE_BYTES[dtype], model.dense_modules)
    source = "config.json" if gguf is None else gguf.name
    loaded = {}
    for name, shape in checkpoint_tensors(model, parameters, shapes):
        if name in headers and name not in shapes:
            raise ModelError(
                "BadWeights",
                f"tensor {name} has {headers[name].dtype} numbers, and config.json does not say how "
                f"they are quantized",
            )
        if name not in shapes:
            raise ModelError("WeightsMismatch", f"{source} asks for {name}, which is not there")
        if shapes[name] != shape:
            raise ModelError(
                "WeightsMismatch",
                f"{source} says that {name} is {list(shape)}, but the weights say "
                f"{list(shapes[name])}",
            )
        loaded[name] = num_bytes[name]
    return loaded


def read_all_headers(model_dir: Path) -> dict[str, Header]:
    """Headers of all tensors of a model, by their names in a safetensors checkpoint. Raises ModelError."""
    if (gguf := find_gguf(model_dir)) is not None:
        return gguf_headers(read_gguf(gguf))
    headers: dict[str, Header] = {}
    num_name_bytes = 0
    for path in safetensors_files(model_dir):
        found = read_headers(path)
        headers |= found
        num_name_bytes += sum(map(len, found))
        if len(headers) > MAX_TENSORS or num_name_bytes > MAX_NAMES_BYTES:
            raise ModelError(
                "BadWeights",
                f"the files have more than {MAX_TENSORS} tensors, or names of more than "
                f"{MAX_NAMES_BYTES >> 20} MiB: they are damaged, or not of a language model",
            )
    return headers


def check_order(model_dir: Path, model: ModelConfig) -> None:
    """Raise ModelError if weights cannot be split by inputs: in the order of their activations."""
    if model.quantization is None:
        return
    matrices = model.quantization.describe(read_all_headers(model_dir))
    if any(matrix.has_order for matrix in matrices.values()):
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
            f"the folder has {found}",
            {"Safetensors": None},
        ) from error
