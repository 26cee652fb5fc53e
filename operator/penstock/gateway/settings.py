"""What a gateway can be told, each with its unit."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    # Port 0 takes a free one.
    host: str = "0.0.0.0"  # noqa: S104 - a front door; manifests give the pod's own address
    port: int = 8080
    # None: every namespace.
    namespace: str | None = None

    # Open connections. At the limit a new one takes the place of the oldest without a request.
    max_connections: int = 4096
    # How long the client may take to send the head of its request, and then the body.
    head_timeout_s: float = 10.0
    request_timeout_s: float = 30.0
    # A client that reads nothing of its answer for so long has left.
    client_stall_timeout_s: float = 60.0
    # An engine is near: one that is slow to connect to is broken.
    connect_timeout_s: float = 2.0
    # From the request's end to the first byte of a stream: queueing and prefill are in it. A whole answer
    # comes when all of it is computed: only the total limits that.
    first_byte_timeout_s: float = 300.0
    between_chunks_timeout_s: float = 60.0
    # All of it, slow clients included.
    total_timeout_s: float = 1800.0

    # How long a request may wait for an engine, connecting in vain included, and how many of a service may.
    wait_for_endpoint_s: float = 60.0
    max_waiting: int = 1000

    # Attempts that one request may have at engines that took it and failed before the first byte,
    # and the share of a service's requests that may be at a later one; a few always may.
    max_attempts: int = 5
    retry_budget_fraction: float = 0.2
    min_retries: int = 10

    max_body_bytes: int = 4 << 20
    # Bodies of all requests that have no answer yet. Reading one holds it twice for a moment.
    max_held_body_bytes: int = 256 << 20
    max_header_bytes: int = 32 << 10
    # An answer that is no stream is held back until it is whole, so that it can be retried; a larger
    # one is passed on as it comes.
    max_buffered_answer_bytes: int = 8 << 20

    # Copies of requests that may be under way at the same time; more are not begun.
    max_shadows: int = 64

    # After SIGTERM: serve on while load balancers learn of it, then let streams finish.
    drain_delay_s: float = 3.0
    drain_timeout_s: float = 60.0
