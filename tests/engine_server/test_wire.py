import pytest

from penstock_engine import wire


@pytest.mark.parametrize(
    ("max_model_len", "buckets"),
    [
        (1, (1,)),
        (4, (1, 2)),
        (5, (1, 2, 5)),
        (99, (1, 2, 5, 10, 20, 50)),
        (2048, (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)),
    ],
)
def test_token_buckets_end_with_the_context(max_model_len: int, buckets: tuple[int, ...]) -> None:
    assert wire.token_buckets(max_model_len) == buckets


def test_each_metric_is_listed_once() -> None:
    specs = [value for value in vars(wire).values() if isinstance(value, wire.MetricSpec)]
    assert sorted(spec.name for spec in specs) == sorted(
        spec.name
        for specs in (
            wire.METRICS,
            wire.SPECULATION_METRICS,
            wire.ADAPTER_METRICS,
            wire.OFFLOADING_METRICS,
            wire.CPU_METRICS,
        )
        for spec in specs
    )
    assert len({spec.name for spec in wire.METRICS}) == len(wire.METRICS)


def test_labels_with_more_values_than_one_are_spelled_out() -> None:
    for spec in wire.METRICS:
        has_more = set(spec.labels) - set(wire.LABELS) and spec is not wire.CACHE_CONFIG
        assert bool(has_more) == (spec.name in wire.LABEL_VALUES), spec.name
