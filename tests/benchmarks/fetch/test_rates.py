"""The measurement of fetches, with a few bytes."""

from pathlib import Path

import pytest
from benchmarks.fetch.__main__ import print_rates
from benchmarks.fetch.rates import Rates, measure_rates


@pytest.mark.slow
def test_each_way_brings_the_bytes(tmp_path: Path) -> None:
    (pair,) = measure_rates(tmp_path, 3 << 20, 1)
    assert min(pair.fetch, pair.curl, pair.disk) > 0
    assert {path.name for path in tmp_path.iterdir()} == {"buckets"}


def test_the_bar_is_about_the_lower_one_of_curl_and_disk() -> None:
    pairs = [Rates(50, 100, 1000), Rates(90, 1000, 100), Rates(70, 100, 100)]
    assert print_rates(pairs) == 0.7
