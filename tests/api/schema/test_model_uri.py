"""The API server's rules of a model's location accept nothing that the engine cannot read."""

from typing import Annotated

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from penstock.api.schema.model_uri import model_uri
from penstock_engine.contract.model_source import MOUNTED, PATTERNS, parse_model_source

URI: TypeAdapter[str] = TypeAdapter(Annotated[str, model_uri("spec.model.uri")])
DIGEST = "0123456789abcdef" * 4

STARTS = st.sampled_from([f"{scheme}://" for scheme in PATTERNS if scheme not in MOUNTED])
# Characters that divide a URI, parts whose length is bounded, and escapes that the engine decodes.
PARTS = st.sampled_from(
    [
        "a", "B", "0", ".", "..", "%2e", "%2E", "%2f", "/", "//", "@", "#", "?", ":", "-", "_", " ", "\\",
        "é", "٣", "\u2028", "\n", "\x7f", "=", "[", "]", "%", "%00", "%5c", "x" * 64, "org/name", "bucket",
        "host.local/a", f"#sha256={DIGEST}", f"@sha256:{DIGEST}", "@refs/pr/1",
    ]
)  # fmt: skip
URIS = st.tuples(STARTS, st.lists(PARTS, min_size=1, max_size=7).map("".join)).map("".join)


def is_accepted(uri: str) -> bool:
    try:
        URI.validate_python(uri)
    except ValidationError:
        return False
    return True


@settings(max_examples=2000)
@given(URIS)
@example("hf://org/name/%2e%2e/other")
@example("s3://bucket/.")
@example(f"gs://bucket/a%2F..#sha256={DIGEST}")
@example(f"https://a/#sha256={DIGEST}")
@example("oci://a..b/name")
def test_the_engine_reads_each_location_that_is_accepted(uri: str) -> None:
    if is_accepted(uri):
        parse_model_source(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "hf://org/name@refs/pr/7/sub/x.gguf",
        "hf://org/name@a%2Fb/%20x",
        "s3://bucket/..a/b..",
        f"s3://bucket/a/#sha256={DIGEST}",
        "gs://bucket",
        "oci://registry.local:5000/models/llama:v1",
        f"https://files.local./m.tar.gz#sha256={DIGEST}",
        "https://[::1]:8443/m.gguf",
        "pvc://models/./llama",
    ],
)
def test_locations_of_all_kinds_are_accepted(uri: str) -> None:
    assert is_accepted(uri)
