"""Tests of engines that load a GGUF file: equal answers, tokenizer, preflight, conversion."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from gguf import GGUFWriter
from tests.support.engine.gguf_files import write_gguf

from penstock_engine.checkpoints.gguf import tokenizer as gguf_tokenizer
from penstock_engine.checkpoints.gguf.file import read_gguf
from penstock_engine.checkpoints.gguf.pre_tokenizer import PRE_TOKENIZERS
from penstock_engine.core.errors import ModelError
from penstock_engine.text.tokens import ChatTemplateError, Tokenizer

COMMAND = Path(sys.executable).with_name("penstock-engine")
TEXT = "One queue, 1234 requests: naïve 日本語 <|im_start|>user\n  two  spaces"
CHAT = {
    "model": "soup", "messages": [{"role": "user", "content": "Which queue?"}],
    "temperature": 0, "max_tokens": 12,
}  # fmt: skip


@pytest.fixture(scope="session")
def gguf_path(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "soup-F32.gguf"
    write_gguf(model_dir, path, "F32")
    return path


def test_an_engine_answers_like_the_folder_the_file_was_made_from(
    client: httpx.Client, launch: Callable[..., Any], gguf_path: Path
) -> None:
    from_file, _ = launch("--max-model-len", "2048", "--max-num-seqs", "8", model=gguf_path)
    answers = [c.post("/v1/chat/completions", json=CHAT).json() for c in (client, from_file)]
    assert answers[0]["choices"] == answers[1]["choices"]
    counts = [answer["usage"]["total_tokens"] for answer in answers]
    assert counts[0] == counts[1]


def test_a_converted_folder_answers_like_the_file(
    launch: Callable[..., Any], gguf_path: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "converted"
    subprocess.run([COMMAND, "convert", gguf_path, folder], check=True)
    flags = ("--max-model-len", "2048", "--max-num-seqs", "8", "--dtype", "bfloat16")
    answers = [
        launch(*flags, model=model)[0].post("/v1/chat/completions", json=CHAT).json()
        for model in (gguf_path, folder)
    ]
    assert answers[0]["choices"] == answers[1]["choices"]
    assert {path.name for path in folder.iterdir()} >= {"config.json", "tokenizer.json"}


def test_a_conversion_does_not_overwrite_files(gguf_path: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    done = subprocess.run(
        [COMMAND, "convert", gguf_path, tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == f"BadTarget: {tmp_path} is not an empty folder: give a new one\n"


def test_the_tokenizer_equals_that_of_the_folder(model_dir: Path, gguf_path: Path) -> None:
    own, theirs = Tokenizer(gguf_path), Tokenizer(model_dir)
    ids = theirs.encode(TEXT)
    assert own.encode(TEXT) == ids
    assert own.decode(ids) == theirs.decode(ids)
    prompt = own.render_chat(CHAT["messages"])
    assert prompt == theirs.render_chat(CHAT["messages"])
    special = {"add_special_tokens": False}
    assert own.encode(prompt, **special) == theirs.encode(prompt, **special)
    assert own.special_tokens == theirs.special_tokens


def test_preflight_accepts_the_file_without_torch(gguf_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; "
        "from penstock_engine.options.config import EngineConfig; "
        "from penstock_engine.memory.preflight import preflight; "
        f"verdict = preflight(EngineConfig(model_dir=Path({str(gguf_path)!r}))); "
        "assert not {'torch', 'transformers'} & set(sys.modules); "
        "import json; print(json.dumps(verdict))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    verdict = json.loads(done.stdout)
    assert verdict["ok"]
    assert verdict["architecture"] == "Qwen3ForCausalLM"


def test_a_damaged_file_is_a_one_line_error(gguf_path: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(gguf_path.read_bytes()[:-100])
    done = subprocess.run([COMMAND, "serve", cut], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"BadWeights: cut.gguf is not a complete GGUF file ({cut})\n"


def with_tokenizer(
    path: Path, *, pre: str = "gpt-2", template: str = "", bos: bool = False
) -> Path:
    """Writes a file with the tokens a to c and digits. bos: whether token 3 begins every text."""
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(["a", "b", "c", "<s>", "1", "2", "12"])
    writer.add_token_types([1, 1, 1, 3, 1, 1, 1])
    writer.add_token_merges(["1 2"])
    writer.add_bos_token_id(3)
    writer.add_add_bos_token(bos)
    writer.add_chat_template(template)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


# The merges alone split hello into hel and lo.
WORDS = ["<s>", "h", "e", "l", "o", "he", "hel", "lo", "hello"]
MERGES = ["h e", "he l", "l o"]


def with_words(path: Path, kind: str, **metadata: str | int | bool) -> Path:
    """Writes a file whose tokens are WORDS. kind: tokenizer.ggml.model. metadata: of tokenizer.ggml."""
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model(kind)
    writer.add_token_list(WORDS)
    writer.add_token_types([3, *[1] * (len(WORDS) - 1)])
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(0)
    for key, value in metadata.items():
        add = {str: writer.add_string, int: writer.add_uint32, bool: writer.add_bool}[type(value)]
        add(f"tokenizer.ggml.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"pre": "llama-bpe"}, ["<s>", "hello"]),
        ({"pre": "llama3"}, ["<s>", "hello"]),
        ({"pre": "falcon3"}, ["<s>", "hello"]),
        ({"pre": "tekken"}, ["<s>", "hello"]),
        ({"pre": "llama-bpe", "add_bos_token": False}, ["hello"]),
        ({"pre": "qwen2"}, ["hel", "lo"]),
        ({"pre": "gpt-4o"}, ["hel", "lo"]),
        ({"pre": "smollm", "add_bos_token": True}, ["<s>", "hel", "lo"]),
    ],
)
def test_a_pre_tokenizer_has_the_defaults_of_llama_cpp(
    tmp_path: Path, metadata: dict[str, Any], expected: list[str]
) -> None:
    tokenizer = Tokenizer(with_words(tmp_path / "made.gguf", "gpt2", **metadata))
    assert tokenizer.words(tokenizer.encode("hello")) == expected


def test_every_known_pre_tokenizer_builds_a_tokenizer(tmp_path: Path) -> None:
    for pre in PRE_TOKENIZERS:
        tokenizer = Tokenizer(with_words(tmp_path / f"{pre}.gguf", "gpt2", pre=pre))
        assert tokenizer.decode(tokenizer.encode("hello")) == "hello"


@pytest.mark.parametrize(
    ("metadata", "text", "expected"),
    [
        ({}, "Hello", ["<s>", "\u2581Hello"]),
        ({"add_space_prefix": True}, "Hello", ["<s>", "\u2581Hello"]),
        ({"add_space_prefix": False}, "Hello", ["<s>", "Hello"]),
        ({"add_space_prefix": False}, " Hello", ["<s>", "\u2581Hello"]),
        ({"add_bos_token": False}, "Hello", ["\u2581Hello"]),
    ],
)
def test_a_sentencepiece_vocabulary_is_prefixed_as_the_file_says(
    tmp_path: Path, metadata: dict[str, bool], text: str, expected: list[str]
) -> None:
    writer = GGUFWriter(tmp_path / "made.gguf", "llama")
    writer.add_tokenizer_model("llama")
    pieces = ["\u2581", *"Helo", "He", "Hel", "Hell", "Hello", "\u2581Hello"]
    writer.add_token_list(["<unk>", "<s>", "</s>", *pieces])
    writer.add_token_scores([0.0, 0.0, 0.0, *(-float(index) for index in range(len(pieces)))])
    writer.add_token_types([2, 3, 3, *[1] * len(pieces)])
    for key, value in metadata.items():
        writer.add_bool(f"tokenizer.ggml.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tokenizer = Tokenizer(tmp_path / "made.gguf")
    ids = tokenizer.encode(text)
    assert tokenizer.words(ids) == expected
    has_lost_space = metadata.get("add_space_prefix", True)
    assert tokenizer.decode(ids) == (text.lstrip() if has_lost_space else text)


@pytest.mark.parametrize(("bos", "expected"), [(True, [3, 0, 1]), (False, [0, 1])])
def test_add_bos_token_decides_how_a_text_begins(
    tmp_path: Path, *, bos: bool, expected: list[int]
) -> None:
    tokenizer = Tokenizer(with_tokenizer(tmp_path / "made.gguf", bos=bos))
    assert tokenizer.encode("ab") == expected
    assert tokenizer.encode("ab", add_special_tokens=False) == [0, 1]
    assert tokenizer.encode("a<s>", add_special_tokens=False) == [0, 3]


def test_the_tokenizer_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copying a large tokenizer would add a second to the startup."""
    path = with_tokenizer(tmp_path / "made.gguf")
    convert = gguf_tokenizer.convert_gguf_tokenizer
    converted: list[Any] = []

    def recorded(*args: Any) -> Any:
        converted.append(convert(*args))
        return converted[-1]

    monkeypatch.setattr(gguf_tokenizer, "convert_gguf_tokenizer", recorded)
    tokenizer = gguf_tokenizer.load_tokenizer(read_gguf(path))
    ((backend, _),) = converted
    assert tokenizer.backend_tokenizer is backend


@pytest.mark.parametrize(("pre", "expected"), [("gpt-2", [6]), ("smollm", [4, 5])])
def test_the_pre_tokenizer_of_the_file_is_used(
    tmp_path: Path, pre: str, expected: list[int]
) -> None:
    assert Tokenizer(with_tokenizer(tmp_path / "made.gguf", pre=pre)).encode("12") == expected


def test_an_unknown_pre_tokenizer_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"tokenizer\.ggml\.pre 'mine' is not known"):
        Tokenizer(with_tokenizer(tmp_path / "made.gguf", pre="mine"))


def test_the_files_template_runs_in_the_sandbox(tmp_path: Path) -> None:
    template = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    tokenizer = Tokenizer(with_tokenizer(tmp_path / "made.gguf", template=template))
    with pytest.raises(ChatTemplateError):
        tokenizer.render_chat([{"role": "user", "content": "a"}])
