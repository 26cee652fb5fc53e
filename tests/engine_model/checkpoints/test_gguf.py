"""GGUF files that the gguf library wrote, against transformers on the dequantized weights."""

import json
import struct
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, GGUFWriter, dequantize
from safetensors.torch import load_file, save_file
from tests.support.engine.families import FAMILIES as ALL_FAMILIES
from tests.support.engine.families import LLAMA3, Family
from tests.support.engine.gguf_files import write_gguf
from tests.support.engine.gguf_headers import gguf_array, gguf_header

from penstock_engine.checkpoints.gguf.checkpoint import GgufCheckpoint
from penstock_engine.checkpoints.gguf.file import read_gguf
from penstock_engine.checkpoints.gguf.reader import CheckedReader
from penstock_engine.checkpoints.loading import load_weights
from penstock_engine.checkpoints.weights import open_checkpoints
from penstock_engine.core.errors import ModelError
from penstock_engine.memory.model_files import check_model
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.decoder import DecoderForCausalLM
from penstock_engine.models.shard import Layout

FAMILIES = {
    "llama": Family("Llama", {"head_dim": 32, "rope_parameters": LLAMA3}),
    "qwen2": Family("Qwen2", {}),
    "qwen3": Family("Qwen3", {"head_dim": 32, "tie_word_embeddings": True}),
    **{name: ALL_FAMILIES[name] for name in ("gemma", "gemma2", "gemma3")},
}
KINDS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make(tmp_path / "made", "llama")


def make(directory: Path, family: str) -> Path:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        FAMILIES[family].make(directory)
    return directory


def write_model(folder: Path, kind: str) -> tuple[Path, Path]:
    """(GGUF file, folder of the same weights after dequantization)"""
    path = folder.parent / f"model-{kind}.gguf"
    save_file(
        write_gguf(folder, path, kind), folder / "model.safetensors", metadata={"format": "pt"}
    )
    return path, folder


@pytest.mark.parametrize(
    ("family", "kind"),
    [*((family, "Q8_0") for family in FAMILIES), *(("llama", kind) for kind in KINDS)],
)
def test_greedy_tokens_equal_transformers(
    greedy_equality: ModuleType, tmp_path: Path, family: str, kind: str
) -> None:
    path, folder = write_model(make(tmp_path / "made", family), kind)
    prompts = greedy_equality.make_prompts(6, 90, 1)
    reference = FAMILIES[family].load(folder, "float32")
    expected = [greedy_equality.reference(reference, prompt, 12).tokens for prompt in prompts]
    outputs, _ = greedy_equality.generate(path, prompts, 12, greedy_equality.SETTINGS[-1])
    assert outputs == expected


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_the_dequantized_numbers(folder: Path, kind: str) -> None:
    path, folder = write_model(folder, kind)
    expected = load_file(folder / "model.safetensors")
    with open_checkpoints(path) as (checkpoint, _):
        for name, weight in expected.items():
            torch.testing.assert_close(checkpoint.get(name).float(), weight, rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K", "IQ4_XS"])
def test_types_that_the_library_only_reads(tmp_path: Path, kind: str) -> None:
    """Blocks of random bytes: what each means is the library's to say."""
    quantized = GGMLQuantizationType[kind]
    block_size, num_bytes = GGML_QUANT_SIZES[quantized]
    stored = np.random.default_rng(0).integers(0, 60, (6, num_bytes), np.uint8)
    writer = GGUFWriter(tmp_path / "made.gguf", "qwen3")
    writer.add_tensor("token_embd.weight", stored, raw_dtype=quantized)
    save(writer)
    read = GgufCheckpoint(tmp_path / "made.gguf").get("model.embed_tokens.weight")
    assert read.shape == (6, block_size)
    assert np.array_equal(read.numpy(), dequantize(stored, quantized))


def save(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("options", [{"quantization": "int8"}, {"layout": Layout(2)}])
def test_the_engine_does_with_it_what_it_does_with_safetensors(
    greedy_equality: ModuleType, folder: Path, options: dict[str, object]
) -> None:
    path, folder = write_model(folder, "Q4_1")
    prompts = greedy_equality.make_prompts(4, 60, 1)
    setting = greedy_equality.SETTINGS[-1]
    outputs = [
        greedy_equality.generate(place, prompts, 8, setting, **options)[0]
        for place in (folder, path)
    ]
    assert outputs[0] == outputs[1]


def test_parameters_keep_no_more_in_memory_than_themselves(folder: Path) -> None:
    path, _ = write_model(folder, "Q4_0")
    config = ModelConfig.load(path)
    model = DecoderForCausalLM(config, max_positions=8, dtype=torch.float32, device="cpu")
    load_weights(model, path, config.family.names, torch.float32, "cpu")
    for name, parameter in model.named_parameters():
        assert parameter.untyped_storage().nbytes() == parameter.nbytes, name


def test_a_folder_with_one_gguf_file_is_that_file(folder: Path, tmp_path: Path) -> None:
    path, _ = write_model(folder, "Q8_0")
    assert ModelConfig.load(tmp_path) == ModelConfig.load(path)
    path.with_name("other.gguf").write_bytes(path.read_bytes())
    with pytest.raises(ModelError, match=r"2 GGUF files \(model-Q8_0\.gguf, other\.gguf\)"):
        ModelConfig.load(tmp_path)
    assert ModelConfig.load(folder).architecture == "LlamaForCausalLM"


@pytest.mark.parametrize("kept", [0, 3, 4, 20, 200, 0.5, -1])
def test_a_file_that_is_cut_is_refused(folder: Path, kept: float) -> None:
    path, _ = write_model(folder, "Q8_0")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept) if kept == 0.5 else int(kept)])
    with pytest.raises(ModelError, match="is not a complete GGUF file"):
        check_model(path)


def test_damaged_metadata_are_refused_whatever_is_damaged(folder: Path) -> None:
    """Each byte of the header in turn is changed: a clear error, or a file that can be read."""
    path, _ = write_model(folder, "Q8_0")
    content = bytearray(path.read_bytes())
    for place in range(0, 1500, 3):
        damaged = content.copy()
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        with suppress(ModelError):
            check_model(path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("general.architecture", "rwkv6", "GGUF architecture rwkv6 is not supported"),
        ("llama.expert_count", 8, "llama.expert_count 8 is not supported"),
        ("llama.rope.dimension_count", 16, "rope.dimension_count 16 is not supported, only 32"),
        ("llama.rope.scaling.type", "su", "rope.scaling.type su is not supported"),
        ("llama.attention.head_count", "four", "num_attention_heads must be a whole number"),
        ("split.count", 3, "is one of 3 parts: merge them into one file"),
    ],
)
def test_what_cannot_be_served_is_refused(
    tmp_path: Path, key: str, value: object, message: str
) -> None:
    metadata = {
        "general.architecture": "llama", "llama.block_count": 1, "llama.context_length": 64,
        "llama.embedding_length": 128, "llama.feed_forward_length": 64,
        "llama.attention.head_count": 4,
    } | {key: value}  # fmt: skip
    writer = GGUFWriter(tmp_path / "made.gguf", str(metadata.pop("general.architecture")))
    for name, given in metadata.items():
        if isinstance(given, str):
            writer.add_string(name, given)
        else:
            writer.add_uint32(name, int(str(given)))
    writer.add_tensor("token_embd.weight", np.zeros((8, 128), np.float32))
    save(writer)
    with pytest.raises(ModelError, match=message):
        ModelConfig.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("blk.0.attn_sinks.weight", "F32", "blk.0.attn_sinks.weight is not supported"),
        ("blk.0.attn_q.bias", "F32", "blk.0.attn_q.bias is not supported"),
        ("blk.0.attn_q.weight", "I32", "type I32, which cannot be dequantized"),
    ],
)
def test_tensors_that_are_unknown_are_refused(
    tmp_path: Path, name: str, kind: str, message: str
) -> None:
    writer = GGUFWriter(tmp_path / "made.gguf", "llama")
    writer.add_tensor(name, np.zeros((8, 32), np.int32 if kind == "I32" else np.float32))
    save(writer)
    with pytest.raises(ModelError, match=message):
        GgufCheckpoint(tmp_path / "made.gguf")


def test_config_json_of_the_folder_is_what_the_metadata_say(folder: Path) -> None:
    path, _ = write_model(folder, "F32")
    read, given = ModelConfig.load(path), ModelConfig.load(folder)
    raw = json.loads((folder / "config.json").read_text())
    assert read.max_model_len == raw["max_position_embeddings"]
    for name in ("hidden_size", "layers", "tie_word_embeddings"):
        assert getattr(read, name) == getattr(given, name)


def test_arrays_of_numbers_are_read_at_once(tmp_path: Path) -> None:
    """Values, offsets and types equal those of the library, which reads numbers one by one."""
    path = tmp_path / "arrays.gguf"
    writer = GGUFWriter(path, "llama")
    arrays = {
        "scores": [0.5, -1.0, 2.0], "types": [1, 3, 1], "slides": [True, False], "words": ["a", "bc"],
        "last": [7],
    }  # fmt: skip
    for name, values in arrays.items():
        writer.add_array(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    reader = CheckedReader(path)
    ours, theirs = reader.fields, GGUFReader(path).fields
    assert {name: reader.contents_of(ours[name]) for name in arrays} == arrays
    assert [field.offset for field in ours.values()] == [field.offset for field in theirs.values()]
    assert [field.types for field in ours.values()] == [field.types for field in theirs.values()]
    assert len(ours["scores"].parts) == len(ours["last"].parts)


def test_a_file_of_another_kind_is_refused(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json is neither a folder nor a \.gguf file"):
        ModelConfig.load(folder / "config.json")


# Headers of some MiB, of which the reader would make hundreds.
HOSTILE_HEADERS = {
    "numbers": gguf_array(1, 6 << 20, b"\x80" * (6 << 20)),
    "arrays": gguf_array(9, 700_000, struct.pack("<IQ", 4, 0) * 700_000),
    "fields": gguf_header(
        0, 200_000, b"".join(struct.pack("<Q6sIB", 6, b"%06d" % i, 0, 7) for i in range(200_000))
    ),
    "tensors": gguf_header(
        150_000, 0,
        b"".join(struct.pack("<Q6sIQIQ", 6, b"%06d" % i, 1, 8, 0, 0) for i in range(150_000)) + bytes(64),
    ),
    "strings": gguf_array(8, 3_000_000, bytes(8) * 3_000_000),
    "wide strings": gguf_array(8, 1, struct.pack("<Q", 80 << 20) + b"a" * (80 << 20)),
}  # fmt: skip


@pytest.mark.parametrize("content", HOSTILE_HEADERS.values(), ids=HOSTILE_HEADERS)
def test_a_header_that_needs_too_much_memory_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "made.gguf").write_bytes(content)
    with pytest.raises(ModelError, match=r"made\.gguf needs more than 256 MiB of memory") as caught:
        read_gguf(tmp_path / "made.gguf")
    assert caught.value.reason == "BadWeights"


def test_arrays_within_arrays_are_read_in_a_row(tmp_path: Path) -> None:
    words = [struct.pack("<IQQ1s", 8, 1, 1, word) for word in (b"a", b"b")]
    (tmp_path / "made.gguf").write_bytes(gguf_array(9, 2, b"".join(words)))
    assert read_gguf(tmp_path / "made.gguf").metadata["k"] == ["a", "b"]
