"""A gateway's stats report as JSON: its encoding, and its parsing with checks."""

import json
from typing import Any

from penstock.core.adapters.demand import AdapterCounts
from penstock.core.canary.arm import BINNED, NO_REQUESTS
from penstock.core.formats.json_text import parse_json
from penstock.core.formats.serialization import DecodeError, deserialize
from penstock.core.observed.gateway_report import GatewayReport
from penstock.core.scaling.signals import Missing

PATH = "/penstock/feed"


def encode(report: GatewayReport) -> bytes:
    """Encode a report as JSON. Counts of adapters are left out where they have their default.

    Operators that do not know adapters read a report without any.
    """
    # The same as the serializer of core, at a third of its time: gateways answer clients meanwhile.
    return json.dumps(report, default=_fields, separators=(",", ":")).encode()


def _fields(record: Any) -> dict[str, Any]:
    values = {name: getattr(record, name) for name in type(record).__slots__}
    if isinstance(record, AdapterCounts):
        return {name: value for name, value in values.items() if value}
    if isinstance(record, GatewayReport) and not record.adapters:
        del values["adapters"]
    return values


def parse(who: str, text: str) -> GatewayReport | Missing:
    """Parse a report. who: the pod, for the reason of Missing, which an invalid report or version gives."""
    try:
        report = deserialize(GatewayReport, parse_json(text))
    except DecodeError as error:
        return Missing(who, f"unreadable stats report: {error}")
    except ValueError:
        return Missing(who, "unreadable stats report")
    for reading in report.services.values():
        for histogram in (reading.ttft_s, reading.tpot_s):
            if len(histogram.counts) != len(histogram.bounds) + 1:
                return Missing(
                    who,
                    "unreadable stats report: a histogram has another number of counts than of buckets",
                )
    for arm in (arm for arms in report.arms.values() for arm in arms.values()):
        if any(len(getattr(arm, name)) != len(getattr(NO_REQUESTS, name)) for name in BINNED):
            return Missing(who, "unreadable stats report: an arm has another number of bins")
    return report
