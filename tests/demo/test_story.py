"""Tests of the demo's load and adapters."""

from itertools import accumulate
from pathlib import Path

import yaml

from penstock.demo.adapters import EXAMPLE, NAMES
from penstock.demo.model import ADAPTERS_NAME, NUM_ADAPTERS
from penstock.demo.story import LOAD_EXAMPLE, SERVICE, workload
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


def test_the_example_has_the_adapters_that_are_made() -> None:
    bodies = list(yaml.safe_load_all((ROOT / "examples" / EXAMPLE).read_text()))
    assert tuple(body["metadata"]["name"] for body in bodies) == NAMES
    assert {body["spec"]["serviceRef"]["name"] for body in bodies} == {SERVICE}
    assert [body["spec"]["model"]["uri"] for body in bodies] == [
        f"pvc://models/{ADAPTERS_NAME}/adapter-{number:03}" for number in range(NUM_ADAPTERS)
    ]
