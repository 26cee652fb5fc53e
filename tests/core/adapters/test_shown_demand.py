"""Demand for an adapter as its status shows it."""

from penstock.core.adapters.demand import AdapterCounts
from penstock.core.adapters.shown_demand import ShownDemand, show_demand, stored_demand


def test_demand_changes_at_most_once_a_minute_and_only_by_more_than_a_fifth() -> None:
    shown = stored_demand({}, AdapterCounts(arrivals=100), 0.0)
    assert show_demand(shown, AdapterCounts(arrivals=700), 59.0) == shown
    shown = show_demand(shown, AdapterCounts(arrivals=700), 60.0)
    assert (shown.requests_per_s, shown.last_used_s) == ("10", 60.0)
    shown = show_demand(shown, AdapterCounts(arrivals=1360), 120.0)
    assert (shown.requests_per_s, shown.last_used_s) == ("10", 60.0)
    shown = show_demand(shown, AdapterCounts(arrivals=1361), 180.0)
    assert (shown.requests_per_s, shown.last_used_s) == ("0.017", 180.0)
    shown = show_demand(shown, AdapterCounts(arrivals=1361), 240.0)
    assert (shown.requests_per_s, shown.last_used_s) == ("0", 180.0)
    shown = show_demand(shown, AdapterCounts(arrivals=90), 300.0)  # the gateways started again
    assert shown.requests_per_s == "1.5"


def test_the_last_use_is_shown_anew_after_ten_minutes() -> None:
    shown = ShownDemand("1.0", 1000.0, 1540.0, 0)
    assert show_demand(shown, AdapterCounts(arrivals=60), 1600.0).last_used_s == 1600.0
    assert show_demand(shown, AdapterCounts(arrivals=50), 1590.0).last_used_s == 1000.0
