"""GGUF reader that extends the gguf library's with bounds checks. Imported only for GGUF files."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, GGUFValueType, dequantize
from gguf.gguf_reader import ReaderField

# Upper bound of the memory for metadata and tensor headers, in bytes. Those of a vocabulary of 262,000 tokens
# with as many scores and 510,000 merges count 120 MiB, and 1,000 tensors 2 MiB.
MAX_HEADER_MEMORY_BYTES = 256 << 20
# Memory that the library and its callers need for parts of a header, in bytes.
FIELD_COST, TENSOR_COST = 1500, 2200  # with their arrays of numpy
ARRAY_COST, NUMBER_COST, STRING_COST = 400, 48, 96  # an array, and its elements
TEXT_COST = 4  # for each byte of a string

# The two types are kept as integers: each access to a member of the library's enum takes a microsecond.
ARRAY, STRING = int(GGUFValueType.ARRAY), int(GGUFValueType.STRING)


class HeaderTooLargeError(ValueError):
    """The metadata and tensor headers of a file need too much memory."""


class CheckedReader(GGUFReader):  # type: ignore[misc]
    """GGUF reader that raises ValueError for reads beyond the end of the file.

    The library would return fewer elements. Arrays are read here, because the library takes seconds and
    hundreds of MiB for those of a large vocabulary. It also raises HeaderTooLargeError, before the header
    has taken more than MAX_HEADER_MEMORY_BYTES.
    """

    def __init__(self, path: Path) -> None:
        self._memory_bytes = 0
        self._strings: dict[int, list[str]] = {}  # of arrays, by the position of the array's values
        super().__init__(path)

    def contents_of(self, field: ReaderField) -> Any:
        """The value of a field."""
        if field.types[0] == ARRAY and field.types[-1] == STRING:
            places = (int(field.parts[index][0]) for index in field.data)
            return [text for place in places for text in self._strings[place]]
        return field.contents()

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
        self._spend(ARRAY_COST)
        element, count = self._get(orig_offs, np.uint32), self._get(orig_offs + 4, np.uint64)
        dtype = self.gguf_scalar_to_np.get(element[0])
        if not count[0] or (dtype is None and element[0] != STRING):
            return super()._get_field_parts(orig_offs, raw_type)
        offset, types = orig_offs + 12, [GGUFValueType(ARRAY), GGUFValueType(element[0])]
        if dtype is not None:
            self._spend(NUMBER_COST * int(count[0]))
            numbers = self._get(offset, dtype, count[0])
            return 12 + numbers.nbytes, [element, count, numbers], [2], types
        self._strings[offset], size = self._read_strings(offset, int(count[0]))
        return 12 + size, [element, count, np.array([offset])], [2], types

    def _build_fields(self, offs: int, count: int) -> Any:
        self._spend(FIELD_COST * int(count))
        return super()._build_fields(offs, count)

    def _build_tensor_info(self, offs: int, count: int) -> Any:
        self._spend(TENSOR_COST * int(count))
        return super()._build_tensor_info(offs, count)

    def _read_strings(self, offset: int, count: int) -> tuple[list[str], int]:
        """Read `count` strings. Returns them, and their size in the file in bytes."""
        self._spend(STRING_COST * count)
        data, strings, end = memoryview(self.data), [], offset
        for _ in range(count):
            start = end + 8
            end = start + int.from_bytes(data[end:start], sys.byteorder)
            if end > len(data):
                raise ValueError("a string that ends behind the file")
            self._spend(TEXT_COST * (end - start))
            strings.append(str(data[start:end], "utf-8"))
        return strings, end - offset

    def _spend(self, num_bytes: int) -> None:
        """Count memory before it is used. Raises HeaderTooLargeError."""
        self._memory_bytes += num_bytes
        if self._memory_bytes > MAX_HEADER_MEMORY_BYTES:
            raise HeaderTooLargeError


def can_dequantize(kind: GGMLQuantizationType) -> bool:
    """Whether the library can dequantize a type. It has no list, so one block of zeros is tried."""
    if kind.name in ("F64", "F32", "F16"):
        return True
    try:
        dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except (NotImplementedError, LookupError):
        return False
    return True
