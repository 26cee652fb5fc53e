"""Real processes: what they compute, who can reach them, and how they end."""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import transformers
from safetensors.torch import load_file, save_file

from penstock_engine.core.errors import ModelError, RunnerDiedError
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.execution.runner import Runner
from penstock_engine.execution.runner_config import RunnerConfig
from penstock_engine.lora.checkpoint import Adapter
from penstock_engine.models.shard import ONE_RANK, Layout

# Few blocks, so that some are evicted to the host and some sequences are preempted.
SIZES: dict[str, Any] = {
    "num_blocks": 20, "block_size": 8, "max_num_seqs": 8, "max_num_batched_tokens": 32,
    "max_model_len": 128, "num_host_blocks": 16, "max_adapters": 1,
}  # fmt: skip
MIB = 2**20
END_TIMEOUT_S = 10


def load(
    model_dir: Path, layout: Layout, on_rank_exit: Callable[[], None] = lambda: None, **more: Any
) -> Runner:
    config = RunnerConfig(
        model_dir=model_dir, device="cpu", dtype="float32", layout=layout, **SIZES, **more
    )
    return Runner.load(config, on_rank_exit=on_rank_exit)


def generate(
    runner: Runner, adapter: str = "", **sampling: Any
) -> tuple[dict[str, list[int]], dict[str, int]]:
    """Every output of two rounds of the same prompts, and how many blocks were moved how.

    adapter: of every other one.
    """
    scheduler = Scheduler(SchedulerConfig(**SIZES))
    outputs: dict[str, list[int]] = {}
    moved = dict.fromkeys(("saves", "restores"), 0)
    for turn in range(2):
        for index in range(6):
            prompt = [(7 * index * i + i) % 512 for i in range(3 + 11 * index)]
            params = SamplingParams(max_tokens=12, ignore_eos=True, seed=index, **sampling)
            name = f"{turn}/{index}"
            scheduler.add(
                Sequence(
                    name, prompt, params, frozenset(), 0.0, adapter=adapter if index % 2 else ""
                )
            )
            outputs[name] = []
        while (step := scheduler.schedule(0.0)) is not None:
            moved = {
                kind: count + len(getattr(step.block_copies, kind)) for kind, count in moved.items()
            }
            for event in scheduler.complete(step, runner.run(step), 0.0):
                outputs[event.request_id] += event.token_ids
    scheduler.check()
    return outputs, moved


def workers() -> list[psutil.Process]:
    """Live children: a process that ran other tests before may have dead ones."""
    alive = [p for p in psutil.Process().children() if p.status() != psutil.STATUS_ZOMBIE]
    return [p for p in alive if "penstock_engine.execution.parallel.worker" in p.cmdline()]


def all_end(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, END_TIMEOUT_S)[1]


@pytest.mark.parametrize(
    ("family", "layout"),
    [("qwen3", Layout(2)), ("gemma2", Layout(1, 2)), ("mixtral", Layout(2, 2, True))],
    ids=str,
)
def test_processes_draw_what_one_does(
    family_dir: Callable[[str], Path],
    make_adapter: Callable[[Mapping[str, tuple[int, int]]], Adapter],
    family: str,
    layout: Layout,
) -> None:
    """Greedily and not, adapted and not, with blocks that go to the host and come back."""
    alone = load(family_dir(family), ONE_RANK)
    spread = load(family_dir(family), layout)
    for runner in (alone, spread):
        runner.adapters.add("a", make_adapter(runner.adapters.targets))
    plain, _ = generate(alone, temperature=0.0)
    for sampling in (
        {"temperature": 0.0, "adapter": "a"},
        {"temperature": 0.9, "top_p": 0.9, "logprobs": 2},
    ):
        outputs, moved = generate(spread, **sampling)
        assert outputs == generate(alone, **sampling)[0]
        assert min(moved.values()) > 0
        assert outputs != plain
    spread.adapters.remove("a")
    assert spread.adapters.active == []
    processes = workers()
    assert len(processes) == layout.num_ranks - 1
    del spread, runner  # all references
    assert all_end(processes)


def test_a_rank_holds_its_share_of_the_weights(
    family_dir: Callable[[str], Path], tmp_path: Path
) -> None:
    """Memory for reading the checkpoint is released after loading."""
    config = transformers.Qwen3Config(
        vocab_size=4096, hidden_size=512, intermediate_size=1536, num_hidden_layers=8,
        num_attention_heads=8, num_key_value_heads=4, head_dim=64, tie_word_embeddings=False,
    )  # fmt: skip
    transformers.Qwen3ForCausalLM(config).save_pretrained(tmp_path)
    weights_bytes = sum(file.stat().st_size for file in tmp_path.glob("*.safetensors"))
    assert weights_bytes > 100 * MIB
    resident_bytes = []
    for model_dir in (family_dir("qwen3"), tmp_path):
        with closing(load(model_dir, Layout(2))):
            [worker] = workers()
            resident_bytes.append(worker.memory_info().rss)
    print(
        f"{[n / MIB for n in resident_bytes]} MiB resident, weights {weights_bytes / MIB:.0f} MiB"
    )
    assert 0.4 < (resident_bytes[1] - resident_bytes[0]) / weights_bytes < 0.65


def test_a_worker_that_dies_is_missed_at_once(family_dir: Callable[[str], Path]) -> None:
    is_lost = threading.Event()
    with closing(load(family_dir("qwen3"), Layout(2), on_rank_exit=is_lost.set)) as runner:
        [worker] = workers()
        worker.kill()
        assert is_lost.wait(END_TIMEOUT_S)
        for _ in range(2):
            with pytest.raises(RunnerDiedError):
                generate(runner)
        assert workers() == []


def test_an_orderly_end_is_no_loss(family_dir: Callable[[str], Path]) -> None:
    is_lost = threading.Event()
    runner = load(family_dir("qwen3"), Layout(2), on_rank_exit=is_lost.set)
    listening = [
        connection.laddr.ip
        for process in (*workers(), psutil.Process())
        for connection in process.net_connections()
        if connection.status == psutil.CONN_LISTEN
    ]
    assert set(listening) == {"127.0.0.1"}
    runner.close()
    runner.close()
    assert workers() == []
    assert not is_lost.is_set()


def test_what_is_wrong_with_the_part_of_another_rank_is_told(
    family_dir: Callable[[str], Path], tmp_path: Path
) -> None:
    """Rank 0 has no use for the last layer, and finds nothing amiss."""
    source = family_dir("qwen3")
    (tmp_path / "config.json").write_bytes((source / "config.json").read_bytes())
    tensors = load_file(source / "model.safetensors")
    del tensors["model.layers.2.mlp.down_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"no tensor model\.layers\.2\.mlp\.down_proj") as caught:
        load(tmp_path, Layout(1, 2))
    assert caught.value.reason == "BadWeights"
    assert workers() == []


def test_an_adapter_larger_than_a_message_is_added(
    family_dir: Callable[[str], Path],
    make_adapter: Callable[[Mapping[str, tuple[int, int]]], Adapter],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Adapters may exceed a message's bound: one of rank 256 for an 8B model exceeds 1 GiB."""
    with closing(load(family_dir("qwen3"), Layout(2))) as runner:
        adapter = make_adapter(runner.adapters.targets)
        limit_bytes = adapter.num_bytes // 4
        monkeypatch.setattr(
            "penstock_engine.execution.parallel.messages.MAX_MESSAGE_BYTES", limit_bytes
        )
        runner.adapters.add("a", adapter)
        outputs, _ = generate(runner, adapter="a", temperature=0.0)
    alone = load(family_dir("qwen3"), ONE_RANK)
    alone.adapters.add("a", adapter)
    assert outputs == generate(alone, adapter="a", temperature=0.0)[0]


def wait_for_line(caplog: pytest.LogCaptureFixture, text: str) -> None:
    deadline_s = time.monotonic() + END_TIMEOUT_S
    while text not in caplog.text:
        assert time.monotonic() < deadline_s, caplog.text
        time.sleep(0.05)


def test_a_stopped_worker_is_logged_while_rank_0_waits(
    family_dir: Callable[[str], Path],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock_engine.execution.parallel.workers.SLOW_STEP_S", 0.5)
    caplog.set_level("INFO")
    with closing(load(family_dir("qwen3"), Layout(2))) as runner:
        expected, _ = generate(runner)
        [worker] = workers()
        worker.suspend()
        with ThreadPoolExecutor(1) as threads:
            outputs = threads.submit(generate, runner)
            wait_for_line(caplog, "rank 1 is stopped")
            wait_for_line(caplog, "a step has taken more than")
            assert not outputs.done()
            worker.resume()
            assert outputs.result(END_TIMEOUT_S)[0] == expected
        wait_for_line(caplog, "rank 1 is no longer stopped")
    stopped = [line for line in caplog.messages if "is stopped" in line]
    assert len(stopped) == 1


def test_a_stopped_worker_does_not_hold_up_what_is_sent_for_ever(
    family_dir: Callable[[str], Path],
    make_adapter: Callable[[Mapping[str, tuple[int, int]]], Adapter],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The messages exceed the socket's buffer, so the send itself must time out."""
    monkeypatch.setattr(
        "penstock_engine.execution.parallel.workers.STEP_TIMEOUT", timedelta(seconds=0.5)
    )
    with closing(load(family_dir("qwen3"), Layout(2))) as runner:
        adapter = make_adapter(runner.adapters.targets)
        [worker] = workers()
        worker.suspend()

        def add_many() -> None:
            for index in range(100):
                runner.adapters.add(str(index), adapter)

        with pytest.raises(RunnerDiedError, match="out of step") as caught:
            add_many()
        assert isinstance(caught.value.__cause__, TimeoutError)
        assert workers() == []
