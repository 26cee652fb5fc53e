"""Selects the files that a runtime reads: configuration, tokenizer, templates, and safetensors or one GGUF.

Pickled weights and code are never among them.
"""

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.file_names import check_distinct, check_name
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.listing import SourceFile

# Another number: a model that is in a cache is selected again, and what it lacks is fetched.
SELECTION_VERSION = 1

TEXTS = frozenset(
    {
        "config.json", "params.json", "generation_config.json", "adapter_config.json",
        "preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json",
        "quantize_config.json", "quant_config.json", "hf_quant_config.json",
        "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
        "vocab.json", "vocab.txt", "merges.txt", "tokenizer.model", "spiece.model", "tekken.json",
        "sentencepiece.bpe.model", "chat_template.jinja", "chat_template.json",
    }
)  # fmt: skip
TEXT_PATTERNS = ("*.tiktoken", "additional_chat_templates/*.jinja", "*.safetensors.index.json")
CONFIGURATIONS = ("config.json", "params.json", "adapter_config.json")
WEIGHTS = (".safetensors", ".gguf")
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
SINGLE_NAME, SINGLE_ADAPTER = "model.safetensors", "adapter_model.safetensors"
SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")
GGUF_PART = re.compile(r".*-\d{5}-of-\d{5}\.gguf")


def select(files: Sequence[SourceFile], limits: FetchLimits) -> tuple[SourceFile, ...]:
    """The files of a model or adapter that a runtime reads, by name. Raises FetchError.

    Reasons: EmptySource, TooManyFiles, UnsafeName, NameTooLong, NotAModel, PickleOnly, NoWeights,
    SeveralGgufFiles, SplitGguf, ModelTooLarge.
    """
    if not files:
        raise FetchError("EmptySource", "there are no files at this place: check the path")
    if len(files) > limits.max_files:
        raise FetchError(
            "TooManyFiles",
            f"there are more than {limits.max_files} files at this place: name the model's own folder",
        )
    for file in files:
        check_name(file.name, limits)
    check_distinct(file.name for file in files)
    by_name = {file.name: file for file in files}
    weights = _weights(by_name)
    texts = [name for name in by_name if _is_text(name)]
    is_gguf = weights[0].endswith(".gguf")
    if not is_gguf and not any(name in by_name for name in CONFIGURATIONS):
        raise FetchError(
            "NotAModel",
            "there is no config.json beside the weights: name the folder that has it",
        )
    chosen = tuple(by_name[name] for name in sorted({*weights, *texts}))
    total_bytes = sum(file.size_bytes for file in chosen)
    if total_bytes > limits.max_model_bytes:
        raise FetchError(
            "ModelTooLarge",
            f"the model has {total_bytes >> 30} GiB, more than the limit of {limits.max_model_bytes >> 30}",
        )
    return chosen


def is_candidate(path: str) -> bool:
    """Whether a file may be selected, wherever the model's folder is in its path."""
    name = path.rpartition("/")[2]
    return (
        name.endswith(WEIGHTS)
        or _is_text(name)
        or fnmatchcase(path, "*additional_chat_templates/*.jinja")
    )


def _is_text(name: str) -> bool:
    return name in TEXTS or any(_matches(name, pattern) for pattern in TEXT_PATTERNS)


def _matches(name: str, pattern: str) -> bool:
    """Whether a pattern matches a name, with * for one part of a path."""
    return name.count("/") == pattern.count("/") and fnmatchcase(name, pattern)


def _weights(names: Iterable[str]) -> list[str]:
    """Names of the files with weights. Raises FetchError."""
    top = sorted(name for name in names if "/" not in name)
    if found := _safetensors([name for name in top if name.endswith(".safetensors")]):
        return found
    return [_gguf(top)]


def _safetensors(found: list[str]) -> list[str]:
    """Names of the safetensors files that are read, of those in the folder.

    A single file is read instead of shards beside it. Copies in other formats, such as Mistral's
    consolidated ones, are left out.
    """
    for single in (SINGLE_NAME, SINGLE_ADAPTER):
        if single in found:
            return [single]
    return [name for name in found if SHARD.fullmatch(name)] or found


def _gguf(top: list[str]) -> str:
    """Name of the one GGUF file. Raises FetchError (PickleOnly, NoWeights, SeveralGgufFiles, SplitGguf)."""
    found = [name for name in top if name.endswith(".gguf")]
    if not found and any(name.endswith(PICKLES) for name in top):
        raise FetchError(
            "PickleOnly",
            "there are only pickled weights, which are never read: convert the model to safetensors",
        )
    if not found:
        raise FetchError(
            "NoWeights",
            "there are neither safetensors files nor a GGUF file: name the folder with the weights",
        )
    if any(GGUF_PART.fullmatch(name) for name in found):
        raise FetchError(
            "SplitGguf", "the GGUF file is in several parts: merge them with gguf-split --merge"
        )
    if len(found) > 1:
        raise FetchError(
            "SeveralGgufFiles",
            f"there are {len(found)} GGUF files, such as {found[0][:80]}: name one at the end of the URI",
        )
    return found[0]
