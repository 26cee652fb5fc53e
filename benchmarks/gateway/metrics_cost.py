"""Measures what the gateway's metrics cost: CPU time per request, and per scrape by number of services.

    python -m benchmarks.gateway.metrics_cost [--requests 20000] [--services 1 100 1000]

Only the part of a request that its end adds: outcome, phases and response. CPU time of this thread, so that
other programs on the machine do not count.
"""

import time

from benchmarks.options import option_parser

from penstock.gateway.request_lifecycle.timeline import Interval, RequestPhase
from penstock.gateway.stats.request_ending import RequestOutcome
from penstock.gateway.telemetry.metrics import Metrics

PHASES = [Interval(phase, at, at + 0.01) for at, phase in enumerate(RequestPhase)]
OUTCOME = RequestOutcome(True, True, prompt_tokens=500, output_tokens=200, tpot_s=0.02)
REVISION, ROUTE = "08ab73fc", "/v1/chat/completions"


def end_request(metrics: Metrics, service: str) -> None:
    metrics.observe_outcome(service, REVISION, OUTCOME)
    metrics.observe_times(service, PHASES)
    metrics.responses.labels(service, REVISION, ROUTE, "200").inc()


def request_us(requests: int) -> float:
    metrics = Metrics()
    started_s = time.thread_time()
    for _ in range(requests):
        end_request(metrics, "default/chat")
    return (time.thread_time() - started_s) / requests * 1e6


def scrape(services: int) -> tuple[int, float, float]:
    """Bytes of a scrape, seconds to write it, and seconds to adapt the series to a new snapshot."""
    metrics = Metrics()
    names = [f"default/chat-{number}" for number in range(services)]
    for name in names:
        end_request(metrics, name)
        metrics.first_byte_s.labels(name, REVISION).observe(0.1)
    for _ in range(2):  # the first pass creates the series
        started_s = time.thread_time()
        for name in names:
            metrics.create_series(name, [REVISION], has_objectives=True)
        metrics.remove_stale_series({name: {REVISION} for name in names})
    prepared_s = time.thread_time()
    text, _ = metrics.render()
    return len(text), time.thread_time() - prepared_s, prepared_s - started_s


def main() -> None:
    parser = option_parser(__doc__, requests=20_000)
    parser.add_argument("--services", type=int, nargs="+", default=[1, 100, 1000])
    args = parser.parse_args()
    print(f"{request_us(args.requests):.1f} us per request")
    for services in args.services:
        num_bytes, written_s, prepared_s = scrape(services)
        print(
            f"{services} services: {num_bytes / 1e6:.2f} MB, {written_s * 1e3:.0f} ms in a thread; on "
            f"the event loop {prepared_s * 1e3:.1f} ms after a change of services"
        )


if __name__ == "__main__":
    main()
