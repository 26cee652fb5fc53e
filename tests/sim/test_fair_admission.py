"""Fair shares and classes in the simulator: a small part of `benchmarks/simulator/fair_admission.py`."""

from benchmarks.simulator.fair_admission import batch_harm, fairness_loss, overload

# Capacity of the benchmark's engine, in requests a second (benchmarks/results/fair-admission.md).
CAPACITY = 24.0
SEED, DURATION_S = 7, 20.0


def test_a_tenant_within_its_share_loses_nothing_to_a_flood():
    assert fairness_loss(CAPACITY, SEED, DURATION_S) <= 0.05, f"seed {SEED}"


def test_the_highest_class_keeps_its_objectives_under_overload():
    goodput, attainment, _ = overload(CAPACITY, SEED, DURATION_S)
    assert goodput >= 0.8, f"seed {SEED}"
    assert attainment >= 0.95, f"seed {SEED}"


def test_batches_do_not_harm_interactive_requests():
    assert batch_harm(CAPACITY, SEED, DURATION_S) <= 0.01, f"seed {SEED}"
