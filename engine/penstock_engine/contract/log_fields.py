"""Fields of the engine's log lines, with what they mean."""

COMMON = {
    "time": "When the line was written: RFC 3339, UTC, milliseconds.",
    "level": "`debug`, `info`, `warning`, `error` or `critical`.",
    "logger": "The module that wrote the line.",
    "message": "What happened. The lines below have a fixed message.",
    "traceback": "Where an unexpected error occurred.",
    "left_out": (
        "Number of earlier warnings or errors that were not logged. Of one place in the code about one "
        "service, at most ten are logged in a minute."
    ),
    "rank": "Rank of a worker process of a model that is split; absent for rank 0.",
}

# Message "request": a choice of a request ended. A request with `n: 2` has two such lines.
REQUEST = {
    "request_id": "Id of the request, the gateway's if one sent it: header `X-Request-Id`.",
    "client_request_id": "`request_id` of the request's body.",
    "trace_id": "Id of the request's trace, if it is recorded.",
    "model": "Name of the model in answers.",
    "adapter": "Name of the LoRA adapter.",
    "prompt_tokens": "Tokens of the prompt.",
    "completion_tokens": "Tokens that were generated.",
    "cached_tokens": "Tokens of the prompt whose keys and values were cached.",
    "queue_ms": "Time that the sequence waited until it was first scheduled, in milliseconds.",
    "ttft_ms": "Time from the request's arrival to its first token.",
    "tpot_ms": "Mean time between two tokens.",
    "preemptions": "How often the sequence lost its blocks and was computed again.",
    "finish_reason": "`stop`, `length`, `abort` (the client left), `error` or `timeout`.",
    "phase": "Phase in which the deadline passed: `queued`, `prefill` or `decode`.",
}

# Message "request failed": the answer is an error.
FAILURE = {
    "request_id": "Id of the request, the gateway's if one sent it: header `X-Request-Id`.",
    "status": "HTTP status of the answer.",
    "reason": "The answer's message. Absent for a 400, whose message may quote the request.",
    "param": "The parameter that is wrong.",
}
