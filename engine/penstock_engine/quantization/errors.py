"""Errors of quantized checkpoints."""

from penstock_engine.core.errors import ModelError


def unsupported(message: str) -> ModelError:
    """The error of a format, or of a variant of it, that is not read."""
    return ModelError("UnsupportedQuantization", message)


def cannot_split_order() -> ModelError:
    """The error of splitting a matrix by inputs that are not in their own order."""
    return ModelError(
        "CannotSplit",
        "weights in the order of their activations cannot be split by inputs: set "
        "--tensor-parallel-size to 1, or take a checkpoint without desc_act",
    )
