"""Cost: accelerators and prices of engines, and money for tokens."""

from grafana_foundation_sdk.models import units

from penstock.observability.dashboards import variables
from penstock.observability.dashboards.board import Board, Row
from penstock.observability.dashboards.panels import areas, number, series
from penstock.observability.dashboards.promql import SERVICES, ratio
from penstock.observability.metrics import gateway, operator

RANGE = "$__range"
PRICES = "spec.variants[].pricePerHour, in the currency of the spec"
PER_TOKENS = 1000


def board() -> Board:
    return Board(
        "cost",
        "Cost",
        f"Accelerators, prices and money for tokens. Prices are {PRICES}.",
        (variables.datasource(), variables.namespace(), variables.service()),
        (_over_time(), _totals()),
    )


def _hours(inner: str) -> str:
    """The integral over the dashboard's time, in hours, with 0 where there are no samples."""
    return f"sum_over_time(({inner})[{RANGE}:1m]) / 60"


def _tokens(by: str, *matchers: str, window: str) -> str:
    return SERVICES.rate(gateway.TOKENS_TOTAL, by, *matchers, window=window)


def _over_time() -> Row:
    price = SERVICES.sum(operator.PRICE_PER_HOUR, "service")
    tokens, output = (
        f"{_tokens('service', *matchers, window='5m')} * 3600 / {PER_TOKENS}"
        for matchers in ((), ('kind="output"',))
    )
    return Row(
        "Over time",
        areas(
            "Price per hour",
            f"Price of the engine pods by variant: {PRICES}.",
            "none",
            SERVICES.sum(operator.PRICE_PER_HOUR, "service, variant"),
        ),
        areas(
            "Accelerators",
            "Accelerators that the engine pods hold, by kind and variant.",
            units.Short,
            SERVICES.sum(operator.ACCELERATORS, "service, variant, accelerator"),
        ),
        series(
            "Money per 1000 tokens",
            "Price of the engine pods over the tokens of the last 5 minutes: prompt and output "
            "together, and output alone.",
            "none",
            (ratio(price, f"({tokens})"), "{{service}} all tokens"),
            (ratio(price, f"({output})"), "{{service}} output tokens"),
        ),
        series(
            "Tokens",
            "Tokens of finished requests, as the gateways counted them.",
            units.CountsPerSecond,
            (_tokens("service, kind", window="$__rate_interval"), "{{service}} {{kind}}"),
        ).span(24),
    )


def _totals() -> Row:
    spent = _hours(SERVICES.sum(operator.PRICE_PER_HOUR, "service"))
    tokens = f"sum by (service) (increase({SERVICES.select(gateway.TOKENS_TOTAL)}[{RANGE}])) / {PER_TOKENS}"
    return Row(
        "In the time of the dashboard",
        number(
            "Accelerator hours",
            "Number of accelerators times the hours that pods held them.",
            units.Hours,
            (
                _hours(SERVICES.sum(operator.ACCELERATORS, "service, accelerator")),
                "{{service}} {{accelerator}}",
            ),
        ),
        number("Money", f"Sum of the prices: {PRICES}.", "none", (spent, "{{service}}")),
        number(
            "Money per 1000 tokens, all the time",
            "Money over the tokens of finished requests, prompt and output.",
            "none",
            (ratio(spent, f"({tokens})"), "{{service}}"),
        ),
    )
