"""Tests of block events of real engines: prompts, replays, resets, restarts and adapters."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.engine_server.kv_events.vllm_subscriber import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    Subscriber,
    subscriber,
    wait_until,
)
from tests.support.engine.engine_process import start_engine

from penstock_engine.make_model.adapters import make_adapters

WORDS = " ".join(f"penstock {number}" for number in range(20))
GREEDY = {"max_tokens": 1, "temperature": 0}


class Sockets:
    """The endpoints of an engine, and the flag for them."""

    def __init__(self, folder: Path) -> None:
        self.events, self.replay = f"ipc://{folder}/pub", f"ipc://{folder}/replay"
        config = {
            "enable_kv_cache_events": True, "endpoint": self.events, "replay_endpoint": self.replay,
        }  # fmt: skip
        self.flags = ["--max-model-len", "2048", "--kv-events-config", json.dumps(config)]


@pytest.fixture(scope="module")
def sockets() -> Iterator[Sockets]:
    with tempfile.TemporaryDirectory() as folder:  # a socket's path has at most 107 bytes
        yield Sockets(Path(folder))


@pytest.fixture(scope="module")
def publishing(launch: Any, sockets: Sockets) -> httpx.Client:
    client: httpx.Client
    client, _ = launch(*sockets.flags, "--enable-sleep-mode", "--block-size", "8")
    return client


def complete(client: httpx.Client, prompt: str, **fields: Any) -> Any:
    answer = client.post("/v1/completions", json=GREEDY | {"prompt": prompt} | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def tokens_of(client: httpx.Client, prompt: str) -> list[int]:
    tokens: list[int] = client.post("/tokenize", json={"prompt": prompt}).json()["tokens"]
    return tokens


def num_batches(client: httpx.Client, outcome: str) -> float:
    lines = client.get("/metrics").text.splitlines()
    name = "penstock:kv_event_batches_total"
    [line] = [each for each in lines if each.startswith(name) and f'outcome="{outcome}"' in each]
    return float(line.split()[-1])


def all_events(receiver: Subscriber, sockets: Sockets) -> list[Any]:
    batches = receiver.replay(sockets.replay, 0)
    return [event for _, batch in batches for event in batch.events]


def cached_hashes(events: list[Any]) -> set[Any]:
    """The hashes that a subscriber knows after these events, each stored after its parent."""
    cached: set[Any] = set()
    for event in events:
        if isinstance(event, BlockStored):
            assert cached.isdisjoint(event.block_hashes)
            assert event.parent_block_hash is None or event.parent_block_hash in cached
            cached |= {*event.block_hashes}
        elif isinstance(event, BlockRemoved):
            assert cached.issuperset(event.block_hashes)
            cached -= {*event.block_hashes}
        else:
            cached.clear()
    return cached


def after_reset(client: httpx.Client, receiver: Subscriber, sockets: Sockets) -> int:
    """Empties the prefix cache. Returns the number of events up to then: other tests used the engine."""
    complete(client, "a prompt of at least one block, which a reset clears")
    assert client.post("/reset_prefix_cache").status_code == 200
    wait_until(lambda: all_events(receiver, sockets)[-1:] == [AllBlocksCleared()])
    return len(all_events(receiver, sockets))


def test_a_prompt_is_stored_once_in_full_blocks(publishing: httpx.Client, sockets: Sockets) -> None:
    tokens = tokens_of(publishing, WORDS)
    num_blocks = len(tokens) // 8
    with subscriber(sockets.events) as receiver:
        num_before = after_reset(publishing, receiver, sockets)
        for _ in range(2):
            complete(publishing, WORDS)
        publishing.post("/reset_prefix_cache")  # the last event, once all before it are published
        wait_until(lambda: len(all_events(receiver, sockets)) > num_before)
        wait_until(lambda: all_events(receiver, sockets)[-1:] == [AllBlocksCleared()])
        *events, _ = all_events(receiver, sockets)[num_before:]
        num_published = num_batches(publishing, "published")
        assert num_published == receiver.replay(sockets.replay, 0)[-1][0] + 1
        assert num_batches(publishing, "dropped") == 0

    assert sum(len(event.block_hashes) for event in events) == num_blocks > 3
    assert [token for event in events for token in event.token_ids] == tokens[: num_blocks * 8]
    assert events[0].parent_block_hash is None
    assert (events[0].block_size, events[0].group_idx, events[0].medium) == (8, 0, "GPU")
    assert events[0].extra_keys == [None] * len(events[0].block_hashes)
    assert events[0].kv_cache_spec_kind == "full_attention"
    assert len(cached_hashes(events)) == num_blocks


def test_the_salt_is_an_extra_key_of_the_first_block(
    publishing: httpx.Client, sockets: Sockets
) -> None:
    with subscriber(sockets.events) as receiver:
        num_before = after_reset(publishing, receiver, sockets)
        complete(publishing, WORDS)
        complete(publishing, WORDS, cache_salt="tenant")
        wait_until(lambda: len(all_events(receiver, sockets)) >= num_before + 2)
        plain, first = all_events(receiver, sockets)[num_before : num_before + 2]

    assert first.extra_keys == [("tenant",), *[None] * (len(first.block_hashes) - 1)]
    assert not {*first.block_hashes} & {*plain.block_hashes}


@pytest.mark.parametrize(
    "paths", [["/reset_prefix_cache"], ["/sleep", "/wake_up"]], ids=["reset", "sleep"]
)
def test_a_reset_and_a_sleep_clear_all_blocks(
    publishing: httpx.Client, sockets: Sockets, paths: list[str]
) -> None:
    with subscriber(sockets.events) as receiver:
        num_before = after_reset(publishing, receiver, sockets)
        complete(publishing, WORDS)
        for path in paths:
            assert publishing.post(path).status_code == 200
        wait_until(lambda: len(all_events(receiver, sockets)) > num_before)
        wait_until(lambda: not cached_hashes(all_events(receiver, sockets)))
        events = all_events(receiver, sockets)
        complete(publishing, WORDS)
        wait_until(lambda: cached_hashes(all_events(receiver, sockets)))

    assert events[-1] == AllBlocksCleared()


def test_evicted_blocks_are_removed(launch: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sockets = Sockets(Path(folder))
        client, _ = launch(
            *sockets.flags, "--max-model-len", "128", "--num-gpu-blocks-override", "8"
        )
        with subscriber(sockets.events) as receiver:
            for number in range(6):
                complete(client, f"{number} {WORDS}")

            def has_removal() -> bool:
                return any(isinstance(e, BlockRemoved) for e in all_events(receiver, sockets))

            wait_until(has_removal)
            events = all_events(receiver, sockets)

    assert 0 < len(cached_hashes(events)) <= 8


def test_a_restarted_engine_starts_at_0(launch: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sockets = Sockets(Path(folder))
        client, process = launch(*sockets.flags)
        with subscriber(sockets.events) as receiver:
            numbers = [first_number(client, receiver, "a")]
            complete(client, f"again {WORDS}")
            numbers.append(receiver.receive()[0])
            process.kill()
            process.join()
            client, _ = launch(*sockets.flags)
            restarted = first_number(client, receiver, "b")
            replayed = receiver.replay(sockets.replay, 0)

    assert numbers[1] == numbers[0] + 1
    assert (replayed[0][0], replayed[-1][0]) == (0, restarted)


def first_number(client: httpx.Client, receiver: Subscriber, word: str) -> int:
    """Sends prompts until the subscriber gets a batch. Returns its number."""
    for number in range(1000):
        complete(client, f"{word} {number} {WORDS}")
        if receiver.socket.poll(20):
            return receiver.receive()[0]
    pytest.fail("nothing is received")


def test_adapters_have_blocks_of_their_own(launch: Any, model_dir: Path, tmp_path: Path) -> None:
    folders = make_adapters(model_dir, tmp_path, 2, rank=4)
    modules = [
        json.dumps({"name": name, "path": str(each)})
        for name, each in zip("ab", folders, strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        sockets = Sockets(Path(folder))
        client, _ = launch(*sockets.flags, "--enable-lora", "--lora-modules", *modules)
        with subscriber(sockets.events) as receiver:
            for model in ("soup", "a", "b"):
                complete(client, WORDS, model=model)

            def has_all() -> bool:
                return len({e.lora_name for e in all_events(receiver, sockets)}) == 3

            wait_until(has_all)
            events = all_events(receiver, sockets)

    found = {event.lora_name: event for event in events}
    hashes = [hash_ for event in events for hash_ in event.block_hashes]
    assert found.keys() == {None, "a", "b"}
    assert found["a"].lora_id != found["b"].lora_id
    assert found[None].lora_id is None
    assert found["a"].extra_keys == [("a",)] * len(found["a"].block_hashes)
    assert len(hashes) == len({*hashes})
    assert found["a"].token_ids == found["b"].token_ids


def test_a_bad_endpoint_ends_the_engine_with_the_flag(model_dir: Path, tmp_path: Path) -> None:
    config = {"enable_kv_cache_events": True, "endpoint": "ipc:///nowhere/at/all"}
    log = tmp_path / "log"
    process = start_engine([str(model_dir), "--kv-events-config", json.dumps(config)], log)
    process.join()

    assert process.exitcode == 1
    assert "BadArguments: --kv-events-config: No such file" in log.read_text()
    assert "/nowhere/at/all" in log.read_text()
