"""The belief about hardware: slices of a GPU, and kinds of them by the labels of their nodes."""

import pytest

from penstock.core.scaling.learned.priors import CPU, GPU, prior

ONE = ("nvidia.com/gpu", 1)


@pytest.mark.parametrize(
    ("labels", "base", "prefill"),
    [
        ({}, 1.0, 1.0),
        ({"pool": "spot"}, 1.0, 1.0),
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}, 1.0, 1.0),
        ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, 1 / 1.64, 1 / 3.17),
        ({"cloud.google.com/gke-accelerator": "nvidia-l4"}, 1 / 0.15, 1 / 0.39),
        ({"zone": "a", "karpenter.k8s.aws/instance-gpu-name": "l40s"}, 1 / 0.42, 1 / 1.16),
        ({"pool": "sh100"}, 1.0, 1.0),
    ],
)
def test_a_node_label_names_the_kind(labels, base, prefill) -> None:
    believed = prior(ONE, labels)
    assert believed.base_s == pytest.approx(base * GPU.base_s)
    assert believed.kv_token_s == pytest.approx(base * GPU.kv_token_s)
    assert believed.prefill_token_s == pytest.approx(prefill * GPU.prefill_token_s)
    assert believed.sequence_s == pytest.approx(prefill * GPU.sequence_s)


def test_a_slice_is_a_part_and_no_accelerator_the_cpu() -> None:
    assert prior(("nvidia.com/mig-2g.20gb", 1)).base_s == pytest.approx(3.5 * GPU.base_s)
    assert prior(ONE) == GPU
    assert prior(None, {"pool": "h100"}) == CPU
