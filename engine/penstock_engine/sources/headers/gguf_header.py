"""Finds out whether the beginning of a GGUF file has all of its metadata and tensor infos."""

import struct

# Bytes of a value of each type, but for strings and arrays.
VALUE_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9
VERSIONS = (2, 3)
MAX_DEPTH = 4  # of arrays in arrays, of which no file has more than one


def has_whole_header(data: bytes | bytearray) -> bool:
    """Whether data from the beginning of a GGUF file reach behind its last tensor info.

    True also for what is no GGUF file: more of it would not help.
    """
    try:
        _Cursor(data).skip_header()
    except EOFError:
        return False
    except ValueError:
        return True
    return True


class _Cursor:
    """A place in the data. Methods raise EOFError at their end, ValueError for what no GGUF file has."""

    def __init__(self, data: bytes | bytearray) -> None:
        self._data, self._position = data, 0

    def skip_header(self) -> None:
        if self._data[:4] != b"GGUF"[: len(self._data)]:
            raise ValueError("another magic number")
        self._skip(4)
        if self._number("<I", 4) not in VERSIONS:
            raise ValueError("another version, or byte order")
        num_tensors, num_fields = self._number("<Q", 8), self._number("<Q", 8)
        for _ in range(num_fields):
            self._skip(self._number("<Q", 8))
            self._skip_value(self._number("<I", 4), 0)
        for _ in range(num_tensors):
            self._skip(self._number("<Q", 8))
            num_dimensions = self._number("<I", 4)
            self._skip(8 * num_dimensions + 4 + 8)  # sizes, type, offset

    def _skip_value(self, kind: int, depth: int) -> None:
        if kind == STRING:
            self._skip(self._number("<Q", 8))
        elif kind == ARRAY and depth < MAX_DEPTH:
            element, count = self._number("<I", 4), self._number("<Q", 8)
            if element in VALUE_BYTES:
                self._skip(count * VALUE_BYTES[element])
                return
            for _ in range(count):
                self._skip_value(element, depth + 1)
        elif kind in VALUE_BYTES:
            self._skip(VALUE_BYTES[kind])
        else:
            raise ValueError("a value of another type")

    def _number(self, form: str, num_bytes: int) -> int:
        start = self._position
        self._skip(num_bytes)
        number: int = struct.unpack_from(form, self._data, start)[0]
        return number

    def _skip(self, num_bytes: int) -> None:
        self._position += num_bytes
        if self._position > len(self._data):
            raise EOFError
