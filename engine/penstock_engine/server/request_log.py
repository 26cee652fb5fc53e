"""Request log: one JSON line on stdout for each finished choice, without its text."""

import json
import sys

from penstock_engine.server.answers import Json
from penstock_engine.server.generation import Choice


def log_line(model: str, request_id: str, choice: Choice, finish_reason: str) -> Json:
    """Returns the log entry of a finished choice."""
    ttft_s = tpot_s = None
    first_s, last_s = choice.first_token_s, choice.record.last_token_s
    if first_s is not None:
        ttft_s = first_s - choice.record.arrival_s
    if first_s is not None and last_s is not None and choice.completion_tokens > 1:
        tpot_s = (last_s - first_s) / (choice.completion_tokens - 1)
    line: Json = {
        "request_id": request_id,
        "model": model,
        "prompt_tokens": len(choice.prompt),
        "completion_tokens": choice.completion_tokens,
        "ttft_ms": None if ttft_s is None else round(ttft_s * 1e3, 2),
        "tpot_ms": None if tpot_s is None else round(tpot_s * 1e3, 2),
        "cache_hit": choice.cached_tokens,
        "finish_reason": finish_reason,
    }
    if choice.record.timeout_phase is not None:
        line |= {"finish_reason": "timeout", "phase": choice.record.timeout_phase}
    return line


def write_line(line: Json) -> None:
    """Writes an entry to stdout."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
