"""The operator's copy of the engines' default limits: an import contract keeps it from importing theirs."""

from penstock.controller.scaling.objective_scaler import UNREPORTED_LIMITS
from penstock_engine.memory import batch_limits


def test_the_limits_of_engines_that_report_none_are_the_engines_defaults() -> None:
    assert UNREPORTED_LIMITS == {"cpu": batch_limits.CPU, "cuda": batch_limits.SMALL_GPU}
    below_large = batch_limits.LARGE_GPU_BYTES - 1
    for device, limits in UNREPORTED_LIMITS.items():
        found = batch_limits.candidates(None, None, device_name=device, memory_bytes=below_large)
        assert found[0] == limits
