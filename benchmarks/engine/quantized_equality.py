"""Compares greedy tokens of quantized checkpoints with those of their dequantized weights.

    python -m benchmarks.engine.quantized_equality [--prompts 20] [--longest 400] [--new-tokens 32]
                                            [--families qwen3,llama] [--formats awq,gptq-4]

Small random models are rounded and packed by each format's public definition. transformers answers prompts
with the rounded weights in float32, the engine with the packed checkpoint in float32. Verdicts as in
tests/support/engine/verdicts.py.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from benchmarks.engine.greedy_equality import Setting, generate, make_prompts, reference
from benchmarks.options import option_parser
from tests.support.engine.families import FAMILIES
from tests.support.engine.quantized_weights import FORMATS, quantize
from tests.support.engine.verdicts import compare

SETTING = Setting(4, 64, prefix_caching=True, speculates=False)


@dataclass(frozen=True, slots=True)
class Result:
    family: str
    form: str
    verdicts: Counter[str]


def campaign(
    families: tuple[str, ...], forms: tuple[str, ...], *,
    num_prompts: int, longest: int, new_tokens: int, seed: int,
) -> Iterator[Result]:  # fmt: skip
    for family_name in families:
        family = FAMILIES[family_name]
        prompts = make_prompts(num_prompts, longest, seed, shortest=family.shortest)
        for form in forms:
            with tempfile.TemporaryDirectory() as temporary:
                made, packed, written = (Path(temporary, name) for name in ("made", "p", "w"))
                torch.manual_seed(seed)
                family.make(made)
                quantize(made, FORMATS[form], packed, written)
                model = family.load(written, "float32")
                expected = [reference(model, prompt, new_tokens) for prompt in prompts]
                outputs, _ = generate(packed, prompts, new_tokens, SETTING)
                verdicts = Counter(
                    compare(one, tokens).verdict
                    for one, tokens in zip(expected, outputs, strict=True)
                )
                yield Result(family_name, form, verdicts)


def main() -> None:
    args = option_parser(
        __doc__, prompts=20, longest=400, new_tokens=32, families="qwen3,llama,phi3,qwen3-moe",
        formats=",".join(FORMATS), seed=0,
    ).parse_args()  # fmt: skip
    transformers.utils.logging.disable_progress_bar()
    num_different = 0
    for result in campaign(
        tuple(args.families.split(",")), tuple(args.formats.split(",")),
        num_prompts=args.prompts, longest=args.longest, new_tokens=args.new_tokens, seed=args.seed,
    ):  # fmt: skip
        num_different += result.verdicts["different"]
        print(f"{result.family:10} {result.form:28}", dict(result.verdicts), flush=True)
    sys.exit(1 if num_different else 0)


if __name__ == "__main__":
    main()
