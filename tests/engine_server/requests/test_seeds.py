"""Tests of the seeds that the engine gives to requests without one."""

from typing import Any

import httpx
import pytest

BODY = {"prompt": "The engine", "max_tokens": 12, "temperature": 1, "ignore_eos": True}


def first_answers(client: httpx.Client) -> list[str]:
    answers = [client.post("/v1/completions", json=BODY).json() for _ in range(2)]
    return [answer["choices"][0]["text"] for answer in answers]


@pytest.mark.parametrize(("seed", "is_replayed"), [(None, False), (3, True)])
def test_answers_repeat_after_a_restart_only_with_an_engine_seed(
    launch: Any, seed: int | None, is_replayed: bool
) -> None:
    """A fixed default seed would make all replicas give the same answers, also after restarts."""
    draws = []
    for _ in range(2):
        client, process = launch("--max-model-len", "2048", seed=seed)
        draws.append(first_answers(client))
        process.terminate()
        process.join(30)
    assert draws[0][0] != draws[0][1]
    assert (draws[0] == draws[1]) == is_replayed
