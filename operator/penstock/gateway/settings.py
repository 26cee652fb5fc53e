"""The gateway's limits, each with its unit."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    host: str = "0.0.0.0"  # noqa: S104 - a pod's own address is given in the manifests
    port: int = 8080
    # None: every namespace.
    namespace: str | None = None

    connect_timeout_s: float = 2.0
    # From the request's end to the first byte of the answer: queueing and prefill are in it.
    first_byte_timeout_s: float = 300.0
    between_chunks_timeout_s: float = 60.0
    total_timeout_s: float = 1800.0
    # How long a request may wait for a pod to become ready, and how many may.
    wait_for_endpoint_s: float = 60.0
    max_waiting: int = 1000

    # Requests that were accepted and then failed before the first byte: attempts for one of them,
    # and the part of all requests in flight that may be at their second retry or later.
    max_attempts: int = 5
    retry_budget_fraction: float = 0.2
    # So that a gateway with few requests can retry at all.
    min_retries: int = 10

    max_body_bytes: int = 16 * 2**20
    # Whole answers up to this size are held back, so that one cut short can be told from a whole.
    max_buffered_answer_bytes: int = 8 * 2**20

    # After SIGTERM: how long new requests are still served, and running ones may take.
    drain_delay_s: float = 3.0
    drain_timeout_s: float = 60.0
