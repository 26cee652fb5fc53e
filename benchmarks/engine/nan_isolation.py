"""Checks that a request with NaN activations changes no other request's answer.

    python -m benchmarks.engine.nan_isolation [--healthy 500] [--bad 50] [--seed 0] [--variants plain,lora]

In models of a few thousand weights, one token produces NaN: its embedding is infinite, or its value vectors
overflow float16. The real engine loop answers the healthy requests alone, then mixed with bad ones that
contain the token, often after a prefix shared with healthy ones. (In float16 the first run has the bad
requests without the token, to keep the batches equal.) Prints a line per variant. Exits with 1 if a healthy
answer differs or a bad request gets an answer.
"""

import queue
import random
import sys
import tempfile
import time
from collections.abc import Sequence as Many
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from benchmarks.options import option_parser

from penstock_engine.core.events import TokenEvent
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.speculation.config import SpeculationConfig
from penstock_engine.execution.runner import Runner
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.loop.engine_loop import EngineLoop, StepReport
from penstock_engine.lora.checkpoint import Adapter, Factors

VOCAB_SIZE, BAD_TOKEN = 64, 62
SIZES = {"block_size": 4, "max_num_seqs": 8, "max_num_batched_tokens": 48, "max_model_len": 128}
SHAPE = {
    "vocab_size": VOCAB_SIZE, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "max_position_embeddings": 256, "tie_word_embeddings": False, "initializer_range": 0.2,
    "bos_token_id": 0, "eos_token_id": 63,
}  # fmt: skip
CONFIGS: dict[str, Any] = {
    "qwen3": transformers.Qwen3Config,
    "mistral": transformers.MistralConfig,
    "mixtral": transformers.MixtralConfig,
    "gemma2": transformers.Gemma2Config,
}
ADAPTER = "adapter"


@dataclass(frozen=True, slots=True)
class Variant:
    """Variant of model and engine. config: of the model. runner, scheduler: additional options.

    overflows: the bad token's values overflow float16; else its embedding is infinite. drafts: speculation
    method. has_adapter: half of the requests use an adapter.
    """

    family: str = "qwen3"
    config: dict[str, Any] = field(default_factory=dict)
    runner: dict[str, Any] = field(default_factory=dict)
    scheduler: dict[str, Any] = field(default_factory=dict)
    overflows: bool = False
    drafts: Any = None
    has_adapter: bool = False


WINDOW = {"sliding_window": 9}
VARIANTS = {
    "plain": Variant(),
    # No prefix cache: hits would change the batches and so the rounding.
    "float16 overflow": Variant(
        runner={"dtype": "float16"}, scheduler={"prefix_caching": False}, overflows=True
    ),
    "few blocks": Variant(runner={"num_blocks": 40}),
    "host blocks": Variant(runner={"num_blocks": 40, "num_host_blocks": 60}),
    "int8 cache": Variant(runner={"kv_dtype": "int8"}),
    "fp8 cache": Variant(runner={"kv_dtype": "float8_e4m3fn"}),
    "int8 weights": Variant(runner={"quantization": "int8"}),
    "window": Variant("mistral", WINDOW, scheduler={"window_tokens": 9}),
    "softcap": Variant("gemma2", WINDOW),
    "experts": Variant("mixtral", {"num_local_experts": 4}),
    "adapters": Variant(has_adapter=True),
    "n-gram": Variant(drafts="ngram"),
    "suffix": Variant(drafts="suffix"),
    "draft model": Variant(drafts="draft_model"),
}


@dataclass(frozen=True, slots=True)
class Request:
    """Request. name: unique. seed: of its sampling."""

    name: str
    prompt: list[int]
    sampling: SamplingParams
    adapter: str


@dataclass(frozen=True, slots=True)
class Answer:
    tokens: tuple[int, ...]
    failure: str | None
    embedding: tuple[float, ...]


def make_model(directory: Path, variant: Variant, seed: int = 0) -> None:
    """Build a model in which only BAD_TOKEN produces NaN or infinity."""
    made = CONFIGS[variant.family](**SHAPE | variant.config)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(made)
    with torch.no_grad():
        model.lm_head.weight[BAD_TOKEN] = 0
        if variant.overflows:
            _overflow(model)
        else:
            model.model.embed_tokens.weight[BAD_TOKEN] = torch.inf
    model.save_pretrained(directory)


def _overflow(model: Any) -> None:
    """Make value vectors overflow in the first hidden dimension, which is 0 except for the bad token."""
    embedding = model.model.embed_tokens.weight
    embedding[:, 0] = 0
    embedding[BAD_TOKEN] = 0
    embedding[BAD_TOKEN, 0] = 1
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight[0] = 0
        layer.mlp.down_proj.weight[0] = 0
        layer.self_attn.v_proj.weight[:, 0] = 60_000


def make_requests(num_healthy: int, num_bad: int, variant: Variant, seed: int) -> list[Request]:
    """Healthy and bad requests in random order. Every third shares a prefix of up to 30 tokens."""
    draw = random.Random(seed)
    prefixes = [[draw.randrange(1, 60) for _ in range(30)] for _ in range(4)]
    are_bad = [True] * num_bad + [False] * num_healthy
    draw.shuffle(are_bad)
    requests = []
    for index, is_bad in enumerate(are_bad):
        shared = draw.choice(prefixes)[: draw.randrange(31)] if index % 3 == 0 else []
        own = [draw.randrange(1, 60) for _ in range(draw.randrange(1, 40))]
        if is_bad:
            own[draw.randrange(len(own))] = BAD_TOKEN
        wants_embedding = not is_bad and index % 20 == 7
        sampling = SamplingParams(
            max_tokens=1 if wants_embedding else draw.randrange(2, 14),
            temperature=draw.choice([0.0, 0.8]), seed=index, ignore_eos=True,
            wants_embedding=wants_embedding, logit_bias={BAD_TOKEN: -100.0},
        )  # fmt: skip
        adapter = ADAPTER if variant.has_adapter and index % 2 else ""
        name = f"{'bad' if is_bad else 'healthy'} {index}"
        requests.append(Request(name, shared + own, sampling, adapter))
    return requests


def answers(
    variant: Variant, model_dir: Path, draft_dir: Path, requests: Many[Request]
) -> dict[str, Answer]:
    """Answers of the real engine loop with a newly loaded runner."""
    is_model = variant.drafts == "draft_model"
    options: dict[str, Any] = {"dtype": "float32", "num_blocks": 160} | variant.runner
    if is_model:
        options["draft_model_dir"] = draft_dir
    runner = Runner.load(
        RunnerConfig(
            model_dir=model_dir, device="cpu", max_adapters=int(variant.has_adapter),
            **SIZES, **options,
        )
    )  # fmt: skip
    if variant.has_adapter:
        runner.adapters.add(ADAPTER, _adapter(runner))
    speculation = None
    if variant.drafts is not None:
        speculation = SpeculationConfig(
            method=variant.drafts, num_speculative_tokens=3, prompt_lookup_min=1,
            model=str(draft_dir) if is_model else None,
        )  # fmt: skip
    config = SchedulerConfig(
        num_blocks=options["num_blocks"], num_host_blocks=options.get("num_host_blocks", 0),
        max_num_queued_seqs=len(requests), max_adapters=int(variant.has_adapter),
        speculation=speculation, **SIZES, **variant.scheduler,
    )  # fmt: skip
    return _run(Scheduler(config), runner, requests)


def _adapter(runner: Runner) -> Adapter:
    generator = torch.Generator().manual_seed(5)
    factors = {
        name: Factors(
            0.3 * torch.randn(4, inputs, generator=generator),
            0.3 * torch.randn(outputs, 4, generator=generator),
        )
        for name, (outputs, inputs) in runner.adapters.targets.items()
    }
    return Adapter(4, factors)


def _run(scheduler: Scheduler, runner: Runner, requests: Many[Request]) -> dict[str, Answer]:
    reports: queue.Queue[StepReport] = queue.Queue()
    loop = EngineLoop(scheduler, runner, on_step=reports.put)
    for request in requests:
        loop.submit(
            Sequence(
                request.name, request.prompt, request.sampling, frozenset(), 0.0,
                adapter=request.adapter,
            )
        )  # fmt: skip
    loop.start()
    events: dict[str, list[TokenEvent]] = {request.name: [] for request in requests}
    num_running = len(requests)
    while num_running:
        for event in reports.get(timeout=120).events:
            events[event.request_id].append(event)
            num_running -= event.finish_reason is not None
    loop.stop()
    scheduler.check()
    return {
        name: Answer(
            tuple(token for event in own for token in event.token_ids),
            own[-1].failure,
            tuple(number for event in own for number in event.embedding),
        )
        for name, own in events.items()
    }


def differences(
    variant: Variant, directory: Path, num_healthy: int, num_bad: int, seed: int
) -> list[str]:
    """Healthy requests with a changed answer, and bad requests with an answer."""
    model_dir, draft_dir = directory / "model", directory / "draft"
    make_model(model_dir, variant)
    if variant.drafts == "draft_model":
        make_model(draft_dir, variant, seed=1)
    requests = make_requests(num_healthy, num_bad, variant, seed)
    others = [request for request in requests if request.name.startswith("healthy")]
    if variant.overflows:
        others = [_harmless(request) for request in requests]
    alone = answers(variant, model_dir, draft_dir, others)
    together = answers(variant, model_dir, draft_dir, requests)
    found = []
    for request in requests:
        actual = together[request.name]
        if request.name.startswith("bad"):
            if actual.failure != "nan_output":
                found.append(f"{request.name}: {actual}")
        elif not _is_same(alone[request.name], actual) or actual.failure is not None:
            found.append(f"{request.name}: {alone[request.name]} alone, {actual} with bad ones")
    return found


def _harmless(request: Request) -> Request:
    """Copy without the bad token and with one output token, to keep the batches equal.

    In float16 the rounding of a row depends on the size of its batch.
    """
    if BAD_TOKEN not in request.prompt:
        return request
    prompt = [0 if token == BAD_TOKEN else token for token in request.prompt]
    return replace(request, prompt=prompt, sampling=replace(request.sampling, max_tokens=1))


def _is_same(alone: Answer, together: Answer) -> bool:
    if (alone.tokens, alone.failure) != (together.tokens, together.failure):
        return False
    one, other = torch.tensor(alone.embedding), torch.tensor(together.embedding)
    return one.shape == other.shape and torch.allclose(one, other, atol=1e-3)


def main() -> None:
    args = option_parser(
        __doc__, healthy=500, bad=50, seed=0, variants=",".join(VARIANTS)
    ).parse_args()
    num_wrong = 0
    for name in args.variants.split(","):
        started_s = time.monotonic()
        with tempfile.TemporaryDirectory() as directory:
            found = differences(VARIANTS[name], Path(directory), args.healthy, args.bad, args.seed)
        num_wrong += len(found)
        print(
            f"{name}: {args.healthy} healthy requests with {args.bad} bad ones: {len(found)} wrong "
            f"({time.monotonic() - started_s:.0f} s)", *found[:3], sep="\n  ", flush=True,
        )  # fmt: skip
    sys.exit(1 if num_wrong else 0)


if __name__ == "__main__":
    main()
