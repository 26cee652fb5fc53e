"""GGUF reader that extends the gguf library's with bounds checks. Imported only for GGUF files."""

from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, GGUFValueType, dequantize

# The two types are kept as integers: each access to a member of the library's enum takes a microsecond.
ARRAY, STRING = int(GGUFValueType.ARRAY), int(GGUFValueType.STRING)


class CheckedReader(GGUFReader):  # type: ignore[misc]
    """GGUF reader that raises ValueError for reads beyond the end of the file.

    The library would return fewer elements. Arrays are read here, because the library takes seconds
    for those of a large vocabulary.
    """

    def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
        """Read `count` numbers at an offset, in the byte order of this machine."""
        if not count:
            return np.empty(0, dtype)
        return np.frombuffer(self.data, dtype, int(count), offset)

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
        """Read a field. Returns its size in bytes, its parts, the indices of the parts that are values,
        and its types."""
        if raw_type != ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        element, count = self._get(orig_offs, np.uint32), self._get(orig_offs + 4, np.uint64)
        dtype = self.gguf_scalar_to_np.get(element[0])
        if not count[0] or (dtype is None and element[0] != STRING):
            return super()._get_field_parts(orig_offs, raw_type)
        offset, types = orig_offs + 12, [GGUFValueType(ARRAY), GGUFValueType(element[0])]
        if dtype is not None:
            numbers = self._get(offset, dtype, count[0])
            return 12 + numbers.nbytes, [element, count, numbers], [2], types
        size, parts = self._get_strings(offset, int(count[0]))
        return 12 + size, [element, count, *parts], [*range(3, 3 + len(parts), 2)], types

    def _get_strings(self, offset: int, count: int) -> tuple[int, list[np.ndarray]]:
        """Read `count` strings. Returns their size in bytes, and the length and bytes of each."""
        parts: list[np.ndarray] = []
        end = offset
        for _ in range(count):
            length = np.frombuffer(self.data, np.uint64, 1, end)
            num_bytes = int(length[0])
            parts.append(length)
            parts.append(self._get(end + 8, np.uint8, num_bytes))
            end += 8 + num_bytes
        return end - offset, parts


def can_dequantize(kind: GGMLQuantizationType) -> bool:
    """Whether the library can dequantize a type. It has no list, so one block of zeros is tried."""
    if kind.name in ("F64", "F32", "F16"):
        return True
    try:
        dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except (NotImplementedError, LookupError):
        return False
    return True
