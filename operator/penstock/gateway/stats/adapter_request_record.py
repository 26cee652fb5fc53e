"""Record of one request for an adapter, counted for it and for the versions that it was sent to."""

from penstock.core.canary.arm import ArmCounter
from penstock.core.routing.charge import Charge, Ending, is_version_blamed
from penstock.gateway.stats.adapter_stats import AdapterStats


class AdapterRequestRecord:
    """Counts how one request ends. stats: of the version that it is for now."""

    def __init__(self, stats: AdapterStats) -> None:
        self.stats = stats
        self._failed: list[tuple[ArmCounter | None, Ending]] = []

    def change_version(self, stats: AdapterStats) -> None:
        """Count the request for another version from now on."""
        self.stats = stats

    def note_failed_attempt(self, ending: Ending) -> None:
        """Record an attempt with the present version that failed before anything reached the client."""
        self._failed.append((self.stats.arm, ending))

    def close(
        self, charge: Charge, tenant: str | None, *, is_answered: bool, allows_retries: bool
    ) -> None:
        """Count how the request ended. Each version is charged with one failure at most.

        is_answered, allows_retries: see `find_blamed_endpoints`.
        """
        is_charged = charge.version == "Always"
        self.stats.failed += is_charged or charge.service in ("Failed", "Shed")
        blamed = [
            arm
            for arm, ending in self._failed
            if is_version_blamed(ending, is_answered=is_answered, allows_retries=allows_retries)
        ]
        if is_charged:
            blamed.append(self.stats.arm)
        for arm in dict.fromkeys(blamed):
            if arm is not None:
                arm.record_failure(tenant)
