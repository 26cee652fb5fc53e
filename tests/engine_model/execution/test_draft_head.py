"""A head that drafts from the model's own hidden states: it changes no token, and learns to be right."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.speculation.config import SpeculationConfig
from penstock_engine.core.stats import SchedulerStats
from penstock_engine.execution.runner import Runner
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.execution.warm_up import kernel_steps

CONFIG = transformers.LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
    num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=512,
    architectures=["LlamaForCausalLM"], attn_implementation="sdpa",
)  # fmt: skip


class Head(nn.Module):
    """EAGLE's, after its paper, in transformers' parts."""

    def __init__(self, target: transformers.Qwen3ForCausalLM) -> None:
        super().__init__()
        self.fc = nn.Linear(64, 32, bias=False)
        self.layers = nn.ModuleList([LlamaDecoderLayer(CONFIG, 0)])
        self.layers[0].input_layernorm = nn.Identity()
        self.rotary = LlamaRotaryEmbedding(CONFIG)
        self.target = (target,)

    def forward(self, tokens: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """tokens: [batch, length], each behind its state: [batch, length, hidden]."""
        [target] = self.target
        x = self.fc(torch.cat((target.model.embed_tokens(tokens), states), -1))
        positions = torch.arange(x.shape[1])[None]
        hidden = self.layers[0](x, position_embeddings=self.rotary(x, positions))
        return hidden if isinstance(hidden, torch.Tensor) else hidden[0]

    def save(self, directory: Path) -> None:
        save_file(
            {name: value.contiguous() for name, value in self.state_dict().items()},
            directory / "model.safetensors",
        )
        (directory / "config.json").write_text(json.dumps(CONFIG.to_dict()))


def prompt(number: int) -> list[int]:
    return [(number * 7 + i * i) % 63 for i in range(1 + 4 * number)]


def train(head: Head, target: transformers.Qwen3ForCausalLM) -> None:
    """Train the head on the target model's greedy output: predict the token after the next one from the
    target's hidden state and the next token."""
    with torch.no_grad():
        starts = torch.tensor([[number % 63, 3 * number % 63] for number in range(48)])
        texts = target.generate(
            starts, attention_mask=torch.ones_like(starts), do_sample=False, max_new_tokens=40,
            min_new_tokens=40, pad_token_id=0, eos_token_id=None,
        )  # fmt: skip
        states = target.model(texts).last_hidden_state
        wanted = target.lm_head(states).argmax(-1)
    optimizer = torch.optim.Adam(head.parameters(), lr=3e-3)
    for _ in range(120):
        guesses = target.lm_head(head(texts[:, 1:], states[:, :-1]))
        loss = nn.functional.cross_entropy(guesses.flatten(0, 1), wanted[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.fixture(scope="module")
def target(qwen3_dir: Path) -> transformers.Qwen3ForCausalLM:
    return transformers.Qwen3ForCausalLM.from_pretrained(qwen3_dir).requires_grad_(False)


@pytest.fixture(scope="module", params=["random", "trained"])
def head_dir(
    target: transformers.Qwen3ForCausalLM,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Path:
    directory = tmp_path_factory.mktemp(request.param)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = Head(target)
        if request.param == "trained":
            train(head, target)
    head.save(directory)
    return directory


def generate(
    model_dir: Path,
    head_dir: Path | None,
    *,
    temperature: float = 0.0,
    num_drafts: int = 3,
    **limits: int,
) -> tuple[dict[str, list[int]], SchedulerStats]:
    sizes = {
        "num_blocks": 64, "block_size": 8, "max_model_len": 128, "max_num_seqs": 4,
        "max_num_batched_tokens": 40,
    } | limits  # fmt: skip
    speculation = None
    if head_dir is not None:
        speculation = SpeculationConfig(
            method="eagle", num_speculative_tokens=num_drafts, model=str(head_dir)
        )
    config = RunnerConfig(
        model_dir=model_dir, device="cpu", dtype="float32", draft_model_dir=head_dir,
        draft_method="eagle", **sizes,
    )  # fmt: skip
    runner = Runner.load(config)
    runner.warm_up(kernel_steps(config, []))  # as on a GPU; the head drafts in it, too
    scheduler = Scheduler(SchedulerConfig(**sizes, speculation=speculation))
    outputs: dict[str, list[int]] = {}
    for number in range(8):
        sampling = SamplingParams(
            max_tokens=30, temperature=temperature, seed=number, ignore_eos=True
        )
        scheduler.add(Sequence(str(number), prompt(number), sampling, frozenset({63}), 0.0))
        outputs[str(number)] = []
    while (step := scheduler.schedule(0.0)) is not None:
        for event in scheduler.complete(step, runner.run(step), 0.0):
            outputs[event.request_id] += event.token_ids
        scheduler.check()
    return outputs, scheduler.stats()


@pytest.mark.parametrize("temperature", [0.0, 0.4])
@pytest.mark.parametrize("limits", [{}, {"num_blocks": 14}, {"max_num_batched_tokens": 7}], ids=str)
def test_the_same_tokens_come_with_and_without_a_head(
    qwen3_dir: Path, head_dir: Path, limits: dict[str, int], temperature: float
) -> None:
    plain, _ = generate(qwen3_dir, None, temperature=temperature, **limits)
    drafted, stats = generate(qwen3_dir, head_dir, temperature=temperature, **limits)
    assert drafted == plain
    assert stats.draft_tokens > 0
    if "trained" in head_dir.name and temperature == 0 and not limits:
        assert stats.accepted_by_position[0] > 0.1 * stats.drafts


def test_its_guesses_are_those_of_the_paper(
    qwen3_dir: Path, head_dir: Path, target: transformers.Qwen3ForCausalLM
) -> None:
    """Chunks, blocks and the place in a batch change nothing: they are those for a whole text.

    But for one step in fifty, in which the controller wants none.
    """
    outputs, stats = generate(qwen3_dir, head_dir, num_drafts=1, max_num_batched_tokens=24)
    head = Head(target)
    head.load_state_dict(load_file(head_dir / "model.safetensors"))
    num_right = num_judged = 0
    for number, output in outputs.items():
        text = prompt(int(number)) + output
        tokens = torch.tensor([text])
        with torch.no_grad():
            states = target.model(tokens).last_hidden_state
            guesses = target.lm_head(head(tokens[:, 1:], states[:, :-1])).argmax(-1)[0].tolist()
        place = len(text) - len(output) + 1
        while place < len(text) - 1:
            is_right = guesses[place - 2] == text[place]
            num_judged += 1
            num_right += is_right
            place += 1 + is_right
    assert abs(stats.drafts - num_judged) <= 0.06 * num_judged
    assert abs(sum(stats.accepted_by_position) - num_right) <= 0.02 * num_judged
