"""Tests of validation and derived limits of the scheduler's configuration."""

import pytest

from penstock_engine.core.scheduler_config import SchedulerConfig


def config(**changes: object) -> SchedulerConfig:
    values = {
        "max_num_seqs": 1, "max_num_batched_tokens": 1, "max_model_len": 2, "block_size": 1,
        "num_blocks": 2, "max_num_queued_seqs": 1, "window_tokens": 1,
    }  # fmt: skip
    return SchedulerConfig(**(values | changes))  # type: ignore[arg-type]


def test_the_minimum_of_each_setting_is_allowed() -> None:
    assert config(window_tokens=None).window_tokens is None
    assert config().max_num_tokens == config().max_num_open_seqs == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs must be at least 1"),
        ({"max_num_batched_tokens": 0}, "max_num_batched_tokens must be at least 1"),
        ({"max_num_queued_seqs": 0}, "max_num_queued_seqs must be at least 1"),
        ({"window_tokens": 0}, "sees at least itself"),
        ({"max_model_len": 1}, "room for a prompt token and a generated one"),
        ({"num_blocks": 1}, "room for a prompt token and a generated one"),
    ],
    ids=str,
)
def test_settings_below_the_minimum_are_rejected(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(**changes)


@pytest.mark.parametrize(("max_model_len", "most"), [(11, 11), (12, 12), (13, 12)])
def test_max_num_tokens_is_limited_by_model_and_pool(max_model_len: int, most: int) -> None:
    assert config(max_model_len=max_model_len, block_size=4, num_blocks=3).max_num_tokens == most


def test_max_num_open_seqs_is_running_plus_queued() -> None:
    assert config(max_num_seqs=3, max_num_queued_seqs=4).max_num_open_seqs == 7
