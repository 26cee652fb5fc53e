"""Fields of the log lines, and the reference page about them."""

from collections.abc import Mapping

from penstock_engine.contract import log_fields

# Message "request" of the gateway.
ACCESS = {
    "request_id": "Id of the request: the client's `X-Request-Id`, else a new one. Engines get it too.",
    "trace_id": "Id of the request's trace, if it is recorded.",
    "method": "HTTP method.",
    "route": "Path of the API.",
    "tenant": "Name of the tenant that sent the request.",
    "key": "Id of its API key: the part behind `psk_`. The secret part is in no log.",
    "service": "`namespace/name` of the InferenceService.",
    "model_route": "`namespace/name` of the ModelRoute that led there.",
    "fallback": "Why a fallback of the ModelRoute got the request, such as overload.",
    "adapter": "Version of the LoRA adapter that the request is for: its name in engines.",
    "revision": "Revision of the engine that was tried last.",
    "pod": "`namespace/name` of that engine's pod.",
    "status": "HTTP status of the answer; 499: the client left before there was one.",
    "reason": "Why the answer is not the complete one of an engine: rejected, failed or cut off.",
    "rejection": "Label `reason` of `penstock_gateway_rejections_total`, if the gateway rejected it.",
    "attempts": "Number of engines that were tried.",
    "stream": "Whether the client asked for a stream.",
    "total_ms": "Time of all phases, from the head of the request to the end of the answer, in ms.",
    "receive_ms": "Time to receive the body.",
    "route_ms": "Time to read the body and to find a service.",
    "wait_ms": "Time in the queue for an engine with room.",
    "connect_ms": "Time to connect to engines.",
    "first_byte_ms": "Time until the first byte of a stream, or the whole of another answer.",
    "stream_ms": "Time to pass the answer on.",
    "prompt_tokens": "Tokens of the prompt, if the answer has a usage.",
    "cached_tokens": "Tokens of the prompt that the engine had cached.",
    "completion_tokens": "Tokens of the answer; an estimate without a usage.",
    "request_bytes": "Size of the request's body.",
    "response_bytes": "Size of the answer's body.",
}

# Message "connection refused" of the gateway.
REFUSAL = {
    "status": "HTTP status of the answer.",
    "reason": "Why: too many connections, or no valid HTTP request.",
}

# Message "batch changed" of the batch server.
BATCH_CHANGE = {
    "batch": "Id of the batch.",
    "tenant": "Name of its tenant.",
    "status": "Its new status.",
}

# Message "reconciled" of the operator.
RECONCILE = {
    "service": "`namespace/name` of the InferenceService.",
    "revision": "Revision of its spec; absent if the spec is invalid.",
    "phase": "Phase of its rollout after the reconcile.",
    "written": "What was written, in order: objects with the verb, and the fields of the status.",
    "plan": "What these writes are for.",
    "reason": "Message of the rollout, or the error of an invalid spec.",
    "scaling_reason": "Why a Deployment got another number of replicas.",
}

# Message "decided" of the operator's scaler.
DECISION = {
    "service": "`namespace/name` of the InferenceService.",
    "replicas": "Replicas that it should have.",
    "code": "Reason in one word.",
    "reason": "Reason as a sentence.",
}

# Messages "adapter loaded", "adapter unloaded" and "adapter not loaded" of the operator.
ADAPTER_CHANGE = {
    "service": "`namespace/name` of the InferenceService.",
    "adapter": "Version of the LoRA adapter: its name in engines.",
    "pod": "Name of the engine's pod.",
    "code": "Why the engine refused the load, in one word.",
    "reason": "Why it was loaded, or why the engine refused it, as a sentence.",
}

# Message "judged" of the operator's canary judge.
VERDICT = {
    "service": "`namespace/name` of the InferenceService.",
    "verdict": "`Accept`, `Abort`, `Continue`, `Extend` or `MirrorPassed`.",
    "reason": "Reason as a sentence.",
}

HEAD = """\
# Log lines

Generated from `operator/penstock/observability/logs.py` by `penstock docs`; do not edit.

Operator, gateway, batch server and engine write their logs to standard error: one JSON object a line, or text
if that is a terminal. `--log-format json` or `text` chooses. `--log-level debug`, `info`, `warning` or
`error` is the least severe level that is written. Fields without a value are absent.

No line has texts of prompts or answers, API keys, or other headers than the request's id. Control characters
and line separators in texts that users made are escaped, so that nobody can forge a line.

[Follow one request](../concepts/tracing.md) from the gateway to its engine by the id that its answer has in
`X-Request-Id`:

```text
kubectl logs -n penstock-system -l app.kubernetes.io/name=penstock-gateway --tail=-1 | grep 3f0c2a
kubectl logs -l serving.penstock.dev/service=chat --tail=-1 | grep 3f0c2a
```
"""


def page() -> str:
    """The page docs/reference/logs.md."""
    return "\n".join(
        [
            HEAD,
            _section("Fields of every line", "", log_fields.COMMON),
            _section(
                "Operator: `reconciled`",
                "One line for each reconcile that wrote something. Warnings about a service have its "
                "`service` too, and unexpected errors the `loop` that they occurred in.",
                RECONCILE,
            ),
            _section("Operator: `decided`", "A new number of replicas.", DECISION),
            _section(
                "Operator: `adapter loaded`, `adapter unloaded`, `adapter not loaded`",
                "One line for each load and unload that the operator sent to an engine, when it ends.",
                ADAPTER_CHANGE,
            ),
            _section("Operator: `judged`", "A new verdict on a canary.", VERDICT),
            _section(
                "Gateway: `request`",
                "One line for each request to an engine's route, when it ends. `--no-access-log` leaves "
                "these lines out. Copies of mirrored requests have none.",
                ACCESS,
            ),
            _section(
                "Gateway: `connection refused`",
                "A connection that the gateway closes without a request, at most ten a minute.",
                REFUSAL,
            ),
            _section("Batch server: `batch changed`", "A new status of a batch.", BATCH_CHANGE),
            _section(
                "Engine: `request`",
                "One line for each choice of a request, when it ends. `--no-enable-log-requests` leaves "
                "these lines and the next kind out.",
                log_fields.REQUEST,
            ),
            _section(
                "Engine: `request failed`", "One line for each error answer.", log_fields.FAILURE
            ),
        ]
    )


def _section(title: str, text: str, fields: Mapping[str, str]) -> str:
    rows = [f"| `{name}` | {meaning} |" for name, meaning in fields.items()]
    table = "\n".join(["| field | meaning |", "| --- | --- |", *rows])
    return "\n\n".join(part for part in (f"## {title}", text, table) if part) + "\n"
