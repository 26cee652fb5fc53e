"""Training loop for the CPU: windows of tokens, AdamW, linear warm-up and cosine decay."""

import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from penstock_engine.machine.device import choose_dtype
from penstock_engine.make_model.corpus import Corpus
from penstock_engine.make_model.tokenizer import END_OF_TEXT

WINDOW_TOKENS = 192
BATCH_WINDOWS = 4
LEARNING_RATE = 2e-3
WARM_UP = 0.05  # fraction of the training
NUM_SHUFFLES = 4
MIN_STEPS_PER_S = 4

# Callback after each step, with the fraction done (0 to 1) and the loss.
OnStep = Callable[[float, float], None]


@dataclass(frozen=True, slots=True)
class Stream:
    """All training texts as one sequence of tokens.

    starts: positions at which a paragraph or a conversation starts.
    """

    tokens: torch.Tensor
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """Number of training steps, and the final loss (exponentially smoothed)."""

    steps: int
    loss: float


def make_stream(corpus: Corpus, tokenizer: PreTrainedTokenizerFast, draw: random.Random) -> Stream:
    """Concatenate all passages and shuffled conversations, NUM_SHUFFLES times."""
    document = [tokenizer.encode(f"{passage}\n\n") for passage in corpus.passages]
    document.append(tokenizer.encode(END_OF_TEXT))
    conversations = [_conversation(pair.question, pair.answer, tokenizer) for pair in corpus.pairs]
    tokens: list[int] = []
    starts: list[int] = []
    for _ in range(NUM_SHUFFLES):
        draw.shuffle(conversations)
        for piece in (*document, *conversations):
            starts.append(len(tokens))
            tokens += piece
    # Windows at the end continue with the first tokens.
    tokens += (tokens * (1 + WINDOW_TOKENS // len(tokens)))[:WINDOW_TOKENS]
    return Stream(torch.tensor(tokens), tuple(starts))


def _conversation(question: str, answer: str, tokenizer: PreTrainedTokenizerFast) -> list[int]:
    turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    text = tokenizer.apply_chat_template(turns, tokenize=False)
    return list(tokenizer.encode(text))


def train(
    model: Qwen3ForCausalLM,
    stream: Stream,
    *,
    seconds: float,
    steps: int | None,
    draw: random.Random,
    on_step: OnStep,
) -> TrainingResult:
    """Train the model in place, for `steps` steps, or for about `seconds` of work if steps is None.

    The same number of steps and the same `draw` give the same weights.
    """
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01, betas=(0.9, 0.95))
    is_bf16_native = choose_dtype("auto", "cpu") == "bfloat16"
    model.train()
    step, smooth_loss = 0, math.nan
    for step, done in enumerate(_progress(seconds, steps), 1):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * _schedule(done)
        batch = _batch(stream, draw)
        with torch.autocast("cpu", torch.bfloat16, enabled=is_bf16_native):
            loss = model(input_ids=batch, labels=batch, use_cache=False).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        current = loss.item()
        smooth_loss = current if step == 1 else 0.9 * smooth_loss + 0.1 * current
        on_step(done, smooth_loss)
    model.eval()  # type: ignore[no-untyped-call]
    return TrainingResult(step, smooth_loss)


def _progress(seconds: float, steps: int | None) -> Iterator[float]:
    """Yield the fraction done before each step, 0 <= fraction < 1; at least one step.

    `seconds` is CPU time per thread, not wall-clock time, so that training on a busy machine takes
    longer but learns as much. Because other programs also slow steps down by using memory bandwidth
    (434 and 102 steps in a minute of one core), there are at least MIN_STEPS_PER_S steps per second.
    """
    if steps is not None:
        yield from (step / steps for step in range(steps))
        return
    work_s = seconds * torch.get_num_threads()
    started_s = time.process_time()
    done, step = 0.0, 0
    while done < 1:
        yield done
        step += 1
        worked = (time.process_time() - started_s) / work_s
        done = min(worked, step / (MIN_STEPS_PER_S * seconds))


def _schedule(done: float) -> float:
    """Factor of the learning rate: linear warm-up, then cosine decay to a tenth."""
    if done < WARM_UP:
        return (done + 0.001) / WARM_UP
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP)))


def _batch(stream: Stream, draw: random.Random) -> torch.Tensor:
    """Random windows, int64 [BATCH_WINDOWS, WINDOW_TOKENS], each of which starts where a text starts."""
    starts = draw.choices(stream.starts, k=BATCH_WINDOWS)
    return torch.stack([stream.tokens[start : start + WINDOW_TOKENS] for start in starts])
