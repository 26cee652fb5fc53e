"""Counts the bytes and FLOPs of Triton kernels, launch by launch, under Triton's interpreter."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np


@dataclass(slots=True)
class Traffic:
    """Bytes that kernels asked of the memory, and the FLOPs of their matrix products.

    Masked elements are not counted. An element that is loaded twice counts twice, even if the second
    load would be served by a cache. Products count padding rows: 2 for each multiplication.
    """

    loaded_bytes: int = 0
    stored_bytes: int = 0
    product_flops: int = 0

    @property
    def total_bytes(self) -> int:
        return self.loaded_bytes + self.stored_bytes


@contextmanager
def counting_traffic() -> Iterator[Traffic]:
    """Count what the kernels launched within the context do; TRITON_INTERPRET=1 has to be set."""
    from triton.runtime.interpreter import InterpreterBuilder

    traffic = Traffic()
    load, store, dot = (
        InterpreterBuilder.create_masked_load,
        InterpreterBuilder.create_masked_store,
        InterpreterBuilder.create_dot,
    )

    def counted_load(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        loaded = load(self, pointers, mask, *rest)
        traffic.loaded_bytes += int(np.sum(mask.data)) * loaded.data.itemsize
        return loaded

    def counted_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        traffic.stored_bytes += int(np.sum(mask.data)) * value.data.itemsize
        return store(self, pointers, value, mask, *rest)

    def counted_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        rows, inner = a.data.shape
        traffic.product_flops += 2 * rows * inner * b.data.shape[1]
        return dot(self, a, b, *rest)

    with patch.multiple(
        InterpreterBuilder,
        create_masked_load=counted_load,
        create_masked_store=counted_store,
        create_dot=counted_dot,
    ):
        yield traffic
