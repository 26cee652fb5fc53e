"""A gateway's feed as text, both ways."""

import json

from penstock.core.feed import Feed
from penstock.core.plain import Unreadable, from_plain, to_plain
from penstock.core.signals import Missing

PATH = "/penstock/feed"


def write(feed: Feed) -> bytes:
    return json.dumps(to_plain(feed), separators=(",", ":")).encode()


def parse(who: str, text: str) -> Feed | Missing:
    """What is no such feed, or of another version, is Missing."""
    try:
        feed = from_plain(Feed, json.loads(text))
    except Unreadable as error:
        return Missing(who, f"unreadable feed: {error}")
    except (ValueError, RecursionError):
        return Missing(who, "unreadable feed")
    for reading in feed.services.values():
        for histogram in (reading.ttft_s, reading.tpot_s):
            if len(histogram.counts) != len(histogram.bounds) + 1:
                return Missing(who, "unreadable feed: a histogram has not one count a bucket")
    return feed
