"""Process that compiles untrusted grammars: `python -m penstock_engine.structured.worker`.

It reads one JSON line per job and writes one. It runs at low priority, with limits on time and
memory, and can be killed. The engine itself compiles only grammars that compiled here.
"""

import json
import os
import random
import re
import resource
import sys
import time
from typing import Any

from llguidance import LLMatcher, LLTokenizer
from llguidance.gbnf_to_lark import any_to_lark

from penstock_engine.structured.limits import (
    COMPILE_TIMEOUT_S,
    MAX_COMPILE_CPU_S,
    MAX_MASK_CPU_S,
    MAX_MEMORY_BYTES,
    make_matcher,
    make_tokenizer,
)
from penstock_engine.structured.schema import iter_subschemas

NICENESS = 10  # below the engine, which has 0
MAX_PLACES = 3  # that an error message names
TRIAL_TOKENS = 24  # length of the trial generation

# Disables forcing, which computes all tokens that the grammar forces, without bound, per token.
OPTIONS = '%llguidance {"no_forcing": true}\n'

# Characters before a rule's name that only say how Lark builds its tree. vLLM's examples have them.
LARK_MODIFIERS = re.compile(r"^[?!]+(?=[a-z_]\w*\s*(?:\.\d+\s*)?:)", re.MULTILINE)

Json = dict[str, Any]


def main() -> None:
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hello = json.loads(sys.stdin.buffer.readline())
    tokenizer = make_tokenizer(hello["tokenizer"], hello["vocab_size"], hello["eos_token_ids"])
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    _reply({"ready": True})
    for line in sys.stdin.buffer:
        _limit_cpu()
        _reply(check_grammar(json.loads(line), tokenizer))


def check_grammar(job: Json, tokenizer: LLTokenizer) -> Json:
    """Compiles and tries a grammar. Returns {"text": input of make_matcher} or {"error": message}."""
    try:
        text = to_llguidance(job)
    except (ValueError, RecursionError) as error:
        return {"error": _shorten_error(str(error))}
    started_s = time.process_time()
    matcher = make_matcher(tokenizer, text)
    message = matcher.get_error() or _try_generation(matcher, tokenizer.vocab_size)
    if "coerce_one_of" in message:
        return {"error": _overlap_error(job)}
    if message:
        return {"error": _shorten_error(message)}
    if time.process_time() - started_s > MAX_COMPILE_CPU_S:
        return {"error": "it is too complex to compile in time"}
    return {"text": text}


def to_llguidance(job: Json) -> str:
    """Returns a job's grammar in llguidance's JSON format. Raises ValueError."""
    start = f"{OPTIONS}start: {job['start']}\n{job['rules']}"
    parts = [
        {"name": part["name"]} | _subgrammar(part["kind"], part["text"]) for part in job["parts"]
    ]
    return json.dumps({"grammars": [{"lark_grammar": start}, *parts]}, ensure_ascii=False)


def _subgrammar(kind: str, text: str) -> Json:
    if kind == "json":
        return {"json_schema": json.loads(text)}
    if kind == "regex":
        wrapped = json.loads(LLMatcher.grammar_from_regex(text))
        return {"lark_grammar": wrapped["grammars"][0]["lark_grammar"]}
    try:
        return {"lark_grammar": any_to_lark(LARK_MODIFIERS.sub("", text))}
    except Exception as error:
        raise ValueError(str(error)) from error


def _try_generation(matcher: LLMatcher, vocab_size: int) -> str:
    """Generates the beginning of a random answer. Returns an error message, empty on success."""
    matcher = matcher.deep_copy()
    rng = random.Random(0)  # noqa: S311 - a path through a grammar, not a secret
    for _ in range(TRIAL_TOKENS):
        started_s = time.process_time()
        mask = matcher.compute_bitmask()
        if time.process_time() - started_s > MAX_MASK_CPU_S:
            return "it is too complex to follow token by token"
        if matcher.is_stopped() or not matcher.consume_token(_pick(mask, vocab_size, rng)):
            break
    return matcher.get_error()


def _pick(mask: bytes, vocab_size: int, rng: random.Random) -> int:
    for _ in range(200):
        token_id = rng.randrange(vocab_size)
        if mask[token_id >> 3] >> (token_id & 7) & 1:
            return token_id
    bits = int.from_bytes(mask, "little")
    return max(0, (bits & -bits).bit_length() - 1)


def _overlap_error(job: Json) -> str:
    """Returns the error of alternatives of oneOf that are not seen to exclude each other."""
    schemas = [json.loads(part["text"]) for part in job["parts"] if part["kind"] == "json"]
    places = [
        f"{place}.oneOf".removeprefix(".")
        for schema in schemas
        for place, subschema in iter_subschemas(schema)
        if "oneOf" in subschema
    ]
    return (
        f"{' or '.join(places[:MAX_PLACES])}: the alternatives may overlap: use anyOf, or give each a "
        "required property with another const"
    )


def _shorten_error(message: str) -> str:
    """Returns llguidance's message without its rendering of the grammar, at most 300 characters."""
    if "NoExtension" in message:
        return "nothing can satisfy it"
    found = re.search(r"^error: (.*)", message, re.MULTILINE)
    text = found[1] if found else message.replace("<non-verbose/>", "").partition("\n")[0]
    text = text.partition(":  (")[0]
    return text.strip()[:300] or "it is not valid"


def _limit_cpu() -> None:
    """Limits the CPU time of the next job, in case the parent process is gone and cannot kill it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    limit_s = int(used.ru_utime + used.ru_stime + COMPILE_TIMEOUT_S) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, hard))


def _reply(body: Json) -> None:
    sys.stdout.buffer.write(json.dumps(body).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
