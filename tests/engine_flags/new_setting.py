"""Program: a bound on the sequences of a step, from an InferenceService to the scheduler's steps.

test_new_setting.py runs it where the packages have this setting. It prints what it saw as JSON, or with
`revision` the revision of a service without it.
"""

import json
import sys
from dataclasses import fields
from pathlib import Path

from typer.main import get_command

from penstock.api.conversion.convert import InvalidService, to_core
from penstock.core.runtimes.flag_fields import in_fields
from penstock.core.runtimes.table import runtime_of
from penstock.core.spec.revision import revision_of
from penstock_engine.cli import app
from penstock_engine.core.sampling import SamplingParams
from penstock_engine.core.scheduler import Scheduler
from penstock_engine.core.sequence import Sequence
from penstock_engine.memory.plan import MemoryPlan
from penstock_engine.options.command_line import translate_vllm_args
from penstock_engine.options.config import EngineConfig
from penstock_engine.server.configs import scheduler_config

PLAN = MemoryPlan(
    model=None, device="cpu", dtype="float32", max_model_len=64, num_blocks=64, block_size=8,
    weights_bytes=1, kv_bytes_per_token=2, num_host_blocks=0, kv_dtype=None, window_tokens=None,
    max_num_seqs=8, max_num_batched_tokens=64,
)  # fmt: skip


def service(**engine):
    metadata = {
        "name": "chat", "namespace": "default", "uid": "u", "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    return {"metadata": metadata, "spec": {"model": {"uri": "pvc://models"}, "engine": engine}}


def scheduler_of(spec):
    """The scheduler of an engine with the arguments that the operator gives it."""
    command, *args = translate_vllm_args(runtime_of(spec.settings).serve_args(spec))
    values = get_command(app).commands[command].make_context(command, args).params
    options = {each.name: values[each.name] for each in fields(EngineConfig) if each.name in values}
    return Scheduler(scheduler_config(EngineConfig(model_dir=Path("m"), **options), PLAN))


def step_of_four(spec):
    """Number of sequences in the first step while four wait."""
    scheduler = scheduler_of(spec)
    for number in range(4):
        scheduler.add(
            Sequence(f"r{number}", [1, 2, 3], SamplingParams(max_tokens=8), frozenset(), 0.0)
        )
    return len(scheduler.schedule(0.0).sequences)


def refusal(**engine):
    try:
        to_core(service(**engine))
    except InvalidService as error:
        return str(error)


plain = to_core(service())
if sys.argv[1:] == ["revision"]:
    print(json.dumps(revision_of(plain)))
else:
    bounded = to_core(service(scheduling={"maxStepSeqs": 2}))
    print(
        json.dumps(
            {
                "settings": bounded.settings,
                "revisions": [revision_of(plain), revision_of(bounded)],
                "sequences": [step_of_four(plain), step_of_four(bounded)],
                "advice": in_fields("lower --max-step-seqs"),
                "refused_argument": refusal(extraArgs=["--max-step-seqs=2"]),
                "refused_value": refusal(scheduling={"maxStepSeqs": 0}),
            }
        )
    )
