"""Opens checkpoints: safetensors files, with an index if there are several, or a GGUF file.

Files are mapped into memory, and never unpickled. torch is imported only when tensors are read, so that
a preflight can check files without it.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from penstock_engine.checkpoints.gguf.checkpoint import GgufCheckpoint
from penstock_engine.checkpoints.gguf.file import find_gguf
from penstock_engine.core.errors import ModelError
from penstock_engine.files.json_reader import JsonTooLargeError, parse_json, read_json_object
from penstock_engine.quantization.scheme import Header, Headers, Scheme, Tensors

if TYPE_CHECKING:
    import torch


# Largest header that the safetensors library accepts.
MAX_HEADER_BYTES = 100_000_000

# Projections with the same input, which are packed into one in the model, but not in most checkpoints.
PACKED: Mapping[str, tuple[str, ...]] = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}

# Products whose inputs are split over ranks, and whose partial sums are added up; others split their outputs.
ROW_PARALLEL = ("o_proj", "down_proj")

# Projections that are quantized while loading; they have most of the parameters. Embedding, norms, head
# and routers are not quantized: they are small, or lose more accuracy.
PRODUCTS = (
    "o_proj", "up_proj", "down_proj", *PACKED, *(part for parts in PACKED.values() for part in parts)
)  # fmt: skip

# Sizes of safetensors dtypes. Only floating-point tensors can be used as weights without a scheme.
FLOAT_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
ITEM_BYTES = FLOAT_BYTES | {
    "F8_E4M3": 1, "F8_E5M2": 1, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1,
}  # fmt: skip

# Modules whose rows are looked up: embeddings. They are dequantized when they are loaded.
LOOKED_UP = frozenset({"embed_tokens"})

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"


class Checkpoint:
    """The tensors of a model's safetensors files, by name; a context manager that holds them open.

    Tensors are views of the mapped files: they use memory only once they are read, and processes that
    map the same file share its pages.
    """

    def __init__(self, model_dir: Path) -> None:
        self._stack = ExitStack()
        self._file_of: dict[str, Any] = {}
        for path in checkpoint_files(model_dir):
            try:
                file = self._stack.enter_context(safe_open(path, framework="pt", device="cpu"))
            except (OSError, SafetensorError) as error:
                self._stack.close()
                raise ModelError("BadWeights", f"{path.name} is damaged or incomplete") from error
            self._file_of |= dict.fromkeys(file.keys(), file)

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __contains__(self, name: object) -> bool:
        return name in self._file_of

    def get(self, name: str) -> torch.Tensor:
        if name not in self._file_of:
            raise ModelError("BadWeights", f"the checkpoint has no tensor {name}")
        tensor: torch.Tensor = self._file_of[name].get_tensor(name)
        return tensor


@contextmanager
def open_checkpoints(model_dir: Path) -> Iterator[tuple[Tensors, Tensors]]:
    """Context manager that opens a model's weights twice. Raises ModelError.

    Yields (lasting, passing): the first stays mapped while a view of its tensors exists, the second
    until everything is loaded. For a GGUF file both are the same object, because each of its tensors
    has its own mapping.
    """
    if (path := find_gguf(model_dir)) is not None:
        checkpoint = GgufCheckpoint(path)
        yield checkpoint, checkpoint
        return
    with Checkpoint(model_dir) as lasting, Checkpoint(model_dir) as passing:
        yield lasting, passing


def weight_files(model_dir: Path) -> list[Path]:
    """All files that hold a model's weights. Raises ModelError if one is missing."""
    path = find_gguf(model_dir)
    return checkpoint_files(model_dir) if path is None else [path]


def checkpoint_files(model_dir: Path) -> list[Path]:
    """The safetensors files of a model. Raises ModelError when any of them is missing."""
    index_path = model_dir / INDEX_NAME
    # transformers reads the single file too, and ignores an index beside it.
    if (model_dir / SINGLE_NAME).is_file():
        return [model_dir / SINGLE_NAME]
    if index_path.is_file():
        try:
            names = sorted(set(read_json_object(index_path)["weight_map"].values()))
        except JsonTooLargeError as error:
            raise ModelError("BadWeights", str(error)) from error
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ModelError("BadWeights", f"{INDEX_NAME} cannot be read") from error
    elif any(model_dir.glob("model-*-of-*.safetensors")):
        raise ModelError("BadWeights", f"the folder has parts of a model, but no {INDEX_NAME}")
    else:
        raise ModelError("NoSafetensors", f"there is neither {SINGLE_NAME} nor {INDEX_NAME}")
    for name in names:
        # A name in the index is a file beside it, never a path to somewhere else.
        is_name = isinstance(name, str) and Path(name).name == name
        if not is_name or not (model_dir / name).is_file():
            raise ModelError(
                "BadWeights", f"{INDEX_NAME} names a file that is not there: {str(name)[:128]!r}"
            )
    return [model_dir / name for name in names]


def read_headers(path: Path) -> dict[str, Header]:
    """Headers of a safetensors file's tensors, by name.

    Raises ModelError if the file is damaged or its size does not match the headers, OSError if it cannot
    be read.
    """
    try:
        num_file_bytes = path.stat().st_size
        with path.open("rb") as file:
            num_header_bytes = int.from_bytes(file.read(8), "little")
            if num_header_bytes > MAX_HEADER_BYTES:
                raise ModelError("BadWeights", f"{path.name} is not a safetensors file")
            entries = parse_json(file.read(num_header_bytes))
        headers, end = _read_entries(entries)
    except JsonTooLargeError as error:
        raise ModelError("BadWeights", f"the header of {path.name} {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError("BadWeights", f"{path.name} is not a safetensors file") from error
    if num_file_bytes != 8 + num_header_bytes + end:
        raise ModelError(
            "BadWeights",
            f"{path.name} has {num_file_bytes} bytes, but its header says "
            f"{8 + num_header_bytes + end}",
        )
    return headers


def _read_entries(entries: Mapping[str, Any]) -> tuple[dict[str, Header], int]:
    """Parse headers, and find the end of the last tensor in bytes. Raises ModelError."""
    headers: dict[str, Header] = {}
    end = 0
    for name, entry in entries.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in ITEM_BYTES:
            raise ModelError("BadWeights", f"tensor {name} has {entry['dtype']} numbers")
        start, stop = entry["data_offsets"]
        if not all(type(size) is int and size >= 0 for size in (start, stop, *entry["shape"])):
            raise ModelError("BadWeights", f"tensor {name} has a shape or a place that is no size")
        if stop - start != math.prod(entry["shape"]) * ITEM_BYTES[entry["dtype"]]:
            raise ModelError("BadWeights", f"tensor {name} is not as long as its shape says")
        headers[name] = Header(entry["dtype"], tuple(entry["shape"]))
        end = max(end, stop)
    return headers, end


def shapes_and_bytes(
    headers: Headers, scheme: Scheme | None, item_bytes: int, dense: Container[str] = LOOKED_UP
) -> tuple[dict[str, tuple[int, ...]], dict[str, int]]:
    """Shapes of the weights and their bytes in memory after loading, by name.

    Tensors that are neither floating-point nor read by the scheme are left out. item_bytes: size of the
    model's dtype. dense: last parts of the names of modules that are dequantized. Raises ModelError for a
    tensor that the scheme cannot read.
    """
    stored = {} if scheme is None else scheme.describe(headers)
    shapes: dict[str, tuple[int, ...]]
    shapes = {f"{m}.weight": (s.num_outputs, s.num_inputs) for m, s in stored.items()}
    num_bytes = {
        f"{m}.weight": s.num_outputs * s.num_inputs * item_bytes
        if m.rpartition(".")[2] in dense
        else s.memory_bytes(item_bytes)
        for m, s in stored.items()
    }
    for name, header in headers.items():
        module, _, leaf = name.rpartition(".")
        if (module in stored and leaf != "bias") or header.dtype not in FLOAT_BYTES:
            continue
        shapes[name] = header.shape
        num_bytes[name] = math.prod(header.shape) * item_bytes
    return shapes, num_bytes


def parts_of(name: str, names: Mapping[str, str]) -> list[str]:
    """Names of the checkpoint's tensors whose concatenated rows are a parameter of the model."""
    for packed, parts in PACKED.items():
        if f".{packed}." in name:
            return [renamed(name.replace(packed, part), names) for part in parts]
    return [renamed(name, names)]


def renamed(name: str, names: Mapping[str, str]) -> str:
    return ".".join(names.get(part, part) for part in name.split("."))
