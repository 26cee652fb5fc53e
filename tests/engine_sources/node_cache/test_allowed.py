"""The sources that the cache of a node fetches from, against URIs that try to get around them."""

import pytest

from penstock_engine.contract.model_source import parse_model_source
from penstock_engine.sources.node_cache.allowed import is_allowed, parse_allowed

COMMIT = "0" * 40
PIN = "#sha256=" + "a" * 64


@pytest.mark.parametrize(
    ("prefix", "uri"),
    [
        ("hf://", "hf://Qwen/Qwen3"),
        ("hf://Qwen", "hf://Qwen/Qwen3"),
        ("hf://Qwen/", f"hf://Qwen/Qwen3@{COMMIT}"),
        ("hf://Qwen/Qwen3", f"hf://Qwen/Qwen3@{COMMIT}/folder"),
        ("hf://Qwen/Qwen3/folder", f"hf://Qwen/Qwen3@{COMMIT}/folder/m.gguf"),
        ("s3://models", "s3://models"),
        ("s3://models/public/", f"s3://models/public/qwen{PIN}"),
        ("oci://registry.example.com:5000/models", "oci://registry.example.com:5000/models/a:v1"),
        ("oci://registry.example.com/models/a", f"oci://registry.example.com/models/a@sha256:{'b' * 64}"),
        ("https://Models.Example.com/public", f"https://models.EXAMPLE.com/public/m.gguf{PIN}"),
        ("https://[::1]:8443/public", f"https://[::1]:8443/public/m.gguf{PIN}"),
    ],
)  # fmt: skip
def test_a_source_below_a_prefix_is_allowed(prefix: str, uri: str) -> None:
    assert is_allowed(parse_model_source(uri), [parse_allowed("gs://other"), parse_allowed(prefix)])


@pytest.mark.parametrize(
    ("prefix", "uri"),
    [
        ("hf://Qwen", "hf://QwenEvil/Qwen3"),
        ("hf://Qwen", "hf://qwen/Qwen3"),
        ("hf://Qwen", "s3://qwen/qwen3"),
        ("hf://Qwen/Qwen3", "hf://Qwen/Qwen3-0.6B"),
        ("hf://Qwen/Qwen3/folder", "hf://Qwen/Qwen3/folder2"),
        ("hf://Qwen/Qwen3/folder", "hf://Qwen/Qwen3"),
        ("hf://Qwen/Qwen3/folder", "hf://Qwen/Qwen3@folder/other"),
        ("s3://models/public", "s3://models/publicity/m"),
        ("s3://models/public", "s3://models/%70ublic/m"),
        ("s3://models/public", "s3://models/Public/m"),
        ("s3://models", "s3://models-of-others/m"),
        ("s3://models", "gs://models/m"),
        ("oci://registry.example.com/models", "oci://registry.example.com:5000/models/a"),
        ("oci://registry.example.com/models", "oci://registry.example.com.evil.com/models/a"),
        ("https://models.example.com/public", f"https://models.example.com:8443/public/m.gguf{PIN}"),
        ("https://models.example.com/public", f"https://models.example.com/public%2Fm.gguf{PIN}"),
        ("https://models.example.com/public", f"https://models.example.com/public/%252e%252e/m.gguf{PIN}"),
        ("https://models.example.com/public", f"https://models.example.com/public/%252E%252E%252Fm.gguf{PIN}"),
        ("https://models.example.com/public", f"https://models.example.com/public/..%5Cm.gguf{PIN}"),
        ("https://models.example.com/public", f"https://models.example.com/public/%25252525252525252e/m{PIN}"),
        ("https://models.example.com/public", f"https://models.example.com./public/m.gguf{PIN}"),
    ],
)  # fmt: skip
def test_a_source_beside_a_prefix_is_not_allowed(prefix: str, uri: str) -> None:
    assert not is_allowed(parse_model_source(uri), [parse_allowed(prefix)])


@pytest.mark.parametrize(
    "uri",
    [
        "HF://Qwen/Qwen3",
        "hf://Qwen/../Evil/Qwen3",
        "hf://Qwen/%2e%2e/Qwen3",
        f"https://models.example.com/public/../m.gguf{PIN}",
        f"https://models.example.com/public/%2e%2e/m.gguf{PIN}",
        f"https://models.example.com/public/%2e%2e%2fm.gguf{PIN}",
        f"https://models.example.com@evil.com/public/m.gguf{PIN}",
        "https://models.example.com/public/m.gguf?x=/../",
        "s3://models/public/..\\m",
    ],
)
def test_a_source_that_is_none_is_refused_before(uri: str) -> None:
    with pytest.raises(ValueError, match="URI"):
        parse_model_source(uri)


@pytest.mark.parametrize(
    "text",
    [
        "", "Qwen", "file:///models", "pvc://claim", "ftp://host", "HF://Qwen", "hf://Qwen/Qwen3@main",
        "hf://Qwen/../Evil", "hf://Qwen//Qwen3", "hf:///Qwen", "hf://Qw%65n", "hf://Qwen*", "hf://Qwen Qwen",
        "oci://host/name:tag", f"https://host/m.gguf{PIN}", "https://host/m?x", "https://user@host/m",
        "hf://Qwén",
    ],
)  # fmt: skip
def test_what_is_no_prefix_is_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"has to (start with one of|be the beginning of a URI)"):
        parse_allowed(text)
