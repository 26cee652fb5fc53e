"""How one request ends: for whom it counts as a failure, and its outcome for the metrics."""

from collections.abc import Collection
from dataclasses import dataclass

from penstock.core.routing.charge import (
    CHARGES,
    Charge,
    Ending,
    FailedAttempt,
    find_blamed_endpoints,
)
from penstock.core.routing.pick import Endpoint, Side
from penstock.gateway.apis.errors import RequestError


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """How a request ended, for the metrics.

    meets_ttft, meets_tpot: None where the objective does not apply. tpot_s: None if it is not known.
    """

    meets_ttft: bool | None = None
    meets_tpot: bool | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    tpot_s: float | None = None


class RequestEnding:
    """The ending of one request, and its attempts that failed before.

    ending: None until it is known; None at the close counts as a defect of the gateway. last_failure: ending
    of the last attempt that failed.
    """

    def __init__(self) -> None:
        self.ending: Ending | None = None
        self.last_failure: Ending | None = None
        self._failed: list[FailedAttempt] = []

    def note_failed_attempt(self, endpoint: Endpoint, ending: Ending, *, is_serving: bool) -> None:
        """Record an attempt that failed before anything of it reached the client.

        is_serving: whether the engine still takes requests; one that does not is charged with nothing.
        """
        self.last_failure = ending
        if is_serving:
            self._failed.append(FailedAttempt(endpoint, ending))

    def note_rejection(self, error: RequestError) -> None:
        """Record that the request ends with an error of the gateway, unless its ending is known."""
        # A 500 is only sent for a defect of the gateway, which has an ending of its own.
        if self.ending is not None or error.status == 500:
            return
        if error.ending is not None:
            self.ending = error.ending
        elif error.status < 500:
            self.ending = Ending.REFUSED
        else:
            self.ending = self.last_failure or Ending.NO_ENGINE

    @property
    def charge(self) -> Charge:
        """The row of CHARGES for the ending."""
        return CHARGES[self.ending or Ending.GATEWAY_FAILED]

    def charged_pods(
        self,
        last: Endpoint | None,
        serving: Collection[Side],
        *,
        is_answered: bool,
        allows_retries: bool,
    ) -> Collection[str]:
        """The engines whose revisions are charged with a failure each.

        last: the engine that got the request last. Other arguments: see `find_blamed_endpoints`.
        """
        failed = find_blamed_endpoints(
            self._failed, serving, is_answered=is_answered, allows_retries=allows_retries
        )
        pods = {endpoint.pod for endpoint in failed}
        if self.charge.revision == "Always" and last is not None:
            pods.add(last.pod)
        return pods
