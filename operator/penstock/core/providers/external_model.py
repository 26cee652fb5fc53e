"""An external model: a provider's URL to which a route may send requests, and what may be sent there."""

from collections import deque
from dataclasses import dataclass, field
from decimal import Decimal

from penstock.core.formats.http_dates import seconds_until
from penstock.core.routing.apis import Api, ProviderApi

# Bound on the time for which a provider may ask to send nothing.
MAX_RETRY_AFTER_S = 3600.0
MINUTE_S = 60.0
DEFAULT_SECRET_KEY = "apiKey"  # noqa: S105 - the name of a key, in a Secret
DEFAULT_CURRENCY = "USD"
DEFAULT_CONNECT_S, DEFAULT_FIRST_BYTE_S, DEFAULT_REQUEST_S = 2.0, 60.0, 600.0
TOKENS_OF_PRICE = 1_000_000


@dataclass(frozen=True, slots=True)
class SecretKey:
    """A key of a Secret of the external model's namespace."""

    name: str
    key: str


@dataclass(frozen=True, slots=True)
class ExternalPrices:
    """Prices of a million tokens, in a currency such as USD."""

    prompt: Decimal
    output: Decimal
    currency: str

    def cost(self, prompt_tokens: int, output_tokens: int) -> Decimal:
        """Cost of the tokens of one request."""
        whole = self.prompt * prompt_tokens + self.output * output_tokens
        return whole / TOKENS_OF_PRICE


@dataclass(frozen=True, slots=True)
class ExternalModel:
    """An ExternalModel, as its object says."""

    namespace: str
    name: str
    created_s: int
    url: str
    api: ProviderApi
    model: str  # name at the provider
    secret: SecretKey | None = None  # of the provider's API key; None: it needs none
    # Limits of each gateway; None: there is none
    max_concurrent: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    prices: ExternalPrices | None = None
    connect_timeout_s: float = DEFAULT_CONNECT_S
    first_byte_timeout_s: float = DEFAULT_FIRST_BYTE_S  # of a stream
    request_timeout_s: float = DEFAULT_REQUEST_S  # of a response that is no stream

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def served_name(self) -> str:
        """Name by which tenants are given access."""
        return self.name

    @property
    def service_key(self) -> str:
        """Key in place of a service's. No object has a name with a colon."""
        return f"{self.namespace}/external:{self.name}"

    def speaks(self, api: Api) -> bool:
        """Whether the provider has an API route."""
        return api.provider == self.api


@dataclass(slots=True)
class ExternalUse:
    """Requests and tokens that one gateway has sent to an external model. All times are of one clock."""

    num_running: int = 0
    not_before_s: float = 0.0  # by the provider's `Retry-After`
    _sent_s: deque[float] = field(default_factory=deque)
    _used: deque[tuple[float, int]] = field(
        default_factory=deque
    )  # time and tokens of ended requests

    def shortage_s(self, model: ExternalModel, now: float) -> float | None:
        """Time after which another request may be tried; None: it may be sent now."""
        while self._sent_s and self._sent_s[0] <= now - MINUTE_S:
            self._sent_s.popleft()
        while self._used and self._used[0][0] <= now - MINUTE_S:
            self._used.popleft()
        if now < self.not_before_s:
            return self.not_before_s - now
        if model.max_concurrent is not None and self.num_running >= model.max_concurrent:
            return 1.0
        if model.requests_per_minute is not None and len(self._sent_s) >= model.requests_per_minute:
            return self._sent_s[0] + MINUTE_S - now
        num_tokens = sum(tokens for _, tokens in self._used)
        if model.tokens_per_minute is not None and num_tokens >= model.tokens_per_minute:
            return self._used[0][0] + MINUTE_S - now
        return None

    def note_sent(self, now: float) -> None:
        """Count a request that is sent."""
        self.num_running += 1
        self._sent_s.append(now)

    def note_ended(self, tokens: int, now: float) -> None:
        """Count the end of a request with the tokens that it has used."""
        self.num_running -= 1
        if tokens:
            self._used.append((now, tokens))

    def note_retry_after(self, value: str, now: float, unix_now_s: float) -> float:
        """Send nothing before the time of a `Retry-After`. Returns the seconds until then."""
        wait_s = min(retry_after_s(value, unix_now_s), MAX_RETRY_AFTER_S)
        self.not_before_s = max(self.not_before_s, now + wait_s)
        return wait_s


def retry_after_s(value: str, unix_now_s: float) -> float:
    """Seconds of a `Retry-After`, which are a number or an HTTP date; 1 if it is neither."""
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    return max(0.0, seconds_until(text, unix_now_s, default_s=1.0))
