"""JSON that would need too much memory is refused before it is parsed."""

import json
import tracemalloc

import pytest

from penstock_engine.files.json_reader import (
    MAX_PARSED_BYTES,
    JsonTooLargeError,
    parse_json,
    parsed_bytes,
)

MIB = 1 << 20


def repeated(value: str, num_bytes: int = MIB) -> str:
    """A list of one value, again and again."""
    return f"[{','.join([value] * (num_bytes // (len(value) + 1)))}]"


def header_of(num_tensors: int) -> str:
    """The header of a file with tensors of experts, as the safetensors library writes it."""
    entries = {
        f"model.layers.{i % 80}.mlp.experts.{i}.gate_up_proj.weight_scale_inv": {
            "dtype": "BF16",
            "shape": [1, 1],
            "data_offsets": [2 * i, 2 * i + 2],
        }
        for i in range(num_tensors)
    }
    return json.dumps(entries, separators=(",", ":"))


HOSTILE = {
    "empty lists": repeated("[]"),
    "nested lists": repeated("[" * 400 + "]" * 400),
    "pairs of lists": repeated("[[]]"),
    "empty objects": repeated("{}"),
    "small objects": repeated('{"":0}'),
    "nested objects": repeated('{"":' * 400 + "0" + "}" * 400),
    "short strings": repeated('"ab"'),
    "wide strings": repeated('"€"'),
    "escaped strings": f'["{"a" * MIB}\\ud83d\\ude00"]',
    "one wide character": repeated("[[]]")[:-1] + ',"\U0001f600"]',
    "numbers": repeated("999"),
    "floats": repeated("1e1"),
    "keys": json.dumps({f"{i:x}": 300 for i in range(90_000)}, separators=(",", ":")),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("is_text", [True, False], ids=["str", "bytes"])
def test_no_text_needs_more_memory_than_is_counted(text: str, is_text: bool) -> None:
    given = text if is_text else text.encode()
    tracemalloc.start()
    try:
        value = parse_json(given)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert value
    assert peak_bytes < parsed_bytes(given)


def test_large_headers_of_real_models_are_parsed() -> None:
    assert parsed_bytes(header_of(1000)) * 100 < MAX_PARSED_BYTES
    assert len(parse_json(header_of(1000))) == 1000


def test_a_text_that_needs_too_much_memory_is_refused() -> None:
    with pytest.raises(JsonTooLargeError, match=r"needs up to 1\d\d\d MiB of memory to be read"):
        parse_json(repeated("[" * 400 + "]" * 400, 20 * MIB))
