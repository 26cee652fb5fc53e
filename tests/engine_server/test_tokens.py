"""Text as tokens arrive, with the tokenizer of a real folder."""

import random
import shutil
from pathlib import Path

import pytest

from penstock_engine.core.errors import ModelError
from penstock_engine.tokens import TemplateRefused, TextStream, Tokenizer

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


def test_pieces_make_the_text_and_never_half_a_character(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(TEXT)
    assert len(ids) > len(TEXT) / 2
    pieces = stream(TextStream(tokenizer), ids)
    assert "".join(pieces) == TEXT
    assert not any("\ufffd" in piece for piece in pieces)
    assert sum(bool(piece) for piece in pieces) > 20


def test_any_bytes_come_out_as_the_whole_would(tokenizer: Tokenizer) -> None:
    """Random tokens are mostly not UTF-8: what never becomes a character is not held for ever."""
    draw = random.Random(0)
    for _ in range(50):
        ids = [draw.randrange(3, 1400) for _ in range(60)]
        streamed = stream(TextStream(tokenizer), ids)
        assert "".join(streamed) == tokenizer.decode(ids)


def test_endless_broken_bytes_are_let_go(tokenizer: Tokenizer) -> None:
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


def test_what_only_begins_like_a_stop_string_is_let_go(tokenizer: Tokenizer) -> None:
    text = TextStream(tokenizer, ["end of story", "aaab"])
    pieces = stream(text, tokenizer.encode("aaaaab is not the end"))
    assert text.stop is not None
    assert "".join(pieces) == "aa"
    text = TextStream(tokenizer, ["end of story"])
    assert "".join(stream(text, tokenizer.encode("it is the end"))) == "it is the end"
    assert text.stop is None


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
    with pytest.raises(TemplateRefused):
        Tokenizer(folder).encode_chat([{"role": "user", "content": "hi"}])


def test_no_text_is_longer_than_its_tokens_can_be(tokenizer: Tokenizer) -> None:
    for text in (TEXT, " " * 500, "a" * 500, "autoscaling " * 50):
        assert len(text) <= len(tokenizer.encode(text)) * tokenizer.max_token_chars


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="tokenizer"):
        Tokenizer(tmp_path)
