"""The cost of tokens."""

from decimal import Decimal

import pytest

from penstock.core.spec.prices import Prices
from penstock.core.tenants.limits import Usage
from penstock.core.tenants.prices import token_cost

USAGE = Usage(requests=9, prompt_tokens=3_000_000, output_tokens=500_000, cached_tokens=1_000_000)


@pytest.mark.parametrize(
    ("prices", "cost"),
    [
        (Prices(), None),
        (Prices(Decimal("0.2"), Decimal("0.05"), Decimal("0.6")), Decimal("0.75")),
        (Prices(Decimal("0.2"), None, Decimal("0.6")), Decimal("0.9")),
        (Prices(per_million_output_tokens=Decimal("0.6")), Decimal("0.3")),
        (Prices(Decimal(0), Decimal(0), Decimal(0)), Decimal(0)),
    ],
)
def test_the_cost_of_tokens(prices: Prices, cost: Decimal | None) -> None:
    assert token_cost(USAGE, prices) == cost
