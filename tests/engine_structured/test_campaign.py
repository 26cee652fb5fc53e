"""Runs a twentieth of benchmarks/engine/structured_output.py, and compiles all its hostile cases."""

import asyncio
import importlib
from collections import Counter
from types import ModuleType
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from penstock_engine.server.requests.formats import StructuredOutputs
from penstock_engine.structured.compiler import GrammarCompiler
from penstock_engine.structured.grammar import GrammarError


@pytest.fixture(scope="module")
def campaign() -> ModuleType:
    return importlib.import_module("benchmarks.engine.structured_output")


@pytest.fixture(scope="module")
def client(launch: Any) -> httpx.Client:
    client, _ = launch("--max-model-len", "2048", "--max-num-seqs", "8")
    client.timeout = 120
    return client


def test_answers_satisfy_schemas_of_growing_depth(
    campaign: ModuleType, client: httpx.Client
) -> None:
    verdicts = campaign.keep_schemas(client, 16, seed=1)
    campaign.report("schemas", verdicts)
    outcomes = Counter(verdict.outcome for verdict in verdicts)
    assert outcomes["kept"] >= 14
    assert outcomes.keys() <= {"kept", "unfinished"}


def test_hostile_requests_do_not_harm_the_engine(
    campaign: ModuleType, client: httpx.Client
) -> None:
    cases = list(campaign.hostile())
    assert len(cases) >= 200
    verdicts, _ = campaign.harm(client, str(client.base_url), cases[::20])
    campaign.report("hostile", verdicts)
    assert {verdict.outcome for verdict in verdicts} <= {"kept", "refused", "unfinished"}
    assert client.get("/ready").status_code == 200


async def test_every_hostile_case_is_rejected_or_compiled(
    campaign: ModuleType, compiler: GrammarCompiler
) -> None:
    outcomes: Counter[str] = Counter()

    async def attempt(form: dict[str, Any]) -> None:
        try:
            grammar = StructuredOutputs.model_validate(form).grammar()
            compiled = await compiler.compile(grammar)
        except (GrammarError, ValidationError):
            outcomes["refused"] += 1
            return
        outcomes["compiled"] += 1
        compiled.new_constraint().fill(memoryview(bytearray(224)))

    cases = [form for _, form in campaign.hostile()]
    for first in range(0, len(cases), 4):
        await asyncio.gather(*map(attempt, cases[first : first + 4]))
    print(outcomes)
    assert outcomes["refused"] > 100
    assert outcomes["compiled"] > 50
