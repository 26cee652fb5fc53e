"""Program: prompts of a query and documents, as the gateway counts them; prints them as JSON.

test_new_api.py runs it where the package has the route /v1/rerank.
"""

import json

from penstock.core.routing.apis import APIS
from penstock.gateway.apis.request import parse
from penstock.observability.metrics.gateway import ROUTE

(RERANK,) = (api for api in APIS if api.path == "/v1/rerank")


def counted(**fields):
    """The bytes of a prompt, whether it is text alone, and whether it has a key."""
    request = parse(json.dumps({"model": "rank", **fields}).encode(), RERANK)
    has_key = request.attributes.conversation_key is not None
    return request.prompt_bytes, request.is_text_only, has_key


rows = {
    "texts": counted(query="where", documents=["abc", {"text": "de"}]),
    "an image": counted(query="where", documents=["abc", {"image": "x" * 99}]),
    "no documents": counted(query="where"),
    "no query": counted(documents=["abc"]),
    "is a label": RERANK.path in ROUTE.values,
}
print(json.dumps(rows))
