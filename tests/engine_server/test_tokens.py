"""Tests of incremental detokenization, stop strings and chat templates."""

import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models

from penstock_engine.core.errors import ModelError
from penstock_engine.core.step import SequenceOutput, Step
from penstock_engine.text.text_stream import MAX_HELD_TOKENS, TextStream
from penstock_engine.text.tokens import ChatTemplateError, Tokenizer

TEXT = "The pipe — 管道 🚰 — feeds: “naïve” Ωmega, 👩‍👩‍👧 end."


@pytest.fixture(scope="module")
def tokenizer(model_dir: Path) -> Tokenizer:
    return Tokenizer(model_dir)


def stream(stream: TextStream, ids: list[int]) -> list[str]:
    pieces = []
    for token_id in ids:
        pieces.append(stream.push(token_id))
        if stream.stop is not None:
            return pieces
    return [*pieces, stream.finish()]


def test_pieces_join_to_the_text_and_split_no_character(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(TEXT)
    assert len(ids) > len(TEXT) / 2
    pieces = stream(TextStream(tokenizer), ids)
    assert "".join(pieces) == TEXT
    assert not any("\ufffd" in piece for piece in pieces)
    assert sum(bool(piece) for piece in pieces) > 20


def test_streamed_text_equals_the_decoded_whole(tokenizer: Tokenizer) -> None:
    """Random tokens are mostly invalid UTF-8, which must not be held back forever."""
    rng = random.Random(0)
    for _ in range(50):
        ids = [rng.randrange(3, 1400) for _ in range(60)]
        streamed = stream(TextStream(tokenizer), ids)
        assert "".join(streamed) == tokenizer.decode(ids)


def test_invalid_bytes_are_emitted_eventually(tokenizer: Tokenizer) -> None:
    broken = tokenizer.encode("é")[0]
    assert tokenizer.decode([broken]) == "\ufffd"
    text = TextStream(tokenizer)
    pieces = [text.push(broken) for _ in range(100)]
    assert len("".join(pieces)) >= 90


@pytest.mark.parametrize("stop", ["end", "管道", "— feeds", "🚰", "T", "Ωmega, 👩"])
@pytest.mark.parametrize("include", [False, True])
def test_a_stop_string_cuts_the_text(tokenizer: Tokenizer, stop: str, include: bool) -> None:
    text = TextStream(tokenizer, ["never", stop], include_stop=include)
    pieces = stream(text, tokenizer.encode(TEXT))
    end = TEXT.index(stop) + (len(stop) if include else 0)
    assert text.stop is not None
    assert "".join(pieces) == TEXT[:end]
    assert text.finish() == ""


@pytest.mark.parametrize("opening", ["<call>\n", "\n", "never"])
@pytest.mark.parametrize("min_tokens", [0, 2, 200])
def test_stop_strings_have_no_effect_before_the_end_of_an_opening(
    tokenizer: Tokenizer, opening: str, min_tokens: int
) -> None:
    written = "a\nb <call>\nc\nd"
    text = TextStream(tokenizer, ["\n"], forced_opening=opening, min_tokens=min_tokens)
    kept = {"<call>\n": "a\nb <call>\nc", "\n": "a\nb <call>", "never": written}[opening]
    streamed = "".join(stream(text, tokenizer.encode(written)))
    assert streamed == (written if min_tokens == 200 else kept)


def test_a_partial_stop_string_is_emitted_once_it_cannot_match(tokenizer: Tokenizer) -> None:
    text = TextStream(tokenizer, ["end of story", "aaab"])
    pieces = stream(text, tokenizer.encode("aaaaab is not the end"))
    assert text.stop is not None
    assert "".join(pieces) == "aa"
    text = TextStream(tokenizer, ["end of story"])
    assert "".join(stream(text, tokenizer.encode("it is the end"))) == "it is the end"
    assert text.stop is None


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A tokenizer like those of Llama 2 and Mistral: decoding drops a text's first space."""
    return sentencepiece_tokenizer(tmp_path_factory.mktemp("sentencepiece"))


PARTS = ["▁Paris", "▁is", "▁", "s", "<0xC3>", "<0xA9>", "<s>", "<0xFF>", "▁▁"]


@pytest.mark.parametrize("prompt", ["▁is", "▁is▁", "s", "<s>", "▁is<s>", "▁is<0xC3><0xA9>", ""])
@pytest.mark.parametrize("answer", ["▁Paris", "▁▁Paris", "s", "<s>▁Paris", "<0xC3><0xA9>s", "▁"])
def test_a_completion_continues_the_text_of_its_prompt(
    sentencepiece: Tokenizer, prompt: str, answer: str
) -> None:
    ids, more = (ids_of(text) for text in (prompt, answer))
    pieces = stream(TextStream(sentencepiece, after=ids), more)
    assert sentencepiece.decode(ids) + "".join(pieces) == sentencepiece.decode([*ids, *more])


def test_a_character_split_between_prompt_and_answer_is_in_the_answer(
    sentencepiece: Tokenizer,
) -> None:
    ids, more = ids_of("▁is<0xC3>"), ids_of("<0xA9>s▁Paris")
    assert "".join(stream(TextStream(sentencepiece, after=ids), more)) == "és Paris"


class ParisRunner:
    """A runner that always samples the token "▁Paris"."""

    def run(self, step: Step) -> dict[str, SequenceOutput]:
        (paris,) = ids_of("▁Paris")
        return {sequence.request_id: SequenceOutput((paris,)) for sequence in step.sequences}


async def test_the_first_space_of_a_completion_reaches_the_client(
    serve_runner: Any, sentencepiece: Tokenizer
) -> None:
    """The test covers whole, echoed and streamed answers."""
    async with serve_runner(ParisRunner, tokenizer=sentencepiece) as client:
        body = {"prompt": ids_of("▁is"), "max_tokens": 2}
        whole = await client.post("/v1/completions", json=body)
        echoed = await client.post("/v1/completions", json=body | {"echo": True})
        streamed = await client.post("/v1/completions", json=body | {"stream": True})
    assert whole.json()["choices"][0]["text"] == " Paris Paris"
    assert echoed.json()["choices"][0]["text"] == "is Paris Paris"
    events = [line.removeprefix("data: ") for line in streamed.text.split("\n\n")[:-2]]
    assert [json.loads(event)["choices"][0]["text"] for event in events] == [" Paris", " Paris"]


def test_a_stop_string_in_the_prompt_has_no_effect(sentencepiece: Tokenizer) -> None:
    text = TextStream(sentencepiece, ["is", " P"], after=ids_of("▁is"))
    assert text.push(ids_of("s")[0]) == "s"
    assert text.push(ids_of("▁Paris")[0]) == ""
    assert text.stop == " P"


def test_min_tokens_counts_tokens_of_the_answer_only(sentencepiece: Tokenizer) -> None:
    ids = ids_of("▁is" * 9)
    text = TextStream(sentencepiece, ["Paris"], min_tokens=1, after=ids)
    paris = ids_of("▁Paris")[0]
    assert (text.push(paris), text.stop) == (" Paris", None)
    assert (text.push(paris), text.stop) == (" ", "Paris")


def test_tokens_without_text_do_not_slow_down_later_ones(
    sentencepiece: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each push decodes a limited number of tokens, even after a thousand special ones."""
    sizes: list[int] = []
    decode = Tokenizer.decode

    def recording_decode(self: Tokenizer, ids: list[int], **options: bool) -> str:
        sizes.append(len(ids))
        return decode(self, ids, **options)

    monkeypatch.setattr(Tokenizer, "decode", recording_decode)
    text = TextStream(sentencepiece)
    special, paris = ids_of("<s>▁Paris")
    assert [text.push(token) for token in (paris, *[special] * 1000, paris)] == [
        "Paris", *[""] * 1000, " Paris",
    ]  # fmt: skip
    assert max(sizes) <= MAX_HELD_TOKENS + 2


def sentencepiece_tokenizer(folder: Path) -> Tokenizer:
    vocab = {part: number for number, part in enumerate(PARTS)}
    built = tokenizers.Tokenizer(models.BPE(vocab, [], byte_fallback=True, fuse_unk=True))
    built.add_special_tokens(["<s>"])
    built.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1),
        ]
    )
    built.save(str(folder / "tokenizer.json"))
    return Tokenizer(folder)


def ids_of(text: str) -> list[int]:
    """Returns the token ids of a text made of PARTS, matching the longest first."""
    pattern = "|".join(map(re.escape, sorted(PARTS, key=len, reverse=True)))
    return [PARTS.index(part) for part in re.findall(pattern, text)]


def test_bytes_of_byte_level_tokens_join_to_the_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(TEXT + "<|im_end|>", add_special_tokens=False)
    assert b"".join(map(tokenizer.token_bytes, ids)).decode() == TEXT + "<|im_end|>"
    assert tokenizer.token_bytes(10**6) == b""


def test_bytes_of_sentencepiece_tokens_keep_spaces(tmp_path: Path) -> None:
    tokenizer = sentencepiece_tokenizer(tmp_path)
    ids = ids_of("<s>▁Paris<0xC3><0xA9>")
    assert list(map(tokenizer.token_bytes, ids)) == [b"<s>", b" Paris", b"\xc3", b"\xa9"]


def test_stop_strings_do_not_count_before_min_tokens(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("one two one two")
    full = len(ids)
    text = TextStream(tokenizer, ["one"], min_tokens=full // 2)
    assert "".join(stream(text, ids)) == "one two "


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ nothing.at_all }}",
    ],
    ids=["refusal", "escape", "write", "undefined"],
)
def test_a_template_runs_in_a_sandbox(model_dir: Path, tmp_path: Path, template: str) -> None:
    folder = shutil.copytree(model_dir, tmp_path / "model")
    (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(ChatTemplateError):
        Tokenizer(folder).render_chat([{"role": "user", "content": "hi"}])


def test_max_token_chars_bounds_the_length_of_a_text(tokenizer: Tokenizer) -> None:
    for text in (TEXT, " " * 500, "a" * 500, "autoscaling " * 50):
        assert len(text) <= len(tokenizer.encode(text)) * tokenizer.max_token_chars


def test_a_folder_without_a_tokenizer_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="tokenizer"):
        Tokenizer(tmp_path)
