"""Paths of models in an engine's container."""

import pytest

from penstock.core.runtimes.paths import mounted_path

DIGEST = "#sha256=" + "0" * 64


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("pvc://models/llama", "/models/llama"),
        ("file:///srv/llama", "/models"),
        ("hf://org/name@main", "/models"),
        ("hf://org/name@main/files/q4.gguf", "/models/q4.gguf"),
        ("hf://org/name@v1.gguf", "/models"),
        ("hf://org/model.gguf", "/models"),
        ("oci://host/model.gguf", "/models"),
        ("s3://bucket.gguf", "/models"),
        ("s3://bucket/a%20b.gguf", "/models/a%20b.gguf"),
        ("s3://bucket/$1.gguf" + DIGEST, "/models/$$1.gguf"),
        ("https://host/a%20b.gguf" + DIGEST, "/models/a b.gguf"),
        ("https://host/model.tar.gz" + DIGEST, "/models"),
    ],
)
def test_a_gguf_file_has_the_path_under_which_it_is_fetched(uri: str, path: str) -> None:
    assert mounted_path(uri, "/models") == path
