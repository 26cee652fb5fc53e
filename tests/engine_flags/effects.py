"""Effects of flags, as clients of a running engine see them: a function for each flag or group of flags."""

import json
import random
import time
from typing import Any

import psutil
from tests.engine_flags.service_engine import NAME, Engine

from penstock.core.adapters.adapter import AdapterVersion

LONG = {"max_tokens": 60, "ignore_eos": True}
TOOL = {"type": "function", "function": {"name": "now"}}
MAX_TOKENS = 60  # spec.engine.generation.defaults.maxTokens
CALL = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'


def has_cache_config(**labels: str) -> Any:
    """Check of labels of vllm:cache_config_info."""

    def check(engine: Engine) -> None:
        assert engine.cache_config.items() >= labels.items()

    return check


def logs(text: str) -> Any:
    """Check that the log has a text."""

    def check(engine: Engine) -> None:
        assert text in engine.log

    return check


def model_is_served(engine: Engine) -> None:
    (card, *_) = engine.client.get("/v1/models").json()["data"]
    assert card["id"] == NAME
    assert engine.complete(model=NAME)["usage"]["completion_tokens"] > 0


def context_is_512(engine: Engine) -> None:
    (card, *_) = engine.client.get("/v1/models").json()["data"]
    assert card["max_model_len"] == 512


def seeds_follow_the_seed(engine: Engine) -> None:
    """The first request without a seed gets the first number of the generator. Run it first."""
    own = engine.complete(temperature=1, **LONG)
    drawn = engine.complete(temperature=1, seed=random.Random(7).getrandbits(63), **LONG)
    assert own["choices"] == drawn["choices"]


def cache_has_64_mib(engine: Engine) -> None:
    assert 63 << 20 < int(engine.cache_config["kv_cache_memory_bytes"]) <= 64 << 20


def template_is_the_models(engine: Engine) -> None:
    """The tokenizer's folder is the model's, by its path in the pod."""
    assert "Hi." in engine.prompt()


def answers_are_traced(engine: Engine) -> None:
    """Spans are exported every few seconds; a drain exports the rest. Run it last."""
    engine.complete()
    engine.process.terminate()
    engine.process.join(20)
    assert engine.span_sink is not None
    assert engine.span_sink.named("llm_request")


def nothing_is_reused(engine: Engine) -> None:
    prompt = "the engine " * 40
    assert engine.cache_config["enable_prefix_caching"] == "False"
    for _ in range(2):
        usage = engine.complete(prompt=prompt)["usage"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}


def evicted_blocks_are_saved(engine: Engine) -> None:
    """Prompts that fill the KV cache evict the first ones, whose blocks are copied to host memory."""
    for number in range(8):
        engine.complete(prompt=[number + 9] * 300, max_tokens=1)
    assert engine.metric("penstock:kv_copy_choices_total", choice="save") > 0


def block_events_are_published(engine: Engine) -> None:
    """A prompt with full blocks is published, soon after its answer."""
    engine.complete(prompt=[9] * 100, max_tokens=1)
    deadline_s = time.monotonic() + 20
    while not engine.metric("penstock:kv_event_batches_total", outcome="published"):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def logprobs_are_bounded(engine: Engine) -> None:
    body = {"prompt": "The engine", "max_tokens": 2}
    assert engine.post("/v1/completions", **body, logprobs=3).status_code == 200
    assert engine.post("/v1/completions", **body, logprobs=4).status_code == 400


def choices_are_bounded(engine: Engine) -> None:
    body = {"prompt": "The engine", "max_tokens": 2}
    assert engine.post("/v1/completions", **body, n=2).status_code == 200
    answer = engine.post("/v1/completions", **body, n=3)
    assert answer.status_code == 400
    assert "--max-n-sequences" in answer.text


def calls_are_parsed(engine: Engine) -> None:
    """The answer is the text of a call; without the parser it would be content."""
    (choice,) = engine.chat(
        tools=[TOOL],
        tool_choice="auto",
        structured_outputs={"choice": [CALL]},
        max_tokens=MAX_TOKENS,
    )["choices"]
    assert "tool_calls" in choice["message"], choice
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "now"


def reasoning_is_separate(engine: Engine) -> None:
    begun = {"role": "assistant", "content": "<think>The water"}
    answer = engine.chat(
        messages=[{"role": "user", "content": "Why?"}, begun], continue_final_message=True,
        add_generation_prompt=False, ignore_eos=True,
    )  # fmt: skip
    message = answer["choices"][0]["message"]
    assert message["reasoning"]
    assert message["content"] is None


def template_is_used(engine: Engine) -> None:
    assert "LOUD" in engine.prompt()


def template_has_variables(engine: Engine) -> None:
    assert "warm: " in engine.prompt()


def content_is_parts(engine: Engine) -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hi."}]}]
    assert "PARTS" in engine.prompt(messages=parts)


def tools_are_hidden(engine: Engine) -> None:
    hidden, plain = (
        engine.chat(**body)["usage"]["prompt_tokens"]
        for body in ({"tools": [TOOL], "tool_choice": "none"}, {})
    )
    assert hidden == plain


def template_is_shown(engine: Engine) -> None:
    described = engine.client.get("/tokenizer_info").json()
    assert "LOUD" in described["chat_template"]


def models_defaults_are_unused(engine: Engine) -> None:
    """The model's file has temperature 0, with which equal requests have equal answers."""
    first, second = (engine.complete(**LONG) for _ in range(2))
    assert first["choices"] != second["choices"]


def answers_are_capped(engine: Engine) -> None:
    usage = engine.complete(max_tokens=90, ignore_eos=True)["usage"]
    assert usage["completion_tokens"] == MAX_TOKENS


def request_ids_are_absent(engine: Engine) -> None:
    assert "x-request-id" not in engine.post("/v1/completions", prompt="a", max_tokens=1).headers


def tokens_are_ids(engine: Engine) -> None:
    found = engine.complete(logprobs=1)["choices"][0]["logprobs"]["tokens"]
    assert all(token.startswith("token_id:") for token in found)


def streams_have_usage(engine: Engine) -> None:
    answer = engine.post("/v1/completions", prompt="The", max_tokens=3, stream=True)
    chunks = [json.loads(line[6:]) for line in answer.text.split("\n\n") if line[6:7] == "{"]
    assert all(chunk["usage"] for chunk in chunks)


def answers_have_times(engine: Engine) -> None:
    answer = engine.post("/v1/completions", prompt="The", max_tokens=3).json()
    assert answer["metrics"]["tokens_per_second"] > 0


def engine_can_sleep(engine: Engine) -> None:
    assert engine.client.get("/is_sleeping").json() == {"is_sleeping": False}


def responses_are_stored(engine: Engine) -> None:
    made = engine.post("/v1/responses", input="Hi.", max_output_tokens=3).json()
    assert engine.client.get(f"/v1/responses/{made['id']}").json()["id"] == made["id"]


def pages_may_ask(engine: Engine) -> None:
    asks = {
        "origin": "http://page", "access-control-request-method": "POST",
        "access-control-request-headers": "x-mine",
    }  # fmt: skip
    allowed = engine.client.options("/v1/completions", headers=asks).headers
    assert allowed["access-control-allow-origin"] == "http://page"
    assert allowed["access-control-allow-methods"] == "POST"
    assert "x-mine" in allowed["access-control-allow-headers"].lower()
    assert allowed["access-control-allow-credentials"] == "true"


def adapter_path(engine: Engine, name: str) -> str:
    """Path of an adapter in the model's folder, which is the default source."""
    return AdapterVersion("a", f"file://{engine.model_dir}/{name}").engine_path


def adapters_are_loaded(engine: Engine) -> None:
    """The engine has one adapter in a step and two in memory, and refuses one of rank 32."""
    statuses = [
        engine.post(
            "/v1/load_lora_adapter", lora_name=name, lora_path=adapter_path(engine, name)
        ).status_code
        for name in ("poetry", "wide")
    ]
    assert statuses == [200, 400]
    for name in ("law", "poetry"):
        engine.complete(model=name)
    adapters = engine.client.get("/v1/adapters").json()["data"]
    assert {each["id"]: each["tier"] for each in adapters} == {"law": "host", "poetry": "device"}


def requests_are_not_logged(engine: Engine) -> None:
    engine.complete()
    assert "completion_tokens" not in engine.log


def log_is_text(engine: Engine) -> None:
    assert not engine.log.splitlines()[-1].startswith("{")


def drafts_are_accepted(engine: Engine) -> None:
    """The draft model is the model itself, so a greedy answer accepts what it proposes."""
    engine.complete(temperature=0, **LONG)
    proposed = engine.metric("vllm:spec_decode_num_draft_tokens_total")
    assert engine.metric("vllm:spec_decode_num_accepted_tokens_total") > proposed / 2 > 0


def worker_processes(num_ranks: int) -> Any:
    """Check of the number of processes that compute the model."""

    def check(engine: Engine) -> None:
        children = psutil.Process(engine.process.pid).children()
        ranks = [
            each
            for each in children
            if "penstock_engine.execution.parallel.worker" in each.cmdline()
        ]
        assert len(ranks) == num_ranks - 1
        assert engine.complete()["choices"]

    return check


def weights_are_in_8_bits(engine: Engine) -> None:
    assert "float32, int8 weights" in engine.log
    assert engine.complete(temperature=0)["choices"]
