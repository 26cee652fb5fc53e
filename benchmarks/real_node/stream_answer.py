"""Streams an answer of a gateway, and prints its times and its text as JSON.

python stream_answer.py URL MODEL. It needs nothing but Python, so that a pod runs it from standard input.
"""

import json
import sys
import time
from http.client import HTTPConnection
from urllib.parse import urlsplit

QUESTION = "What is a pod in Kubernetes?"
MAX_TOKENS = 24
TIMEOUT_S = 60


def stream_answer(url: str, model: str) -> dict[str, object]:
    """Ask a gateway or an engine. Raises RuntimeError if the answer is not streamed to its end."""
    body = {
        "model": model, "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": MAX_TOKENS, "temperature": 0, "ignore_eos": True, "stream": True,
    }  # fmt: skip
    started_s = time.perf_counter()
    connection = HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(f"{answer.status}: {answer.read(500)!r}")
    first_s, texts, is_done = None, [], False
    for line in answer:
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            if "error" in event:
                raise RuntimeError(event["error"])
            first_s = first_s or time.perf_counter() - started_s
            texts += [choice["delta"].get("content") or "" for choice in event["choices"]]
        is_done = is_done or line.strip() == b"data: [DONE]"
    connection.close()
    if first_s is None or not is_done:
        raise RuntimeError("the stream ended early")
    return {"first_token_s": round(first_s, 3), "text": "".join(texts)}


if __name__ == "__main__":
    print(json.dumps(stream_answer(*sys.argv[1:])))
