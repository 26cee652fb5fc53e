"""Time that parsing one request body takes on the gateway's event loop, and the memory it keeps.

    python -m benchmarks.gateway.body_parsing [--mib 4]

For each body: the time of json.loads, which the gateway used before, of its own parse, and of the renaming
for an engine that knows the model by another name; then the memory of Python objects that is kept beside
the body. A heap of 500,000 objects represents the gateway's own. "refused" is a 400 with the reason.
"""

import json
import time
import tracemalloc
from collections.abc import Callable

from benchmarks.options import option_parser

from penstock.core.routing.apis import APIS, Api
from penstock.gateway.apis.errors import RequestError
from penstock.gateway.apis.request import MAX_COMMAS, parse

REPEATS = 5
ROUTES = {api.path: api for api in APIS}
CHAT = ROUTES["/v1/chat/completions"]


def bodies_of_other_routes(num_bytes: int) -> dict[str, tuple[Api, bytes]]:
    """The slowest bodies that are known of routes other than chats, within the limits of all bodies."""
    numbers = b"0," * min(MAX_COMMAS - 10, num_bytes // 2) + b"0"
    texts = b'"",' * min(MAX_COMMAS - 10, num_bytes // 3) + b'""'
    block = b'{"type":"text","text":"%s"},' % (b"x" * 14)
    blocks = block * min(98_000, num_bytes // len(block)) + block[:-1]
    chat = b'{"model": "chat", "messages": [{"role": "user", "content": [%s]}]}'
    input_of_tool = b'{"type": "tool_use", "input": [%s]}' % numbers
    rank = b'{"model": "chat", "query": "x", "documents": [%s]}'
    return {
        "numbers to embed": (
            ROUTES["/v1/embeddings"],
            b'{"model": "chat", "input": [%s]}' % numbers,
        ),
        "numbers to rank": (ROUTES["/v1/rerank"], rank % numbers),
        "texts to rank": (ROUTES["/v1/rerank"], rank % texts),
        "blocks to rank": (ROUTES["/v1/rerank"], rank % blocks),
        "blocks": (ROUTES["/v1/messages"], chat % blocks),
        "input of a tool": (ROUTES["/v1/messages"], chat % input_of_tool),
        "items": (ROUTES["/v1/responses"], b'{"model": "chat", "input": [%s]}' % numbers),
    }


def bodies(num_bytes: int) -> dict[str, bytes]:
    def chat(content: bytes) -> bytes:
        return b'{"model": "chat", "messages": [{"role": "user", "content": %s}]}' % content

    def other(value: bytes) -> bytes:
        return b'{"model": "chat", "x": %s}' % value

    keys = b"{" + b",".join(b'"%07x":1' % n for n in range(num_bytes // 12)) + b"}"
    return {
        "480 bytes": chat(b'"%s"' % (b"x" * 420)),
        "text": chat(b'"%s"' % (b"lorem ipsum " * (num_bytes // 12))),
        "an image": chat(
            b'[{"type": "image_url", "image_url": {"url": "%s"}}]' % (b"A" * num_bytes)
        ),
        "token ids": b'{"model": "chat", "prompt": [%s]}'
        % b",".join(b"%d" % (n % 50_000) for n in range(num_bytes // 6)),
        "keys": other(keys),
        "keys in a message": chat(keys),
        "100,000 lists": other(b"[%s[]]" % (b"[]," * 99_000)),
        "100,000 parts": chat(b"[%s{}]" % (b"{}," * 99_000)),
        "100,000 messages": b'{"model": "chat", "messages": [%s{}]}' % (b"{}," * 99_000),
        "texts": b'{"model": "chat", "prompt": [%s""]}' % (b'"",' * (num_bytes // 3)),
        "tools": b'{"model": "chat", "messages": [], "tools": [%s]}' % keys,
        "lists": other(b"[%s[]]" % (b"[]," * (num_bytes // 3))),
    }


def best_ms(call: Callable[[], object]) -> float:
    took = []
    for _ in range(REPEATS):
        began_s = time.perf_counter()
        made = call()
        took.append(time.perf_counter() - began_s)
        del made
    return min(took) * 1e3


def kept_bytes(call: Callable[[], object]) -> int:
    tracemalloc.start()
    made = call()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del made
    return kept


def main() -> None:
    options = option_parser(__doc__, mib=4).parse_args()
    heap = [{} for _ in range(500_000)]
    print(f"{'':18} {'json.loads':>16} {'kept':>11} {'parse':>10} {'kept':>10} {'rename':>10}")
    num_bytes = options.mib << 20
    chats = {name: (CHAT, body) for name, body in bodies(num_bytes).items()}
    for name, (api, body) in (chats | bodies_of_other_routes(num_bytes)).items():

        def loads(body: bytes = body) -> object:
            return json.loads(body)

        def ours(body: bytes = body, api: Api = api) -> object:
            try:
                return parse(body, api)
            except RequestError:
                return None

        call = ours()
        row = f"{name:18} {best_ms(loads):13.3f} ms {kept_bytes(loads) / 2**20:7.2f} MiB "
        row += f"{best_ms(ours):7.3f} ms {kept_bytes(ours) / 2**10:6.1f} KiB "
        print(
            row
            + (
                "refused"
                if call is None
                else f"{best_ms(lambda c=call: c.with_model('x')):7.3f} ms"
            )
        )
    del heap


if __name__ == "__main__":
    main()
