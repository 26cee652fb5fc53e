"""Program: prompts of a query and captions, as the gateway counts them; prints them as JSON.

test_new_api.py runs it where the package has the route /v1/captions.
"""

import json

from penstock.core.routing.apis import APIS
from penstock.gateway.apis.request import parse
from penstock.observability.metrics.gateway import ROUTE

(CAPTIONS,) = (api for api in APIS if api.path == "/v1/captions")


def counted(**fields):
    """The bytes of a prompt, whether it is text alone, and whether it has a key."""
    request = parse(json.dumps({"model": "rank", **fields}).encode(), CAPTIONS)
    has_key = request.attributes.conversation_key is not None
    return request.prompt_bytes, request.is_text_only, has_key


rows = {
    "texts": counted(query="where", captions=["abc", {"text": "de"}]),
    "an image": counted(query="where", captions=["abc", {"image": "x" * 99}]),
    "no captions": counted(query="where"),
    "no query": counted(captions=["abc"]),
    "is a label": CAPTIONS.path in ROUTE.values,
}
print(json.dumps(rows))
