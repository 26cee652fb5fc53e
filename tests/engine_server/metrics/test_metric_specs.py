"""Tests of the metric specifications: buckets, names and labels."""

import pytest

from penstock_engine.contract import feature_metric_specs, metric_specs, metric_types


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
    assert metric_types.token_buckets(max_model_len) == buckets


def test_each_metric_is_listed_once() -> None:
    specs = [
        value
        for module in (metric_specs, feature_metric_specs)
        for value in vars(module).values()
        if isinstance(value, metric_types.MetricSpec)
    ]
    assert sorted(spec.name for spec in specs) == sorted(
        spec.name
        for specs in (
            metric_specs.METRICS,
            feature_metric_specs.SPECULATION_METRICS,
            feature_metric_specs.ADAPTER_METRICS,
            feature_metric_specs.OFFLOADING_METRICS,
            feature_metric_specs.KV_EVENT_METRICS,
            feature_metric_specs.CPU_METRICS,
            feature_metric_specs.GPU_METRICS,
            feature_metric_specs.FETCH_METRICS,
        )
        for spec in specs
    )
    assert len({spec.name for spec in metric_specs.METRICS}) == len(metric_specs.METRICS)


def test_labels_with_more_values_than_one_are_spelled_out() -> None:
    for spec in metric_specs.METRICS:
        has_more = (
            set(spec.labels) - set(metric_types.LABELS) and spec is not metric_specs.CACHE_CONFIG
        )
        assert bool(has_more) == bool(spec.values), spec.name
