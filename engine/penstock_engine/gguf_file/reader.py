"""The gguf library's reader with bounds checks. Imported only for GGUF files."""

from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, dequantize


class CheckedReader(GGUFReader):  # type: ignore[misc]
    """Raises ValueError for reads beyond the end of the file, where the library returns less."""

    def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
        """count numbers at offset, in the byte order of this machine."""
        if not count:
            return np.empty(0, dtype)
        return np.frombuffer(self.data, dtype, int(count), offset)


def can_dequantise(kind: GGMLQuantizationType) -> bool:
    """Whether the library can dequantise a type. It has no list, so one block of zeros is tried."""
    if kind.name in ("F64", "F32", "F16"):
        return True
    try:
        dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except (NotImplementedError, LookupError):
        return False
    return True
