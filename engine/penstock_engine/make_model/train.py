"""Training on one CPU: windows of the texts, AdamW, warm-up and cosine decay."""

import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from penstock_engine.device import choose_dtype
from penstock_engine.make_model.corpus import Corpus
from penstock_engine.make_model.tokenizer import END_OF_TEXT

WINDOW_TOKENS = 192
BATCH_WINDOWS = 4
LEARNING_RATE = 2e-3
WARM_UP = 0.05  # of the whole training
NUM_SHUFFLES = 4
LEAST_STEPS_PER_S = 4

# (part done 0..1, loss of the step)
OnStep = Callable[[float, float], None]


@dataclass(frozen=True, slots=True)
class Stream:
    """All samples, one after another. starts: where a paragraph or a conversation begins."""

    tokens: torch.Tensor
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    steps: int
    loss: float


def make_stream(corpus: Corpus, tokenizer: PreTrainedTokenizerFast, draw: random.Random) -> Stream:
    """The document once for each shuffle of the conversations, all in one stream."""
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
    # The last windows go on with the first tokens.
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
) -> Outcome:
    """Trains in place, for `steps` steps or else about `seconds` of work. The same steps and seed give
    the same weights."""
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
    return Outcome(step, smooth_loss)


def _progress(seconds: float, steps: int | None) -> Iterator[float]:
    """The part that is done before each step, 0 <= part < 1; at least one step.

    Seconds of work, not of the clock: on a busy machine it takes longer and learns as much. Others that
    use the memory make each step dearer too (434 and 102 steps in a minute of one core), so there are at
    least LEAST_STEPS_PER_S.
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
        done = min(worked, step / (LEAST_STEPS_PER_S * seconds))


def _schedule(done: float) -> float:
    """Of the full learning rate: up in a straight line, then down to a tenth along a cosine."""
    if done < WARM_UP:
        return (done + 0.001) / WARM_UP
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP)))


def _batch(stream: Stream, draw: random.Random) -> torch.Tensor:
    """int64 [BATCH_WINDOWS, WINDOW_TOKENS]; each window starts where some text starts."""
    starts = draw.choices(stream.starts, k=BATCH_WINDOWS)
    return torch.stack([stream.tokens[start : start + WINDOW_TOKENS] for start in starts])
