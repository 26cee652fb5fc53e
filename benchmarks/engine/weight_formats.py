"""Measures speed and memory of the weight formats on this machine.

    python -m benchmarks.engine.weight_formats [--layers 24] [--hidden 1024] [--threads 2] [--rounds 10]
                                        [--formats float32,bfloat16,...] [--products]

A random model of Qwen3-0.6B's shape (0.39 billion weights in its products at 24 layers) is loaded in each
format. It decodes with a batch of 1 and of 8, with 256 tokens in the cache of each sequence, and prefills 256
tokens. The formats take turns, and tokens/s are those of the fastest step, to exclude other work on the
machine. Bytes are those of the weights with the tied embedding, which stays in the model's number type.

--products compares ways to multiply an int8 or int4 matrix on a CPU: torch's fused kernels, unpacking in
blocks before the product, and, as a reference, int8 with rounded activations. The engine does not use the
last one: it scales a whole batch by its largest value, so an answer would depend on the other sequences.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from penstock_engine.checkpoints.weights import PRODUCTS
from penstock_engine.layers.attention import Span
from penstock_engine.layers.gathered_attention import GatheredAttention
from penstock_engine.layers.kv_cache import KVCache
from penstock_engine.layers.moe import Experts
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.decoder import DecoderForCausalLM
from penstock_engine.quantization.linear_weight import make_linear_weight
from penstock_engine.quantization.rounding import RoundToNearest
from penstock_engine.quantization.weight import QuantizedWeight

BLOCK_SIZE = 16
CONTEXT_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Format:
    dtype: str
    quantization: str | None


FORMATS = {
    "float32": Format("float32", None),
    "bfloat16": Format("bfloat16", None),
    "int8 in bfloat16": Format("bfloat16", "int8"),
    "int4 in bfloat16": Format("bfloat16", "int4"),
    "int8 in float32": Format("float32", "int8"),
    "int4 in float32": Format("float32", "int4"),
}


def config(num_layers: int, hidden_size: int) -> ModelConfig:
    raw = {
        "architectures": ["Qwen3ForCausalLM"], "vocab_size": 32_000, "hidden_size": hidden_size,
        "intermediate_size": 3 * hidden_size, "num_hidden_layers": num_layers,
        "num_attention_heads": hidden_size // 64, "num_key_value_heads": max(1, hidden_size // 128),
        "head_dim": 128, "max_position_embeddings": 4096, "rope_theta": 1e6,
        "tie_word_embeddings": True,
    }  # fmt: skip
    return ModelConfig.parse(raw, {})


def make_model(shape: ModelConfig, form: Format) -> DecoderForCausalLM:
    dtype = getattr(torch, form.dtype)
    model = DecoderForCausalLM(shape, max_positions=4096, dtype=dtype, device="cpu")
    rounding = (
        RoundToNearest(form.quantization, form.dtype, PRODUCTS) if form.quantization else None
    )
    for name, module in list(model.named_modules()):
        assert not isinstance(module, Experts)
        for leaf, parameter in list(module.named_parameters(recurse=False)):
            values = torch.randn(parameter.shape) * 0.02 + ("norm" in name)
            is_product = leaf == "weight" and name.rpartition(".")[2] in PRODUCTS
            delattr(module, leaf)
            if rounding is not None and is_product:
                setattr(module, leaf, make_linear_weight([rounding.quantize(values)], dtype, "cpu"))
            else:
                parameter = torch.nn.Parameter(values.to(dtype), requires_grad=False)
                setattr(module, leaf, parameter)
    return model


def weight_bytes(model: DecoderForCausalLM) -> int:
    held = sum(m.memory_bytes() for m in model.modules() if isinstance(m, QuantizedWeight))
    return held + sum(parameter.nbytes for parameter in model.parameters())


def fastest_s(steps: Sequence[Callable[[], object]], num_rounds: int) -> list[float]:
    """Fastest time of each step in alternating rounds; the first round warms up."""
    fastest = [float("inf")] * len(steps)
    for turn in range(num_rounds + 1):
        for index, step in enumerate(steps):
            started = time.perf_counter()
            step()
            if turn:
                fastest[index] = min(fastest[index], time.perf_counter() - started)
    return fastest


def make_step(
    model: DecoderForCausalLM, shape: ModelConfig, dtype: torch.dtype, spans: list[Span]
) -> Callable[[], torch.Tensor]:
    num_blocks = 1 + max(block for span in spans for block in span.block_table)
    caches = [
        KVCache.zeros(spec.shape(num_blocks, BLOCK_SIZE), dtype, is_scaled=False, device="cpu")
        for spec in model.shard.kv_specs
    ]
    positions = torch.tensor([p for span in spans for p in range(span.start, span.end)])
    slots = torch.tensor(
        [
            span.block_table[p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE
            for span in spans
            for p in range(span.start, span.end)
        ]
    )
    token_ids = torch.randint(0, shape.vocab_size, (len(positions),))

    def step() -> torch.Tensor:
        attend = GatheredAttention(spans, slots, dtype=dtype)
        hidden = model(token_ids, positions, attend, caches)
        return model.logits(hidden[-len(spans) :])

    return step


def whole_models(args: argparse.Namespace) -> None:
    shape = config(args.layers, args.hidden)
    num_blocks = -(-(CONTEXT_TOKENS + 1) // BLOCK_SIZE)
    tables = [tuple(range(i * num_blocks, (i + 1) * num_blocks)) for i in range(8)]
    decode = [Span(CONTEXT_TOKENS, CONTEXT_TOKENS + 1, table) for table in tables]
    prefill = [Span(0, CONTEXT_TOKENS, tables[0])]
    workloads = (decode[:1], decode, prefill)
    names = args.formats.split(",")
    models = [make_model(shape, FORMATS[name]) for name in names]
    rates = []
    for spans in workloads:
        steps = [
            make_step(model, shape, getattr(torch, FORMATS[name].dtype), spans)
            for name, model in zip(names, models, strict=True)
        ]
        num_tokens = sum(span.num_tokens for span in spans)
        rates.append([num_tokens / seconds for seconds in fastest_s(steps, args.rounds)])
    print(f"{'':18} MiB of weights   tokens/s: decode 1   decode 8   prefill 256")
    for name, model, (one, eight, prompt) in zip(
        names, models, zip(*rates, strict=True), strict=True
    ):
        num_mib = weight_bytes(model) / 2**20
        print(f"{name:18} {num_mib:14.0f} {one:20.1f} {eight:10.1f} {prompt:13.1f}")


def products(args: argparse.Namespace) -> None:
    """Milliseconds of a [4 * hidden, hidden] product, over many matrices so that none stays in the cache."""
    shape = (4 * args.hidden, args.hidden)
    matrices = [torch.randn(shape) * 0.02 for _ in range(8)]
    print(
        f"{'rows':>5} {'':9} plain    int8: kernel  blocks  activations too   int4: kernel  blocks"
    )
    for num_rows in (1, 8, 16, 32, 64, 256):
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.randn(num_rows, shape[1], dtype=dtype)
            ways = product_ways(matrices, x)
            times = [1000 * t for t in fastest_s([_in_turn(way) for way in ways], args.rounds * 4)]
            number_type = str(dtype).removeprefix("torch.")
            print(
                f"{num_rows:5} {number_type:9} {times[0]:6.3f} {times[1]:15.3f} {times[2]:7.3f} "
                f"{times[3]:16.3f} {times[4]:14.3f} {times[5]:7.3f}",
                flush=True,
            )


def product_ways(
    matrices: list[torch.Tensor], x: torch.Tensor
) -> list[list[Callable[[], torch.Tensor]]]:
    """Calls of each way, one per matrix."""
    dtype = str(x.dtype).removeprefix("torch.")
    plain = [w.to(x.dtype) for w in matrices]
    int8, int4 = (
        [
            make_linear_weight([RoundToNearest(kind, dtype, ()).quantize(w)], x.dtype, "cpu")
            for w in matrices
        ]
        for kind in ("int8", "int4")
    )
    dynamic = [
        torch.ops.quantized.linear_prepack(
            torch.quantize_per_channel(
                w, w.abs().amax(1).double() / 127, torch.zeros(len(w), dtype=torch.int64), 0,
                torch.qint8,
            ), None,
        )
        for w in matrices
    ]  # fmt: skip
    full = x.float()
    return [
        [lambda w=w: F.linear(x, w) for w in plain],
        [lambda w=w: torch._weight_int8pack_mm(x, w.codes, w.scales[:, 0]) for w in int8],
        [lambda w=w: w._in_blocks(x) for w in int8],
        [lambda w=w: torch.ops.quantized.linear_dynamic(full, w) for w in dynamic],
        [
            lambda w=w: torch.ops.aten._weight_int4pack_mm_for_cpu(
                x, w.packed.view(len(w.scales_and_offsets[0]), -1), 128, w.scales_and_offsets
            )
            for w in int4
        ],
        [lambda w=w: w._in_blocks(x) for w in int4],
    ]


def _in_turn(calls: list[Callable[[], torch.Tensor]]) -> Callable[[], torch.Tensor]:
    turn = iter(range(10**9))
    return lambda: calls[next(turn) % len(calls)]()


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--products", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    (products if args.products else whole_models)(args)


if __name__ == "__main__":
    main()
