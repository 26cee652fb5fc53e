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

from penstock.core.routing.apis import CHAT
from penstock.gateway.apis.errors import RequestError
from penstock.gateway.apis.request import parse

REPEATS = 5


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
    for name, body in bodies(options.mib << 20).items():

        def loads(body: bytes = body) -> object:
            return json.loads(body)

        def ours(body: bytes = body) -> object:
            try:
                return parse(body, CHAT)
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
