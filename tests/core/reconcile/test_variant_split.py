"""Pods of a side among variants: as the scaler said, and a canary's as its control's."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.support.specs.service_spec import pod_resources, service_spec

from penstock.core.observed.children import ObservedDeployment, ObservedState
from penstock.core.observed.rollout_state import RolloutState
from penstock.core.reconcile.variant_split import choose_variant_split, split_replicas
from penstock.core.spec.service import VariantSpec

SPEC = service_spec(template={"spec": {"nodeSelector": {"zone": "a"}}})
TWO = replace(
    SPEC,
    variants=(
        VariantSpec("cheap", pod_resources("2", "1Gi"), 1.0, 0, 9, {"pool": "spot"}),
        VariantSpec("strong", pod_resources("4", "2Gi", ("nvidia.com/gpu", 1)), 3.0, 1, 9),
    ),
)
MIXES = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 9), min_size=1)


@given(st.integers(0, 40), MIXES)
def test_all_of_them_are_divided_and_a_whole_mix_stays(replicas, mix) -> None:
    parts = split_replicas(replicas, mix)
    assert sum(parts.values()) == replicas
    assert parts.keys() == mix.keys()
    assert split_replicas(sum(mix.values()), mix) == mix
    for name, count in mix.items():
        exact = replicas * count / max(1, sum(mix.values()))
        assert abs(parts[name] - exact) < 1 or not any(mix.values())


def observed_with(**replicas: int) -> ObservedState:
    deployments = tuple(
        ObservedDeployment(f"d-{name}", name, "r1", n, 0, False, {}, variant=name)
        for name, n in replicas.items()
    )
    return ObservedState(
        deployments, rollout=RolloutState("Rolling", "Stable", 0, "", "r1", None, 1)
    )


def test_what_was_said_is_before_what_is_there_and_that_before_the_first() -> None:
    assert choose_variant_split(TWO, observed_with(cheap=1), {"cheap": 2, "strong": 1}, 3) == {
        "cheap": 2,
        "strong": 1,
    }
    assert choose_variant_split(TWO, observed_with(cheap=4), {"gone": 2}, 4) == {
        "cheap": 4,
        "strong": 0,
    }
    assert choose_variant_split(TWO, observed_with(gone=4), {"gone": 4}, 4) == {
        "cheap": 3,
        "strong": 1,
    }
    assert choose_variant_split(SPEC, ObservedState(), {}, 2) == {"": 2}


def test_a_service_is_placed_on_each_of_its_variants() -> None:
    cheap, strong = TWO.placed.values()
    assert cheap.resources == pod_resources("2")
    assert strong.resources.accelerator == ("nvidia.com/gpu", 1)
    assert cheap.template["spec"]["nodeSelector"] == {"zone": "a", "pool": "spot"}
    assert strong.template == SPEC.template
    assert SPEC.placed == {"": SPEC}
