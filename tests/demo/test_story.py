"""Tests of the demo's load."""

from itertools import accumulate
from pathlib import Path

import yaml

from penstock.demo.story import LOAD_EXAMPLE, workload
from penstock_engine.make_model.corpus import read_corpus
from penstock_engine.make_model.make import MAX_VOCAB_SIZE
from penstock_engine.make_model.tokenizer import train_tokenizer

ROOT = Path(__file__).parents[2]


def test_the_longest_prompt_and_its_answer_fit_the_model() -> None:
    load = workload(ROOT)
    service = yaml.safe_load((ROOT / "examples" / LOAD_EXAMPLE).read_text())
    docs = read_corpus([ROOT / "docs"])
    tokenizer = train_tokenizer(
        [*docs.passages, *(pair.question for pair in docs.pairs)], vocab_size=MAX_VOCAB_SIZE
    )
    # A word's tokens do not depend on its neighbors: the pre-tokenizer splits at spaces.
    ends = [0, *accumulate(len(tokenizer.tokenize(f" {word}")) for word in load.corpus)]
    excerpts = zip(ends, ends[load.prompt_words :], strict=False)
    longest = max(end - start for start, end in excerpts)
    frame = tokenizer.apply_chat_template(
        [{"role": "user", "content": ""}], add_generation_prompt=True, tokenize=False
    )
    tokens = longest + len(tokenizer.tokenize(frame)) + load.max_tokens
    assert tokens <= service["spec"]["engine"]["maxModelLen"]
