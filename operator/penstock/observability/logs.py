"""Fields of log lines, and the reference page about them."""

from collections.abc import Mapping

from penstock_engine import log_fields

HEAD = """\
# Log lines

Generated from `operator/penstock/observability/logs.py` by `penstock docs`; do not edit.

Operator, gateway and engine write their logs to standard error: one JSON object a line, or text if that is a
terminal. `--log-format json` or `text` chooses. `--log-level debug`, `info`, `warning` or `error` is the
least severe level that is written. Fields without a value are absent.

No line has texts of prompts or answers, API keys, or other headers than the request's id. Control characters
and line separators in texts that users made are escaped, so that nobody can forge a line.

Follow one request from the gateway to its engine by the id that its answer has in `X-Request-Id`:

```console
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
