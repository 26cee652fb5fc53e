"""Reads LoRA adapters in PEFT's format: adapter_config.json and adapter_model.safetensors.

An adapter is checked against the model before its tensors are read, so that a wrong one costs no
memory.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

import torch

from penstock_engine.core.errors import ModelError
from penstock_engine.lora.adapter_config import (
    EMBEDDINGS,
    AdapterConfig,
    embeddings_changed,
    is_named,
    parse_adapter_config,
    target_unsupported,
)
from penstock_engine.lora.adapter_files import (
    WEIGHTS_NAME,
    AdapterFolder,
    FileState,
    file_state,
)
from penstock_engine.lora.base_model import BaseModel
from penstock_engine.lora.safetensors_file import DTYPES, StoredTensor, read_header, read_tensor

# base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight
TENSOR = re.compile(r"\Abase_model\.model\.(?P<target>[\w.]+)\.lora_(?P<side>[AB])\.weight\Z")
EMBEDDING_TENSOR = re.compile(rf"\.({'|'.join(EMBEDDINGS)})\.|\.lora_embedding_[AB]\b")
# Bounds on the header of adapter_model.safetensors: two tensors for each projection.
HEADER_BYTES_PER_TARGET, MIN_HEADER_BYTES = 1024, 1 << 20
ANY_MODEL = BaseModel()


@dataclass(frozen=True, slots=True)
class Factors:
    """LoRA factors of one projection, to which they add (x @ a.T) @ b.T.

    a: [rank, inputs]; b: [outputs, rank].
    """

    a: torch.Tensor
    b: torch.Tensor


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter.

    rank: the largest of its projections. factors: by the projection's name in the model's checkpoint; b is
    already scaled.
    """

    rank: int
    factors: Mapping[str, Factors]

    @property
    def num_bytes(self) -> int:
        pairs = self.factors.values()
        return sum(f.a.nbytes + f.b.nbytes for f in pairs)


@dataclass(frozen=True, slots=True)
class AdapterCheckpoint:
    """An adapter on disk whose settings and header fit the model.

    pairs: tensors of A and B by projection. state: of the file that has them.
    """

    folder: AdapterFolder
    config: AdapterConfig
    pairs: Mapping[str, tuple[StoredTensor, StoredTensor]]
    state: FileState

    @classmethod
    def check(
        cls,
        folder: AdapterFolder,
        targets: Mapping[str, tuple[int, int]],
        *,
        max_rank: int,
        base: BaseModel = ANY_MODEL,
    ) -> "AdapterCheckpoint":
        """Check an adapter by its settings and header.

        targets: (outputs, inputs) of each projection of the model that can be adapted, by name. Raises
        ModelError, whose reason is a word for programs, and whose message says what to change.
        """
        folder.check_exists()
        raw = folder.read_config()
        config = parse_adapter_config(raw, targets, max_rank)
        base.check(raw, folder)
        max_header_bytes = max(MIN_HEADER_BYTES, len(targets) * HEADER_BYTES_PER_TARGET)
        with _open_weights(folder) as file:
            state = file_state(file)
            tensors = read_header(file, max_header_bytes)
        pairs = _pairs(tensors)
        _check_targets(pairs, targets, config)
        for target, (a, b) in pairs.items():
            outputs, inputs = targets[target]
            rank = config.rank_of(target)
            _check_tensor(target, "A", a, (rank, inputs))
            _check_tensor(target, "B", b, (outputs, rank))
        return cls(folder, config, pairs, state)

    def read(self, dtype: torch.dtype) -> Adapter:
        """Read the tensors into host memory. dtype: of the factors there.

        Raises ModelError if the file has changed since the check, or has values that are not finite.
        """
        factors: dict[str, Factors] = {}
        with _open_weights(self.folder) as file:
            for target, (a, b) in self.pairs.items():
                scaled = read_tensor(file, b).to(torch.float32) * self.config.scale_of(target)
                pair = Factors(read_tensor(file, a).to(dtype), scaled.to(dtype))
                if not (pair.a.isfinite().all() and pair.b.isfinite().all()):
                    raise ModelError(
                        "ValuesNotFinite",
                        f"the factors of {target} have values that are NaN or infinite in "
                        f"{str(dtype).removeprefix('torch.')}",
                    )
                factors[target] = pair
            if file_state(file) != self.state:
                raise ModelError("WeightsChanged", f"{WEIGHTS_NAME} was changed during the load")
        return Adapter(max(map(self.config.rank_of, factors)), factors)


def _open_weights(folder: AdapterFolder) -> BinaryIO:
    try:
        return folder.open(WEIGHTS_NAME)
    except FileNotFoundError as error:
        raise ModelError("WeightsMissing", f"{WEIGHTS_NAME} is not there") from error


def _pairs(tensors: Mapping[str, StoredTensor]) -> dict[str, tuple[StoredTensor, StoredTensor]]:
    """Tensors (of A, of B) by target. Raises ModelError if a tensor has no counterpart."""
    sides: dict[str, dict[str, StoredTensor]] = {}
    for name, tensor in tensors.items():
        match = TENSOR.match(name)
        if match is None or match["target"].rpartition(".")[2] in EMBEDDINGS:
            if EMBEDDING_TENSOR.search(name):
                raise embeddings_changed(f"there is a tensor {name[:128]}")
            raise ModelError("TensorUnknown", f"tensor {name[:128]} is no factor of a LoRA product")
        sides.setdefault(match["target"], {})[match["side"]] = tensor
    for target, pair in sides.items():
        if pair.keys() != {"A", "B"}:
            raise ModelError("FactorMissing", f"{target[:128]} has only one of its two factors")
    if not sides:
        raise ModelError("NoTensors", f"{WEIGHTS_NAME} adapts nothing")
    return {target: (pair["A"], pair["B"]) for target, pair in sides.items()}


def _check_targets(
    found: Mapping[str, object], targets: Mapping[str, object], config: AdapterConfig
) -> None:
    """Raise ModelError for projections that cannot be adapted, and for those that should be and are not."""
    for target in found:
        if target not in targets:
            raise target_unsupported(f"the adapter changes {target[:128]}", targets)
    if config.is_partial:
        return
    for target in targets:
        if target not in found and any(is_named(target, module) for module in config.modules):
            raise ModelError(
                "TargetMissing",
                f"target_modules names {target}, but {WEIGHTS_NAME} has no factors for it",
            )


def _check_tensor(target: str, side: str, tensor: StoredTensor, shape: tuple[int, int]) -> None:
    if tensor.shape != shape:
        raise ModelError(
            "ShapeMismatch",
            f"factor {side} of {target} has shape {list(tensor.shape)[:8]}, but this model needs "
            f"{list(shape)}: was the adapter made for another model?",
        )
    if tensor.dtype not in DTYPES:
        raise ModelError(
            "DtypeUnsupported",
            f"factor {side} of {target} has {tensor.dtype[:16]} numbers; {', '.join(DTYPES)} are read",
        )
