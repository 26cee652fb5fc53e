"""Tests of `penstock-engine make-model`: corpus, tokenizer, training, and reproducibility."""

import hashlib
import itertools
from pathlib import Path

import pytest
import torch
import transformers
from typer.testing import CliRunner

from penstock_engine.cli import app
from penstock_engine.make_model import train
from penstock_engine.make_model.corpus import Pair, read_corpus
from penstock_engine.make_model.make import make
from penstock_engine.make_model.tokenizer import train_tokenizer
from penstock_engine.text.tokens import Tokenizer

DOCUMENT = """# Rivers

A river flows down. It ends in the sea.

```
a --> b
```

## Dams

A dam holds
water back.
"""


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / ".hidden").mkdir(parents=True)
    (folder / ".hidden" / "x.md").write_text("# Secret\n\nNot to be read.\n")
    (folder / "rivers.md").write_text(DOCUMENT)
    (folder / "code.py").write_text('"""Opens gates.\n\nSlowly."""\n\nx = 1\n')
    return folder


def test_the_corpus_has_paragraphs_and_question_pairs(docs: Path) -> None:
    corpus = read_corpus([docs])
    assert corpus.passages == (
        "Opens gates.", "Slowly.",
        "# Rivers", "A river flows down. It ends in the sea.", "```\na --> b\n```",
        "# Dams", "A dam holds\nwater back.",
    )  # fmt: skip
    assert Pair("What is Dams?", "A dam holds water back.") in corpus.pairs
    assert Pair("A river flows down.", "It ends in the sea.") in corpus.pairs
    assert len(corpus.pairs) == 4 + 4 + 1


@pytest.mark.parametrize("name", ["absent", "docs/.hidden/nothing", "docs/.hidden"])
def test_sources_without_text_are_rejected(docs: Path, tmp_path: Path, name: str) -> None:
    (docs / ".hidden" / "x.md").write_text("")
    with pytest.raises(ValueError, match=r"neither a file nor|no text to learn"):
        read_corpus([tmp_path / name])


def test_the_tokenizer_round_trips_any_text() -> None:
    tokenizer = train_tokenizer([DOCUMENT], vocab_size=300)
    assert len(tokenizer) <= 300
    for text in (DOCUMENT, "Ωmega 管道 🚰", "", "  two  spaces\t\n"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_same_seed_and_steps_give_the_same_files(docs: Path, tmp_path: Path) -> None:
    digests = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make(tmp_path / name, [docs], seconds=1, steps=2, seed=seed)
        digests.append(
            {
                path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                for path in sorted((tmp_path / name).iterdir())
            }
        )
    assert digests[0] == digests[1]
    assert digests[0]["model.safetensors"] != digests[2]["model.safetensors"]
    assert digests[0]["tokenizer.json"] == digests[2]["tokenizer.json"]


def test_training_reduces_the_loss(docs: Path, tmp_path: Path) -> None:
    first = make(tmp_path / "a", [docs], seconds=1, steps=1)
    later = make(tmp_path / "b", [docs], seconds=1, steps=15)
    assert later.loss < first.loss - 0.5
    assert later.steps == 15


def test_a_slow_machine_trains_for_the_minimum_number_of_steps(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = itertools.count(step=100)  # for each step
    monkeypatch.setattr(train.time, "process_time", lambda: next(seconds))
    assert make(tmp_path, [docs], seconds=1).steps == train.MIN_STEPS_PER_S


def test_transformers_can_load_it(model_dir: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(model_dir)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_dir)
    chat = [{"role": "user", "content": "What is a penstock?"}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text == ("<|im_start|>user\nWhat is a penstock?<|im_end|>\n<|im_start|>assistant\n")
    ids = tokenizer.encode(text)
    own = Tokenizer(model_dir)
    assert ids == own.encode(own.render_chat(chat), add_special_tokens=False)
    assert model.config.max_position_embeddings == 4096
    assert tokenizer.convert_tokens_to_ids("<|im_end|>") in model.generation_config.eos_token_id
    with torch.inference_mode():
        assert model(torch.tensor([ids])).logits.shape == (1, len(ids), model.config.vocab_size)


def test_the_command_writes_a_model_or_a_one_line_error(docs: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    out = tmp_path / "model"
    done = runner.invoke(app, ["make-model", str(out), "--docs", str(docs), "--steps", "1"])
    assert done.exit_code == 0, done.output
    assert "final loss" in done.output
    assert (out / "model.safetensors").is_file()
    for flags in (["--docs", str(tmp_path / "absent")], ["--docs", str(docs), "--steps", "0"]):
        failed = runner.invoke(app, ["make-model", str(out), *flags])
        assert failed.exit_code == 1
        assert len(failed.output.splitlines()) == 1
