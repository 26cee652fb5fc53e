"""Times and outcome of one request, for the statistics of its service."""

import contextlib
import math
from collections.abc import Callable, Collection, Iterator

from penstock.core.canary.arm import Answer, ArmCounter
from penstock.core.routing.charge import shows_answerable
from penstock.core.routing.pick import Endpoint, Side
from penstock.core.scaling.signals import attended_tokens
from penstock.gateway.admission.reservation import Reservation
from penstock.gateway.apis.request import InferenceRequest
from penstock.gateway.apis.response_usage import ResponseUsage
from penstock.gateway.stats.adapter_request_record import AdapterRequestRecord
from penstock.gateway.stats.adapter_stats import AdapterStats
from penstock.gateway.stats.first_answers import FirstAnswers
from penstock.gateway.stats.request_ending import RequestEnding, RequestOutcome
from penstock.gateway.stats.response_times import ResponseTimes
from penstock.gateway.stats.service_stats import ServiceStats


class RequestRecord:
    """Times one request and counts its outcome in the statistics of its service.

    now: the monotonic clock. arrived_s: when the client had sent all of the request, on that clock.
    client: name of its tenant, by whose answers its prompt is estimated; empty: it has none. tenant: the same
    for a canary's comparison; None if tenants are not distinguished there. key: what keeps the request on its
    arm of that comparison; None: its arm is drawn. adapter: counts of the adapter that the request is for;
    None: it is for the base model. end: how the request ends.
    """

    def __init__(
        self,
        stats: ServiceStats,
        now: Callable[[], float],
        request: InferenceRequest,
        arrived_s: float,
        *,
        client: str = "",
        tenant: str | None = None,
        key: bytes | None = None,
        adapter: AdapterStats | None = None,
    ) -> None:
        self._stats = stats
        self.adapter = None if adapter is None else AdapterRequestRecord(adapter)
        self._times = ResponseTimes(now, arrived_s)
        # The request itself is not kept: its body is freed while the record lives.
        self.api = request.api
        self._prompt_bytes = request.prompt_bytes
        self._is_text_only = request.is_text_only
        self._is_stream = request.is_stream
        self._client = client
        self._tenant = tenant
        self._key = key
        self._usage = self._new_usage()
        self._endpoint: Endpoint | None = None
        self._reservation: Reservation | None = None
        self.end = RequestEnding()
        self._num_ahead = 0
        self._num_concurrent = 0.0
        self.has_response = False
        self.arrived_s = arrived_s
        self.prompt_tokens = 0
        if request.api.prompts:
            self.prompt_tokens = stats.token_estimates.get(client).of(request.prompt_bytes)
        stats.arrivals += 1
        stats.prompt_tokens += self.prompt_tokens
        if adapter is not None:
            adapter.arrivals += 1

    @contextlib.contextmanager
    def queued(self) -> Iterator[None]:
        """Count the request as queued while the block runs."""
        self._stats.queued.add(self)
        try:
            yield
        finally:
            self._stats.queued.discard(self)

    @contextlib.contextmanager
    def in_flight(self, endpoint: Endpoint, reservation: Reservation | None) -> Iterator[None]:
        """Count the request as in flight at the endpoint while the block runs.

        reservation: its slot there, which is released at the end; None: it is no engine.
        """
        self._endpoint, self._reservation, pod = endpoint, reservation, endpoint.pod
        if reservation is not None and not self._is_stream:
            reservation.assume_prefill_time()
        self._stats.in_flight.add(self)
        self._num_ahead, num_open_at_start = self._stats.count_sent(pod)
        self._num_concurrent = num_open_at_start
        self._times.note_sent()
        try:
            with self.adapter.stats.hold_copy(pod) if self.adapter else contextlib.nullcontext():
                yield
        finally:
            self._stats.in_flight.discard(self)
            self._num_concurrent = (num_open_at_start + self._stats.count_end(pod)) / 2
            if not self.has_response:
                self._times.note_failed_attempt()
                self._stats.count_first_byte(pod)
            if reservation is not None:
                self._end(reservation)

    def _end(self, reservation: Reservation) -> None:
        """Release the slot, and say what the response tells of its prompt."""
        usage = self._usage
        if usage.prompt_tokens:
            cached_tokens = usage.cached_tokens if usage.has_cached else None
            reservation.note_cached(usage.prompt_tokens, cached_tokens)
        prompt_tokens = usage.prompt_tokens or self.prompt_tokens
        reservation.end(prompt_tokens + usage.output_tokens, self._time_share)

    def start_response(self, *, is_stream: bool) -> None:
        """Start to count a response. is_stream: whether it is a stream, whatever was requested."""
        self._is_stream = is_stream
        self._usage = self._new_usage()

    def add_chunk(self, chunk: bytes) -> None:
        """Count a chunk of the response from the engine."""
        self._times.note_chunk(is_first=not self.has_response)
        self._usage.feed(chunk)
        if self.has_response:
            return
        self.has_response = True
        if self._endpoint is not None:
            self._stats.count_first_byte(self._endpoint.pod)
        if self._reservation is not None and self._is_stream and not self._usage.has_error:
            self._reservation.first_token_received(self._times.first_byte_s)

    @property
    def is_engine_late(self) -> bool:
        """Whether the engine has had the request for so long that a late answer is its own fault."""
        reservation = self._reservation
        return self._times.is_engine_late(0.0 if reservation is None else reservation.expected_s)

    def add_write_time(self, seconds: float) -> None:
        """Add the time that a write to the client took."""
        self._times.add_write_time(seconds)

    @property
    def usage(self) -> ResponseUsage:
        """Tokens of the response so far."""
        return self._usage

    @property
    def has_error(self) -> bool:
        """Whether the response has an error event, the client's or the engine's fault."""
        return self._usage.has_error

    @property
    def has_engine_error(self) -> bool:
        """Whether the response has an error event that is the engine's fault."""
        return self._usage.has_engine_error

    def close(
        self, serving: Collection[Side] = (), *, allows_retries: bool = True
    ) -> RequestOutcome:
        """Count how the request ended (see `charge`), and return its outcome.

        serving: sides of the service that have engines and traffic; needed only after a failed attempt.
        allows_retries: whether the gateway retries failed requests at all.
        """
        charge, stats = self.end.charge, self._stats
        is_answered = self.has_response and shows_answerable(self.end.ending)
        for pod in self.end.charged_pods(
            self._endpoint, serving, is_answered=is_answered, allows_retries=allows_retries
        ):
            stats.arm(pod).record_failure(self._tenant)
        if self.adapter is not None:
            self.adapter.close(
                charge, self._tenant, is_answered=is_answered, allows_retries=allows_retries
            )
        match charge.service:
            case "Ended":
                return self._count_finished()
            case "Failed":
                stats.failed += 1
                return self._missed()
            case "Shed":
                stats.shed += 1
                return self._missed()
            case None:
                return RequestOutcome()

    def _missed(self) -> RequestOutcome:
        """The outcome of a request that was shed or failed: it misses all objectives that are set."""
        objectives = self._stats.objectives
        if objectives is None:
            return RequestOutcome()
        return RequestOutcome(
            meets_ttft=False if objectives.has_ttft else None,
            meets_tpot=False if objectives.has_tpot else None,
        )

    def _count_finished(self) -> RequestOutcome:
        stats = self._stats
        stats.ended += 1
        stats.late += self._is_late
        prompt_tokens, output_tokens = self._usage.prompt_tokens, self._usage.output_tokens
        if prompt_tokens is None:
            prompt_tokens = self.prompt_tokens
        elif self._is_text_only:
            stats.token_estimates.observe(self._client, self._prompt_bytes, prompt_tokens)
        stats.output_tokens += output_tokens
        if self.adapter is not None:
            self.adapter.stats.work_tokens += prompt_tokens + output_tokens
        stats.attended_tokens += attended_tokens(prompt_tokens, output_tokens)
        self._count_latency()
        assert self._endpoint is not None
        pod, side = self._endpoint.pod, self._endpoint.side
        self._count_for_arm(stats.arm(pod), stats.first_answers[side])
        of_version = None if self.adapter is None else self.adapter.stats
        if of_version is not None and of_version.arm is not None:
            self._count_for_arm(of_version.arm, of_version.first_answers)
        objectives, tpot_s = stats.objectives, self._tpot_s if self._is_stream else None
        has_ttft = objectives is not None and objectives.has_ttft
        has_tpot = objectives is not None and objectives.has_tpot
        return RequestOutcome(
            meets_ttft=not self._is_late if has_ttft else None,
            meets_tpot=not self._is_slow if has_tpot and tpot_s is not None else None,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            tpot_s=tpot_s,
        )

    def _count_latency(self) -> None:
        """Record TTFT and TPOT of a stream; another response comes all at once and has neither."""
        if not self._is_stream:
            return
        self._stats.ttft_s.add(self._times.ttft_s)
        if self._tpot_s is not None:
            self._stats.tpot_s.add(self._tpot_s)

    def _count_for_arm(self, arm: ArmCounter, answers: FirstAnswers) -> None:
        """Add the response to the statistics of its engine, or of its adapter's version."""
        usage = self._usage
        is_first = self._key is None or answers.add(self._key)
        answer = Answer(
            output_tokens=usage.generated_tokens,
            is_empty=is_first and usage.is_empty,
            violates=self._violates,
            ahead=self._num_ahead,
            concurrent=self._num_concurrent,
            prompt_tokens=usage.prompt_tokens or self.prompt_tokens,
            cached_tokens=usage.cached_tokens if usage.prompt_tokens else None,
            ttft_s=self._times.sent_ttft_s if self._is_stream else None,
            tpot_s=self._tpot_s if self._is_stream else None,
            overall_s=self._times.engine_ttft_s,
        )
        arm.record_answer(answer, self._tenant)

    def _new_usage(self) -> ResponseUsage:
        return ResponseUsage(self.api, is_stream=self._is_stream)

    @property
    def _tpot_s(self) -> float | None:
        return self._times.tpot_s(self._usage.output_tokens)

    @property
    def _allowed_s(self) -> float:
        """Seconds allowed until the first byte: TTFT; plus TPOT for each gap if it is no stream."""
        objectives = self._stats.objectives
        if objectives is None:
            return math.inf
        gaps = 0 if self._is_stream else max(0, self._usage.output_tokens - 1)
        return objectives.ttft_s + objectives.tpot_s * gaps

    @property
    def _time_share(self) -> float | None:
        """Time of the engine's whole answer, as a part of what the objectives allow; None without both."""
        objectives = self._stats.objectives
        if objectives is None or not self.has_response or self._usage.has_error:
            return None
        gaps = max(0, self._usage.output_tokens - 1)
        return self._times.sent_answer_s / (objectives.ttft_s + objectives.tpot_s * gaps)

    @property
    def _is_late(self) -> bool:
        """Whether the client got its first byte late, whichever engine lost the time."""
        return self._times.ttft_s > self._allowed_s

    @property
    def _is_slow(self) -> bool:
        """Whether a stream's mean time between tokens missed its objective."""
        objectives = self._stats.objectives
        if objectives is None or not self._is_stream:
            return False
        return (self._tpot_s or 0) > objectives.tpot_s

    @property
    def _violates(self) -> bool:
        """Whether the engine that responded missed an objective."""
        return self._is_slow or self._times.engine_ttft_s > self._allowed_s
