"""Settings of a gateway process."""

from dataclasses import dataclass
from pathlib import Path

from penstock.core.providers.external_urls import ExternalUrl
from penstock.core.routing.forwarded_client import Network
from penstock.core.routing.gateway_defaults import MAX_BODY_BYTES, TOTAL_TIMEOUT_S
from penstock.core.routing.hold import HOLD_S
from penstock.core.tenants.api_key import KEYS_NAMESPACE


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    # Port 0: a free one. The management port has probes, metrics and the stats report.
    host: str = "0.0.0.0"  # noqa: S104 - clients connect from outside; manifests give the pod's own address
    port: int = 8080
    management_port: int = 8082
    # Files of the certificate and the key with which clients are served by TLS; both or none.
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    # Namespace to watch. None: every namespace.
    namespace: str | None = None

    # Whether nobody may use the gateway while the cluster has no Tenant. Otherwise everybody may.
    require_tenants: bool = False
    # Audience that tokens of ServiceAccounts must be for.
    service_account_audience: str = "penstock-gateway"
    # The namespace whose Secrets have the hashes of API keys.
    keys_namespace: str = KEYS_NAMESPACE

    # Region of the gateway, for the rules of ModelRoutes; empty: rules that name regions do not match.
    region: str = ""

    # URL of the batch server, and the file of the token that it shares with gateways; both or none.
    batch_url: str = ""
    batch_token_file: Path | None = None

    # URL of the Redis server in which gateways share limits of tenants, without a password, and the file of
    # that. None: each gateway has an equal part of a limit, and there is no ledger.
    quota_store: str | None = None
    quota_store_password_file: Path | None = None
    # Time for which the ledger of usage is kept.
    usage_retention_days: int = 400

    # Beginnings of URLs that external models may have; empty: none
    allowed_external_urls: tuple[ExternalUrl, ...] = ()

    # Origins of web pages that may use the gateway, such as https://chat.example.com; "*": all.
    cors_origins: tuple[str, ...] = ()

    # Networks of proxies that name the client in X-Forwarded-For (`core/routing/forwarded_client.py`).
    trusted_proxies: tuple[Network, ...] = ()

    # Open client connections. At the limit a new one replaces one that is not in use
    # (`limits/connection_limit.py`). Services share this limit, and those of bodies, answers and copies
    # (`limits/shared_limit.py`).
    max_connections: int = 4096
    # Time limits for the client to send the head of its request, and then the body.
    head_timeout_s: float = 10.0
    request_timeout_s: float = 30.0
    # Time in which a client has to take a piece of its response (`http/response_pieces.py`), or is
    # disconnected.
    client_stall_timeout_s: float = 60.0
    # Time limit for a connection to an engine. Engines are in the same cluster.
    connect_timeout_s: float = 2.0
    # Time limit from sending the request to an engine to the first byte of a stream, with the engine's
    # queue and prefill. Another response comes only when it is complete: the total limits it.
    first_byte_timeout_s: float = 300.0
    # Time limit between two chunks of a response.
    between_chunks_timeout_s: float = 60.0
    # Time limit from the end of the request to the end of the response, slow clients included.
    total_timeout_s: float = TOTAL_TIMEOUT_S

    # Time limit for a request to wait for an engine, failed connections included, and the number of
    # requests of one service that may wait at a time.
    wait_for_endpoint_s: float = 60.0
    max_waiting: int = 1000
    # Time limit for a request to be held while its service is at zero and an engine starts, beside the limits
    # of max_waiting and max_held_body_bytes; and time between two comments in a stream that is held.
    hold_s: float = HOLD_S
    hold_comment_interval_s: float = 15.0

    # Attempts per request at engines that accepted it and failed before the first byte. 1: no retries.
    max_attempts: int = 5
    # Fraction of a service's open requests that may be retries, and the number that may be in any case.
    retry_budget_fraction: float = 0.2
    min_retries: int = 10

    max_body_bytes: int = MAX_BODY_BYTES
    # Total of the bodies of requests without a response. A body is in memory twice while its parts are
    # joined.
    max_held_body_bytes: int = 256 << 20
    max_header_bytes: int = 32 << 10
    # A response that is no stream is held until it is complete, so that the request can be retried; a
    # larger one is passed on as it arrives.
    max_buffered_answer_bytes: int = 8 << 20
    # Total of the responses that are held. Beyond it, responses are passed on as they arrive.
    max_held_answer_bytes: int = 256 << 20

    # Concurrent copies of mirrored requests. Further copies are dropped.
    max_mirrored: int = 64

    # Whether each request has a line in the log.
    access_log: bool = True

    # After SIGTERM: time to keep serving while load balancers notice, then time for streams to finish.
    drain_delay_s: float = 3.0
    drain_timeout_s: float = 60.0

    @property
    def allows_retries(self) -> bool:
        """Whether a request is sent again after an engine that accepted it has failed."""
        return self.max_attempts > 1
