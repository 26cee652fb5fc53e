"""Headers of GGUF files as bytes, which no library would write."""

import struct


def gguf_header(num_tensors: int, num_fields: int, rest: bytes) -> bytes:
    """The header of a file. rest: its fields and tensors."""
    return b"GGUF" + struct.pack("<IQQ", 3, num_tensors, num_fields) + rest


def gguf_array(kind: int, count: int, values: bytes) -> bytes:
    """The header of a file whose only field is an array. kind: type of its values."""
    return gguf_header(0, 1, struct.pack("<Q1sIIQ", 1, b"k", 9, kind, count) + values)
