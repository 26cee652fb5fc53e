"""Checkpoints of AutoAWQ, GPTQModel and compressed-tensors (benchmarks/engine/packed_checkpoints.py)."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from penstock_engine.checkpoints.weights import (
    SINGLE_NAME,
    Checkpoint,
    checkpoint_files,
    read_headers,
)
from penstock_engine.core.errors import ModelError
from penstock_engine.quantization.formats.fields import check_group_size
from penstock_engine.quantization.formats.float8 import dense_matrix
from penstock_engine.quantization.formats.parse import parse_format
from penstock_engine.quantization.linear_weight import make_linear_weight
from penstock_engine.quantization.matrix import QuantizedMatrix
from penstock_engine.quantization.scheme import Scheme
from penstock_engine.quantization.weight import QuantizedWeight

CHECKPOINTS = {path.stem: path for path in Path(__file__).with_name("checkpoints").iterdir()}


def scheme_of(name: str, **changes: Any) -> Scheme:
    with safe_open(CHECKPOINTS[name], framework="pt") as file:
        config = json.loads(file.metadata()["quantization_config"])
    scheme = parse_format({"quantization_config": config | changes})
    assert scheme is not None
    return scheme


def read(scheme: Scheme, model_dir: Path) -> QuantizedMatrix:
    """Read a matrix as an engine does, after checking the headers."""
    [file] = checkpoint_files(model_dir)
    scheme.describe(read_headers(file))
    with Checkpoint(model_dir) as checkpoint:
        matrix = scheme.read(checkpoint, "layer")
    assert matrix is not None
    return matrix


def read_changed(
    name: str, model_dir: Path, changes: Mapping[str, torch.Tensor], **config: Any
) -> QuantizedMatrix:
    save_file(load_file(CHECKPOINTS[name]) | changes, model_dir / SINGLE_NAME)
    return read(scheme_of(name, **config), model_dir)


UNEVEN = "gptq-4-asymmetric-ragged"


@pytest.mark.parametrize("name", sorted(CHECKPOINTS.keys() - {UNEVEN}))
def test_weights_are_those_that_the_library_unpacks(name: str, tmp_path: Path) -> None:
    shutil.copy(CHECKPOINTS[name], tmp_path / SINGLE_NAME)
    scheme = scheme_of(name)
    matrix = read(scheme, tmp_path)
    expected = load_file(CHECKPOINTS[name])["expected"]
    assert torch.equal(matrix.dequantized().to(expected.dtype), expected)

    weight = make_linear_weight([matrix], torch.float32, "cpu")
    assert isinstance(weight, QuantizedWeight)
    product = weight(torch.eye(expected.shape[1])).T
    torch.testing.assert_close(product, matrix.dequantized(), rtol=1e-6, atol=1e-6)
    stored = scheme.describe(read_headers(tmp_path / SINGLE_NAME))["layer"]
    assert stored.num_outputs == expected.shape[0]
    if name.endswith("channel-ragged"):  # only groups say how full the last word of a row is
        assert stored.num_inputs == 40
        return
    assert stored.num_inputs == expected.shape[1]
    assert stored.memory_bytes(4) == weight.memory_bytes()


@pytest.mark.parametrize("has_g_idx", [True, False])
def test_a_shorter_last_group_is_refused(has_g_idx: bool, tmp_path: Path) -> None:
    """48 inputs in groups of 32: two groups of 24 have the same shapes."""
    tensors = load_file(CHECKPOINTS[UNEVEN])
    if not has_g_idx:
        del tensors["layer.g_idx"]
    save_file(tensors, tmp_path / SINGLE_NAME)
    with pytest.raises(ModelError, match="not whole groups of 32: take a checkpoint"):
        read(scheme_of(UNEVEN), tmp_path)


@pytest.mark.parametrize("name", ["autoawq-4", "gptq-4-asymmetric", "gptq-8-symmetric"])
@pytest.mark.parametrize(("group_size", "is_right"), [(16, True), (None, True), (8, False)])
def test_scales_must_be_as_many_as_group_size_says(
    name: str, group_size: int | None, is_right: bool, tmp_path: Path
) -> None:
    expected = load_file(CHECKPOINTS[name])["expected"]
    if is_right:
        matrix = read_changed(name, tmp_path, {}, group_size=group_size)
        assert torch.equal(matrix.dequantized().half(), expected)
        return
    with pytest.raises(ModelError, match="not whole groups of 8"):
        read_changed(name, tmp_path, {}, group_size=group_size)


def test_one_scale_for_all_inputs_needs_no_group_size() -> None:
    assert check_group_size(96, 1, None) == 96
    assert check_group_size(96, 1, 128) == 96
    for num_groups, configured in ((0, None), (5, None), (2, 64), (3, 128)):
        with pytest.raises(ModelError, match="96 inputs"):
            check_group_size(96, num_groups, configured)


@pytest.mark.parametrize(
    ("name", "leaf", "tensor", "message"),
    [
        # Each is as the format's other version, or another format, would store it.
        ("compressed-old-pack-4-asymmetric", "weight_zero_point",
         torch.zeros(16, 2, dtype=torch.int32), r"shape \[16, 2\], but its weight needs \[2, 2\]"),
        ("compressed-new-pack-4-asymmetric", "weight_zero_point",
         torch.zeros(2, 2, dtype=torch.int8), r"shape \[2, 2\], but its weight needs \[16, 2\]"),
        ("compressed-new-pack-4-asymmetric", "weight_zero_point",
         torch.zeros(2, 2, dtype=torch.int64), "not what config"),
        ("compressed-new-pack-4-asymmetric", "weight_shape",
         torch.tensor([16, 40]), "40 numbers of 4 bits need 5 words"),
        ("compressed-new-pack-4-asymmetric", "weight_shape", torch.tensor([16]), "weight_shape"),
        ("compressed-old-pack-4-symmetric-order", "weight_g_idx",
         torch.zeros(40, dtype=torch.int32), "g_idx is of 40 inputs"),
        ("gptq-4-asymmetric", "qzeros", torch.zeros(2, 4, dtype=torch.int32),
         r"shape \[2, 4\], but its weight needs \[2, 2\]"),
        ("autoawq-4", "qzeros", torch.zeros(2, 8, dtype=torch.int32),
         r"shape \[2, 8\], but its weight needs \[2, 4\]"),
    ],
)  # fmt: skip
def test_tensors_of_other_shapes_are_refused(
    name: str, leaf: str, tensor: torch.Tensor, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=message):
        read_changed(name, tmp_path, {f"layer.{leaf}": tensor})


def test_rows_of_blocks_must_cover_the_outputs() -> None:
    weight = torch.zeros(32, 32, dtype=torch.float8_e4m3fn)
    for num_rows in (1, 3):
        with pytest.raises(ModelError, match=f"{num_rows} rows of scales"):
            dense_matrix(weight, torch.ones(num_rows, 2), (16, 16))


@pytest.mark.parametrize(
    ("name", "leaf"),
    [
        ("gptq-4-asymmetric-order", "g_idx"),
        ("gptq-v2-8-asymmetric-order", "g_idx"),
        ("compressed-old-pack-4-symmetric-order", "weight_g_idx"),
        ("compressed-old-pack-4-asymmetric", "weight_zero_point"),
        ("compressed-new-pack-8-asymmetric", "weight_zero_point"),
        ("compressed-new-int-8-asymmetric-channel", "weight_zero_point"),
    ],
)
def test_what_the_settings_promise_must_be_there(name: str, leaf: str, tmp_path: Path) -> None:
    """A checkpoint without its activation order or zero points is refused, not read as other numbers."""
    tensors = load_file(CHECKPOINTS[name])
    del tensors[f"layer.{leaf}"]
    save_file(tensors, tmp_path / SINGLE_NAME)
    with pytest.raises(ModelError, match=f"no tensor layer.{leaf}"):
        read(scheme_of(name), tmp_path)


@pytest.mark.parametrize(
    ("name", "leaf", "tensor", "message"),
    [
        ("compressed-new-pack-4-symmetric", "weight_scale",
         torch.ones(16, 1, dtype=torch.float16), "not whole groups of 16"),
        ("compressed-new-pack-4-symmetric", "weight_scale",
         torch.ones(16, 4, dtype=torch.float16), "not whole groups of 16"),
        ("compressed-new-int-8-symmetric-channel", "weight_scale",
         torch.ones(1, 16, dtype=torch.float16), r"but its weight needs \[16, 16\]"),
        ("compressed-new-int-8-asymmetric-channel", "weight_zero_point",
         torch.ones(0, 1, dtype=torch.int8), r"but its weight needs \[16, 1\]"),
        ("gptq-4-asymmetric", "qzeros", torch.ones(0, 2, dtype=torch.int32),
         r"but its weight needs \[2, 2\]"),
        ("autoawq-4", "qweight", torch.ones(0, 4, dtype=torch.int32), "0 inputs cannot be"),
    ],
)  # fmt: skip
def test_scales_and_zero_points_of_other_weights_are_refused(
    name: str, leaf: str, tensor: torch.Tensor, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=message):
        read_changed(name, tmp_path, {f"layer.{leaf}": tensor})
