"""Replicas that quotas allow, and how services share them."""

from dataclasses import replace
from typing import Any, Literal

import pytest
from tests.support.specs.service_spec import pod_resources, service_spec

from penstock.core.scaling.quotas import apply_quotas, budgets, quota_limits
from penstock.core.scaling.rule import Decision
from penstock.core.spec.service import ScalingSpec, ServiceSpec, VariantSpec

POOL = ("default", "nvidia.com/gpu")


def quota(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "default", "name": "q"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used or {}},
    }


GPU = "requests.nvidia.com/gpu"
CASES = [
    ("all of it", [quota({GPU: "8"})], 0, {POOL: 8}),
    ("ours are not others'", [quota({GPU: "8"}, {GPU: "5"})], 5, {POOL: 8}),
    ("others have three", [quota({GPU: "8"}, {GPU: "5"})], 2, {POOL: 5}),
    ("used is told late", [quota({GPU: "8"}, {GPU: "1"})], 2, {POOL: 8}),
    ("the tighter of two", [quota({GPU: "8"}), quota({GPU: "4"})], 0, {POOL: 4}),
    ("more used than there is", [quota({GPU: "2"}, {GPU: "5"})], 0, {POOL: 0}),
    ("other things", [quota({"pods": "4", "requests.cpu": "8", "limits.memory": "1Gi"})], 0, {}),
    ("scoped", [quota({GPU: "2"}, scopes=["BestEffort"])], 0, {}),
    ("none", [], 0, {}),
]


@pytest.mark.parametrize(("name", "quotas", "held", "expected"), CASES, ids=lambda v: v)
def test_budgets(name: str, quotas: list[Any], held: int, expected: dict[Any, int]) -> None:
    assert budgets(quotas, {POOL: held}).limits == expected


def decision_for(desired: int) -> Decision:
    return Decision(desired, "because", "ScaleUp")


def service(
    name: str,
    priority: int = 0,
    mode: Literal["Active", "DryRun"] = "Active",
    namespace: str = "default",
    accelerator: tuple[str, int] | None = ("nvidia.com/gpu", 1),
) -> ServiceSpec:
    return service_spec(
        namespace=namespace,
        name=name,
        uid=name,
        model_name=name,
        resources=pod_resources(accelerator=accelerator),
        scaling=ScalingSpec(mode, 1, 10, quota_priority=priority),
    )


def test_services_of_a_pool_share_it_and_others_do_not_care() -> None:
    wanted = [
        (service("urgent", priority=5), decision_for(4)),
        (service("calm"), decision_for(4)),
        (service("dry-run", mode="DryRun"), decision_for(9)),
        (service("cpu", accelerator=None), decision_for(9)),
        (service("elsewhere", namespace="other"), decision_for(9)),
    ]
    granted = apply_quotas(wanted, {POOL: 6})
    assert [decision.desired for decision in granted] == [4, 2, 9, 9, 9]
    assert [decision.code for decision in granted] == ["ScaleUp", "OverBudget", *["ScaleUp"] * 3]
    assert "shared with urgent with 4" in granted[1].reason
    assert apply_quotas(wanted, {}) == [decision for _, decision in wanted]


def on_two(name: str) -> ServiceSpec:
    gpu = ("nvidia.com/gpu", 1)
    variants = (
        VariantSpec("cpu", pod_resources("4", "8Gi"), 1.0, 0, 10),
        VariantSpec("gpu", pod_resources("1", "8Gi", gpu), 4.0, 0, 10),
    )
    return replace(service(name, accelerator=None), variants=variants)


def test_of_each_variant_its_own_accelerators_are_shared() -> None:
    decision = replace(decision_for(6), by_variant={"cpu": 3, "gpu": 3})
    both = apply_quotas([(on_two("a"), decision), (service("b"), decision_for(3))], {POOL: 4})
    assert [(d.desired, d.by_variant) for d in both] == [(5, {"cpu": 3, "gpu": 2}), (2, {})]
    assert both[0].reason == (
        "2 of 3 wanted replicas: there are 4 accelerators, shared with b with 2"
    )
    assert "a on gpu with 2" in both[1].reason
    assert apply_quotas([(on_two("a"), decision)], {POOL: 3}) == [decision]


def test_a_variant_without_room_is_known_beforehand() -> None:
    assert quota_limits(on_two("a"), {POOL: 3}) == {"gpu": 3}
    assert quota_limits(on_two("a"), {}) == {}


@pytest.mark.parametrize(
    ("hard", "left"),
    [("1e3", 1000), ("1Pi", 2**50), ("2500m", 2), ("100m", 0), ("4E", 4 * 10**18)],
)
def test_a_quota_in_any_form_is_counted(hard: str, left: int) -> None:
    found = budgets([quota({GPU: hard})], {})
    assert (found.limits, found.unreadable) == ({POOL: left}, ())


def test_a_quota_that_cannot_be_read_is_named_and_hides_no_other() -> None:
    found = budgets([quota({GPU: "many"}), quota({GPU: "4"}, {GPU: "?"}), quota({GPU: "3"})], {})
    assert found.limits == {POOL: 3}
    assert [sentence[:44] for sentence in found.unreadable] == [
        "the ResourceQuota default/q is not counted: "
    ] * 2
    assert "'many' is not a quantity" in found.unreadable[0]
