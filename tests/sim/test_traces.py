"""Readers of trace formats, on lines written here."""

import json
from pathlib import Path
from random import Random

import pytest

from penstock.sim.traces import azure, burstgpt, mooncake, servegen
from penstock.sim.traces.read import requests_of
from penstock.sim.traces.row import Row
from penstock.sim.traces.source import Trace


def test_azure_of_2023_has_seven_digits_and_of_2024_a_zone() -> None:
    lines = [
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "2023-11-16 18:00:00.2500000,100,20",
        "2024-05-10 00:00:01.500000+00:00,7,0",
    ]
    first, second = azure.rows(lines)
    assert (first.prompt_tokens, first.output_tokens) == (100, 20)
    assert first.at_s % 1 == pytest.approx(0.25, abs=1e-6)
    assert (second.prompt_tokens, second.output_tokens) == (7, 1)
    assert second.at_s % 60 == pytest.approx(1.5)


def test_burstgpt_skips_failed_requests() -> None:
    lines = [
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
        "5,ChatGPT,472,18,490,Conversation log",
        "45,GPT-4,1087,0,1087,API log",
    ]
    assert list(burstgpt.rows(lines)) == [Row(5.0, 472, 18)]


def test_mooncake_has_prefixes_and_milliseconds() -> None:
    line = json.dumps(
        {"timestamp": 2500, "input_length": 700, "output_length": 9, "hash_ids": [3, 8]}
    )
    assert list(mooncake.rows([line])) == [Row(2.5, 700, 9, (3, 8))]


def test_mooncakes_conversations_have_their_second_block_in_common() -> None:
    assert [mooncake.session_of(blocks) for blocks in ((0, 8, 9), (0, 8, 7), (0,), ())] == [
        "8",
        "8",
        "",
        "",
    ]


@pytest.fixture
def servegen_folder(tmp_path: Path) -> Path:
    """Folder with two clients, the second without lengths."""
    window = {"input_tokens": "{10: 0.5, 20: 0.5}", "output_tokens": "{3: 1.0}"}
    empty = {"input_tokens": "{}", "output_tokens": "{}"}
    for number, lengths in ((0, {"0": empty, "21600": window}), (1, {"0": empty})):
        (tmp_path / f"chunk-{number}-dataset.json").write_text(json.dumps(lengths))
        (tmp_path / f"chunk-{number}-trace.csv").write_text(
            "0,2.0,1.5,Gamma,0.4,1.1\n600,0,,,0,0\n1200,4.0,1.0,Exponential,0,0\n"
        )
    return tmp_path


def test_servegen_draws_from_the_windows_of_each_client(servegen_folder: Path) -> None:
    [client] = servegen.clients(servegen_folder)
    rows = list(servegen.rows([client], 0.0, 1800.0, 2.0, Random(0)))

    by_window = [sum(i * 600 <= row.at_s < (i + 1) * 600 for row in rows) for i in range(3)]
    assert by_window[1] == 0
    assert by_window[0] == pytest.approx(2 * 2.0 * 600, rel=0.15)
    assert by_window[2] == pytest.approx(2 * 4.0 * 600, rel=0.15)
    assert {row.prompt_tokens for row in rows} == {10, 20}
    assert {row.output_tokens for row in rows} == {3}


@pytest.mark.parametrize("scale", [0.25, 1.0, 2.5])
def test_a_rate_is_scaled_without_moving_time(tmp_path: Path, scale: float) -> None:
    path = tmp_path / "trace.csv"
    rows = "\n".join(f"{i},m,100,10,110,API log" for i in range(2000))
    path.write_text(
        f"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n{rows}\n"
    )

    trace = Trace(path=path, format="burstgpt", rate_scale=scale, from_s=500)
    requests, _ = requests_of(trace, 1000.0, Random(1))

    assert len(requests) == pytest.approx(1000 * scale, rel=0.1)
    arrivals = [request.arrival_s for request in requests]
    assert arrivals == sorted(arrivals)
    assert arrivals[0] >= 0
    assert arrivals[-1] <= 1010
