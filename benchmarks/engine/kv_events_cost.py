"""Cost of block events: time of the scheduler in a step, and of a whole engine.

    python -m benchmarks.engine.kv_events_cost [--rounds 7]

scheduler   schedules and completes steps of 64 sequences without a model, without events and with events that
            a publisher sends to a subscriber which reads them. The time is that of the scheduler's thread; of
            several rounds the lowest, as other programs only add to it.
engine      the engine's loop with the tests' small model on the CPU: processor time of the same 32 requests
            without and with events, in turns. It has that of the publisher and the subscriber too.

Exits with 1 if a scheduler's step takes more than MAX_STEP_US longer with events.
"""

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import torch
import zmq
from benchmarks.options import option_parser
from tests.support.engine.tiny_model import make_tiny_model

from penstock_engine.core.kv_cache.block_events import BlockEvent
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.scheduler_config import SchedulerConfig
from penstock_engine.core.sequence import Sequence
from penstock_engine.core.step import SequenceOutput
from penstock_engine.execution.runner import Runner
from penstock_engine.kv_events.config import KVEventsConfig
from penstock_engine.kv_events.encoding import BatchEncoder
from penstock_engine.kv_events.publisher import EventPublisher
from penstock_engine.loop.engine_loop import EngineLoop, StepReport
from penstock_engine.machine.device import DeviceMemory
from penstock_engine.memory.plan import plan_memory
from penstock_engine.options.config import EngineConfig
from penstock_engine.server.configs import runner_config, scheduler_config

BLOCK_SIZE = 16
NUM_SEQUENCES, NUM_PROMPT_TOKENS, NUM_OUTPUT_TOKENS = 64, 512, 128
# Bound on the increase of a step of 64 sequences: 1 % of the shortest steps of GPUs, 5 ms.
MAX_STEP_US = 50.0
NUM_REQUESTS, NUM_REQUEST_TOKENS = 32, 64

Publish = Callable[[list[BlockEvent]], None]


def main() -> int:
    args = option_parser(__doc__, rounds=7).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        added_us = measure_scheduler(args.rounds, f"ipc://{folder}/scheduler")
        measure_engine(args.rounds, f"ipc://{folder}/engine")
    return int(added_us > MAX_STEP_US)


def measure_scheduler(num_rounds: int, endpoint: str) -> float:
    """Print the times of a step. Returns the increase in microseconds."""
    config = KVEventsConfig(enable_kv_cache_events=True, endpoint=endpoint)
    publisher = EventPublisher(config, BatchEncoder(BLOCK_SIZE, None), lambda _: None)
    stop = start_subscriber(endpoint)
    pairs = [
        (step_us(number, None), step_us(number, publisher.publish)) for number in range(num_rounds)
    ]
    stop()
    publisher.close()
    off, on = (min(column) for column in zip(*pairs, strict=True))
    print(f"scheduler: {off:.0f} us a step without events, {on:.0f} with")
    return on - off


def step_us(seed: int, publish: Publish | None) -> float:
    """Mean time of the thread in one step, from the first prompt to the last token."""
    scheduler = Scheduler(
        SchedulerConfig(
            max_num_seqs=NUM_SEQUENCES, max_num_batched_tokens=2048, max_model_len=4096,
            block_size=BLOCK_SIZE, num_blocks=2200, block_events=publish is not None,
        )
    )  # fmt: skip
    random = Random(seed)  # the same prompts with and without events
    sampling = SamplingParams(max_tokens=NUM_OUTPUT_TOKENS)
    for index in range(2 * NUM_SEQUENCES):
        prompt = [random.randrange(100_000) for _ in range(NUM_PROMPT_TOKENS)]
        scheduler.add(Sequence(str(index), prompt, sampling, frozenset(), 0.0))
    num_steps, spent_s = 0, 0.0
    while scheduler.has_work:
        started_s = time.thread_time()
        step = scheduler.schedule(0.0)
        assert step is not None
        spent_s += time.thread_time() - started_s
        outputs = {s.request_id: SequenceOutput((7,)) for s in step.sequences if s.is_sampled}
        started_s = time.thread_time()
        scheduler.complete(step, outputs, 0.0)
        if publish is not None and (events := scheduler.take_block_events()):
            publish(events)
        spent_s += time.thread_time() - started_s
        num_steps += 1
    return 1e6 * spent_s / num_steps


def measure_engine(num_rounds: int, endpoint: str) -> None:
    """Print the processor time of the engine's loop without and with events."""
    torch.set_num_threads(1)  # further ones spin while they wait for other programs
    config = KVEventsConfig(enable_kv_cache_events=True, endpoint=endpoint)
    publisher = EventPublisher(config, BatchEncoder(BLOCK_SIZE, None), lambda _: None)
    stop = start_subscriber(endpoint)
    with tempfile.TemporaryDirectory() as folder:
        model_dir = Path(folder) / "model"
        make_tiny_model(model_dir)
        engine = EngineConfig(model_dir=model_dir, max_num_seqs=32, num_gpu_blocks_override=1000)
        memory = DeviceMemory(total_bytes=4 << 30)
        plan = plan_memory(engine, device_name="cpu", memory=memory)
        runner = Runner.load(runner_config(engine, plan))
        config_off = scheduler_config(engine, plan)
        config_on = replace(config_off, block_events=True)
        loops = [(config_off, None), (config_on, publisher.publish)]
        cpu_s(runner, config_off, None, -1)
        pairs = []
        for number in range(num_rounds):
            order = loops if number % 2 else loops[::-1]
            found = [cpu_s(runner, *loop, number) for loop in order]
            pairs.append(found if number % 2 else found[::-1])
    stop()
    publisher.close()
    off, on = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratios = [with_events / without for without, with_events in pairs]
    print(
        f"engine: {off:.2f} s without events, {on:.2f} with; ratio {statistics.median(ratios):.3f} "
        f"({min(ratios):.3f} to {max(ratios):.3f} in {num_rounds} rounds)"
    )


def cpu_s(runner: Runner, config: SchedulerConfig, publish: Publish | None, seed: int) -> float:
    """Processor time of the process for requests with prompts that no other round has."""
    is_done = threading.Event()
    num_ended = 0

    def on_step(report: StepReport) -> None:
        nonlocal num_ended
        num_ended += sum(event.finish_reason is not None for event in report.events)
        if num_ended == NUM_REQUESTS:
            is_done.set()

    loop = EngineLoop(Scheduler(config), runner, on_step=on_step, on_block_events=publish)
    random = Random(seed)  # the same prompts without and with events
    sampling = SamplingParams(max_tokens=NUM_REQUEST_TOKENS, temperature=0.0, ignore_eos=True)
    loop.start()
    started_s, now_s = time.process_time(), time.monotonic()
    for index in range(NUM_REQUESTS):
        prompt = [random.randrange(100, 1000) for _ in range(128)]
        loop.submit(Sequence(f"{seed}-{index}", prompt, sampling, frozenset(), now_s))
    is_done.wait()
    duration_s = time.process_time() - started_s
    loop.stop()
    return duration_s


def start_subscriber(endpoint: str) -> Callable[[], None]:
    """Start a thread that receives all messages. Returns a function that ends it."""
    context: zmq.Context[Any] = zmq.Context()
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    socket.connect(endpoint)
    is_over = threading.Event()

    def receive() -> None:
        while not is_over.is_set():
            if socket.poll(50):
                socket.recv_multipart()

    thread = threading.Thread(target=receive)
    thread.start()

    def stop() -> None:
        is_over.set()
        thread.join()
        context.destroy(linger=0)

    return stop


if __name__ == "__main__":
    sys.exit(main())
