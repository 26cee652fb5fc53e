"""Implements `penstock-engine make-model`: trains a small model on texts and saves it."""

import random
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from penstock_engine.checkpoints.weights import checkpoint_files
from penstock_engine.machine.device import num_threads
from penstock_engine.make_model.corpus import read_corpus
from penstock_engine.make_model.tokenizer import END_OF_TEXT, TURN_END, train_tokenizer
from penstock_engine.make_model.train import TrainingResult, make_stream, train

MAX_VOCAB_SIZE = 8192
MAX_POSITION_EMBEDDINGS = 4096


def make(
    out: Path, docs: Sequence[Path], *, seconds: float, steps: int | None = None, seed: int = 0
) -> TrainingResult:
    """Train a model on texts, and save it to `out` for transformers and the engine.

    seconds: duration of training if steps is None; it takes longer on a slow machine. steps: number of
    training steps. Raises ValueError if there is no text, or if a number is not positive.
    """
    if seconds <= 0 or (steps is not None and steps < 1):
        raise ValueError("--seconds and --steps must be more than 0")
    corpus = read_corpus(docs)
    texts = [*corpus.passages, *(pair.question for pair in corpus.pairs)]
    tokenizer = train_tokenizer(texts, vocab_size=MAX_VOCAB_SIZE)
    draw = random.Random(seed)  # noqa: S311 - an order of texts, not a secret
    stream = make_stream(corpus, tokenizer, draw)
    torch.set_num_threads(num_threads())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(_config(tokenizer))
    with _progress_bar() as bar:
        task = bar.add_task("training", total=1.0, loss="")
        outcome = train(
            model, stream, seconds=seconds, steps=steps, draw=draw,
            on_step=lambda done, loss: bar.update(task, completed=done, loss=f"{loss:.3f}"),
        )  # fmt: skip
        bar.update(task, completed=1.0)
        num_parameters = sum(p.numel() for p in model.parameters())
        bar.console.print(
            f"{num_parameters / 1e6:.1f} million parameters, {len(tokenizer)} tokens, "
            f"{outcome.steps} steps, final loss {outcome.loss:.3f}"
        )
    _save(out, model, tokenizer)
    return outcome


def _config(tokenizer: PreTrainedTokenizerFast) -> Qwen3Config:
    turn_end, end_of_text = _end_ids(tokenizer)
    vocab_size = -(-len(tokenizer) // 64) * 64  # whole cache lines and vector widths
    return Qwen3Config(
        vocab_size=vocab_size, hidden_size=256, intermediate_size=640, num_hidden_layers=4,
        num_attention_heads=8, num_key_value_heads=4, head_dim=32,
        max_position_embeddings=MAX_POSITION_EMBEDDINGS, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=turn_end,
        pad_token_id=end_of_text,
    )  # fmt: skip


def _save(out: Path, model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    ends = _end_ids(tokenizer)
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        eos_token_id=list(ends), pad_token_id=ends[1]
    )
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    model.save_pretrained(out)
    for weights in checkpoint_files(out):
        weights.chmod(0o644)  # they are saved unreadable for other users, such as a pod's
    tokenizer.save_pretrained(out)


def _end_ids(tokenizer: PreTrainedTokenizerFast) -> tuple[int, int]:
    vocabulary = tokenizer.get_vocab()
    return vocabulary[TURN_END], vocabulary[END_OF_TEXT]


def _progress_bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%  loss {task.fields[loss]}"),
        TimeElapsedColumn(),
    )
