"""Which files of a source are fetched."""

import pytest

from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.listing import SourceFile
from penstock_engine.sources.selection import select

CONFIG = "config.json"


def files(*names: str, size_bytes: int = 1) -> list[SourceFile]:
    return [SourceFile(name, size_bytes, f"sha256/{name}", None, name) for name in names]


def selected(*names: str) -> list[str]:
    return [file.name for file in select(files(*names), FetchLimits())]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (
            [CONFIG, "model.safetensors", "pytorch_model.bin", "modeling.py", "README.md", ".gitattributes"],
            [CONFIG, "model.safetensors"],
        ),
        (
            [
                CONFIG, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                "model.safetensors.index.json", "consolidated.safetensors", "original/params.json",
            ],
            [
                CONFIG, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                "model.safetensors.index.json",
            ],
        ),
        (
            [CONFIG, "model.safetensors", "model-00001-of-00001.safetensors"],
            [CONFIG, "model.safetensors"],
        ),
        (["params.json", "consolidated.safetensors"], ["consolidated.safetensors", "params.json"]),
        (
            ["adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"],
            ["adapter_config.json", "adapter_model.safetensors"],
        ),
        (["Q4.gguf", "README.md"], ["Q4.gguf"]),
        ([CONFIG, "model.safetensors", "Q4.gguf"], [CONFIG, "model.safetensors"]),
        (
            [
                CONFIG, "model.safetensors", "additional_chat_templates/rag.jinja", "qwen.tiktoken",
                "chat_template.jinja", "additional_chat_templates/deep/x.jinja",
            ],
            [
                "additional_chat_templates/rag.jinja", "chat_template.jinja", CONFIG, "model.safetensors",
                "qwen.tiktoken",
            ],
        ),
    ],
)  # fmt: skip
def test_what_a_runtime_reads_is_selected(names: list[str], expected: list[str]) -> None:
    assert selected(*names) == expected


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ([], "EmptySource"),
        (["README.md"], "NoWeights"),
        ([CONFIG, "pytorch_model.bin"], "PickleOnly"),
        (["model.safetensors"], "NotAModel"),
        (["Q4.gguf", "Q8.gguf"], "SeveralGgufFiles"),
        (["Q4-00001-of-00002.gguf", "Q4-00002-of-00002.gguf"], "SplitGguf"),
        ([CONFIG, "model.safetensors", "../escape.txt"], "UnsafeName"),
        ([CONFIG, "model.safetensors", "/etc/passwd"], "UnsafeName"),
        ([CONFIG, "model.safetensors", "a\\b"], "UnsafeName"),
        ([CONFIG, "model.safetensors", "a\nb"], "UnsafeName"),
        ([CONFIG, "model.safetensors", "x", "x/y"], "UnsafeName"),
        ([CONFIG, CONFIG, "model.safetensors"], "UnsafeName"),
        ([CONFIG, "model.safetensors", "a" * 256], "NameTooLong"),
        ([CONFIG, "model.safetensors", "/".join(["abcd"] * 250)], "NameTooLong"),
    ],
)
def test_what_is_no_model_is_refused(names: list[str], reason: str) -> None:
    with pytest.raises(FetchError) as refused:
        selected(*names)
    assert refused.value.reason == reason
    assert not refused.value.is_retryable


def test_number_and_size_are_limited() -> None:
    many = files(CONFIG, "model.safetensors", *(f"extra-{n}" for n in range(9)))
    with pytest.raises(FetchError, match="TooManyFiles"):
        select(many, FetchLimits(max_files=10))
    large = files(CONFIG, "model.safetensors", size_bytes=600)
    with pytest.raises(FetchError, match="ModelTooLarge"):
        select(large, FetchLimits(max_model_bytes=1000))
