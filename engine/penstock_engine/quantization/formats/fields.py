"""Reads and checks settings of quantization_config, and tensor headers of a checkpoint."""

from collections.abc import Iterator, Mapping
from typing import Any

from penstock_engine.core.errors import ModelError
from penstock_engine.quantization.errors import unsupported
from penstock_engine.quantization.scheme import Header, Headers

FLOATS = ("F16", "BF16", "F32")
INDEX = ("I32", "I64")


def read_count(raw: Mapping[str, Any], key: str, default: int) -> int:
    """Read a positive integer. default: for an absent key or null. Raises ModelError."""
    value = raw.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise unsupported(f"{key} of quantization_config must be a whole number of at least 1")
    return value


def modules_with(headers: Headers, leaf: str) -> Iterator[str]:
    """Names of the modules that have a tensor named `leaf`."""
    for name in headers:
        module, _, last = name.rpartition(".")
        if last == leaf:
            yield module


def read_header(
    headers: Headers, name: str, dtypes: tuple[str, ...], num_dims: int | None = None
) -> Header:
    """The header of a tensor, which must have one of these dtypes. Raises ModelError.

    num_dims: required number of dimensions; None: any.
    """
    found = headers.get(name)
    if found is None:
        raise ModelError("BadWeights", f"the checkpoint has no tensor {name}")
    if found.dtype not in dtypes or num_dims not in (None, len(found.shape)):
        raise ModelError(
            "BadWeights",
            f"{name} is {found.dtype} {list(found.shape)}, which is not what config.json says",
        )
    return found


def check_shape(headers: Headers, name: str, *shapes: tuple[int, ...]) -> None:
    """Raise ModelError if a tensor has none of these shapes, with which it belongs to its weight."""
    if headers[name].shape not in shapes:
        raise ModelError(
            "BadWeights",
            f"{name} has shape {list(headers[name].shape)}, but its weight needs {list(shapes[0])}",
        )


def configured_group_size(raw: Mapping[str, Any]) -> int | None:
    """group_size in quantization_config; None if absent or -1 (all inputs). Raises ModelError."""
    return None if raw.get("group_size") in (None, -1) else read_count(raw, "group_size", 1)


def check_group_size(num_inputs: int, num_groups: int, configured: int | None = None) -> int:
    """Inputs per group. Raises ModelError if groups would have different sizes.

    configured: group size in quantization_config; None: not given.
    """
    if not 0 < num_groups <= num_inputs or num_inputs % num_groups:
        raise ModelError(
            "BadWeights", f"{num_inputs} inputs cannot be {num_groups} groups of one size"
        )
    size = num_inputs // num_groups
    if configured is not None and size != min(configured, num_inputs):
        raise ModelError(
            "BadWeights",
            f"{num_inputs} inputs with {num_groups} scales are not whole groups of {configured}: "
            f"take a checkpoint whose group_size divides the inputs of every product",
        )
    return size
