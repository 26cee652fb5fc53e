"""Settings of a gateway process."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    # Port 0 takes a free one.
    host: str = "0.0.0.0"  # noqa: S104 - a front door; manifests give the pod's own address
    port: int = 8080
    # None: every namespace.
    namespace: str | None = None

    # Open connections. At the limit a new connection replaces the oldest one without a request.
    max_connections: int = 4096
    # Time for the client to send the head of its request, and then the body.
    head_timeout_s: float = 10.0
    request_timeout_s: float = 30.0
    # A client that reads nothing of its answer for so long is disconnected.
    client_stall_timeout_s: float = 60.0
    # Engines are in the same cluster: one that takes longer to connect to is broken.
    connect_timeout_s: float = 2.0
    # From the end of the request to the first byte of a stream, queueing and prefill included. An
    # answer that is no stream comes only when it is complete: the total limits it.
    first_byte_timeout_s: float = 300.0
    between_chunks_timeout_s: float = 60.0
    # From the first byte of the request to the last of the answer, slow clients included.
    total_timeout_s: float = 1800.0

    # How long a request may wait for an engine, failed connections included, and how many requests of
    # one service may wait at a time.
    wait_for_endpoint_s: float = 60.0
    max_waiting: int = 1000

    # Attempts per request at engines that accepted it and failed before the first byte. Of a service's
    # open requests this fraction, but at least `min_retries`, may be retries.
    max_attempts: int = 5
    retry_budget_fraction: float = 0.2
    min_retries: int = 10

    max_body_bytes: int = 4 << 20
    # Total of the bodies of requests without an answer. While a body is joined it is in memory twice.
    max_held_body_bytes: int = 256 << 20
    max_header_bytes: int = 32 << 10
    # An answer that is no stream is buffered until it is complete, so that the request can be retried;
    # a larger one is passed on as it arrives.
    max_buffered_answer_bytes: int = 8 << 20
    # Total of such answers. Beyond it, answers are passed on as they arrive.
    max_held_answer_bytes: int = 256 << 20

    # Concurrent shadow copies of requests; beyond this, copies are dropped.
    max_shadows: int = 64

    # After SIGTERM: keep serving while load balancers notice, then let streams finish.
    drain_delay_s: float = 3.0
    drain_timeout_s: float = 60.0
