"""Engine internals: requests by phase, steps, KV cache, speculation, offloading, GPU and memory."""

from grafana_foundation_sdk.models import units

from penstock.observability.dashboards import variables
from penstock.observability.dashboards.board import Board, Row
from penstock.observability.dashboards.panels import Panel, areas, fractions, series
from penstock.observability.dashboards.promql import ENGINES, Spec, ratio
from penstock_engine import metric_specs as engine

POD = "{{pod}}"


def board() -> Board:
    return Board(
        "engine",
        "Engine",
        "What engines do in each step, and what they do it with.",
        (
            variables.datasource(),
            variables.namespace(),
            variables.service(),
            variables.revision(),
            variables.pod(),
        ),
        (_requests(), _steps(), _kv_cache(), _offloading(), _speculation(), _answers(), _machine()),
    )


def _by(spec: Spec, label: str, title: str, description: str, unit: str) -> Panel:
    """The rate of a counter, by service and a label."""
    query = ENGINES.rate(spec, f"service, {label}")
    return series(title, description, unit, (query, f"{{{{service}}}} {{{{{label}}}}}"))


def _requests() -> Row:
    phases = (
        (engine.QUEUE_TIME, "waiting"),
        (engine.PREFILL_TIME, "prefill"),
        (engine.DECODE_TIME, "decode"),
    )
    return Row(
        "Requests",
        (
            areas(
                "Time of a request by phase",
                "Mean time that requests spent waiting, in prefill and in decode.",
                units.Seconds,
                *(
                    (ENGINES.mean(spec, "service"), f"{{{{service}}}} {phase}")
                    for spec, phase in phases
                ),
            ),
            series(
                "Time to the first token",
                "From the request's arrival at the engine.",
                units.Seconds,
                (ENGINES.quantile(0.5, engine.TIME_TO_FIRST_TOKEN, "service"), "{{service}} p50"),
                (ENGINES.quantile(0.95, engine.TIME_TO_FIRST_TOKEN, "service"), "{{service}} p95"),
            ),
            series(
                "Time between tokens",
                "Time from one token of a request to the next.",
                units.Seconds,
                (ENGINES.quantile(0.5, engine.INTER_TOKEN_LATENCY, "service"), "{{service}} p50"),
                (ENGINES.quantile(0.95, engine.INTER_TOKEN_LATENCY, "service"), "{{service}} p95"),
            ),
            series(
                "Running and waiting",
                "Requests in the batch, and those that wait for capacity or were deferred.",
                units.Short,
                (ENGINES.sum(engine.RUNNING, "pod"), f"{POD} running"),
                (ENGINES.sum(engine.WAITING_BY_REASON, "pod, reason"), f"{POD} {{{{reason}}}}"),
            ),
            series(
                "Tokens of a request, p95",
                "Prompt tokens and generated tokens of finished requests.",
                units.Short,
                (ENGINES.quantile(0.95, engine.REQUEST_PROMPT_TOKENS, "service"), "{{service}} in"),
                (
                    ENGINES.quantile(0.95, engine.REQUEST_GENERATION_TOKENS, "service"),
                    "{{service}} out",
                ),
            ),
            series(
                "Prompt tokens not yet computed",
                "Prompt tokens of accepted requests that still have to be computed.",
                units.Short,
                (ENGINES.sum(engine.PREFILL_TOKENS_PENDING, "pod"), POD),
            ),
        ),
    )


def _steps() -> Row:
    steps = ENGINES.rate(engine.ITERATION_TOKENS, "pod", suffix="_count")
    return Row(
        "Steps",
        (
            series(
                "Time of a step",
                "Mean time that a step took to compute.",
                units.Seconds,
                (ratio(ENGINES.rate(engine.BUSY_SECONDS, "pod"), steps), POD),
            ),
            series(
                "Tokens of a step",
                "Tokens of the batch: mean, and p95.",
                units.Short,
                (ENGINES.mean(engine.ITERATION_TOKENS, "pod"), f"{POD} mean"),
                (ENGINES.quantile(0.95, engine.ITERATION_TOKENS, "pod"), f"{POD} p95"),
            ),
            fractions(
                "Busy",
                "Fraction of the time in which a step was computed.",
                (ENGINES.rate(engine.BUSY_SECONDS, "pod"), POD),
            ),
            series(
                "Computed per GPU",
                "Estimated floating point operations per second, of one GPU or of the CPU.",
                units.FlopsPerSecond,
                (ENGINES.rate(engine.FLOPS, "pod"), POD),
            ).span(12),
            series(
                "Memory traffic per GPU",
                "Estimated bytes per second that steps read and wrote, of one GPU or of the CPU.",
                units.BytesPerSecondSI,
                (ENGINES.rate(engine.READ_BYTES, "pod"), f"{POD} read"),
                (ENGINES.rate(engine.WRITTEN_BYTES, "pod"), f"{POD} written"),
            ).span(12),
        ),
    )


def _kv_cache() -> Row:
    hits = ratio(
        ENGINES.rate(engine.PREFIX_HITS, "pod"), ENGINES.rate(engine.PREFIX_QUERIES, "pod")
    )
    return Row(
        "KV cache",
        (
            fractions(
                "KV cache use",
                "Fraction of the KV cache blocks in use.",
                (ENGINES.sum(engine.KV_USAGE, "pod"), POD),
            ),
            fractions(
                "Prefix cache hits",
                "Fraction of the prompt tokens whose KV blocks were cached already.",
                (hits, POD),
            ),
            _by(
                engine.PROMPT_TOKENS_BY_SOURCE,
                "source",
                "Prompt tokens by source",
                "Prompt tokens that were computed, and those whose KV blocks were found.",
                units.CountsPerSecond,
            ),
            series(
                "Preemptions",
                "Running requests that gave up their KV blocks, to be computed again, per second.",
                units.EventsPerSecond,
                (ENGINES.rate(engine.PREEMPTED, "pod"), POD),
            ).span(12),
            _by(
                engine.KV_EXHAUSTED,
                "action",
                "What was done for want of KV blocks",
                "Requests that waited, were refused or gave up their blocks (recompute), and blocks "
                "that were dropped (evict) or kept in host memory (offload).",
                units.EventsPerSecond,
            ).span(12),
        ),
    )


def _offloading() -> Row:
    return Row(
        "KV blocks in host memory",
        (
            _by(
                engine.PROMPT_TOKENS_CACHED_BY_SOURCE,
                "source",
                "Cached prompt tokens by place",
                "Prompt tokens whose KV blocks were found, by where they were: device or host.",
                units.CountsPerSecond,
            ).span(12),
            series(
                "Copy or compute",
                "Choices between copying a KV block and computing it again, with their reason. Only of "
                "engines with host memory for KV blocks (--kv-offloading-size).",
                units.EventsPerSecond,
                (
                    ENGINES.rate(engine.KV_COPY_CHOICES, "service, choice, reason"),
                    "{{service}} {{choice}}: {{reason}}",
                ),
            ).span(12),
        ),
    )


def _speculation() -> Row:
    drafts = ENGINES.rate(engine.SPEC_DRAFTS, "service")
    accepted = ENGINES.rate(engine.SPEC_ACCEPTED_TOKENS, "service")
    return Row(
        "Speculation",
        (
            fractions(
                "Accepted draft tokens",
                "Fraction of the draft tokens that the model accepted. Only of engines that speculate.",
                (
                    ratio(accepted, ENGINES.rate(engine.SPEC_DRAFT_TOKENS, "service")),
                    "{{service}}",
                ),
            ),
            series(
                "Tokens of a draft",
                "Tokens that a step added to a request: the accepted ones, and one of its own. Only of "
                "engines that speculate.",
                units.Short,
                (f"1 + {ratio(accepted, drafts)}", "{{service}}"),
            ),
            fractions(
                "Acceptance by position",
                "Fraction of the drafts whose token at this position was accepted. Only of engines that "
                "speculate.",
                (
                    f"{ENGINES.rate(engine.SPEC_ACCEPTED_BY_POSITION, 'service, position')} / "
                    f"on (service) group_left () ({drafts} > 0)",
                    "{{service}} {{position}}",
                ),
            ),
        ),
    )


def _answers() -> Row:
    return Row(
        "How requests ended",
        (
            _by(
                engine.REQUEST_SUCCESS,
                "finished_reason",
                "Finished requests",
                "Requests that ended, by reason.",
                units.RequestsPerSecond,
            ),
            _by(
                engine.REQUEST_TIMEOUTS,
                "phase",
                "Timeouts",
                "Requests whose deadline passed, by the phase that they were in.",
                units.RequestsPerSecond,
            ),
            series(
                "Refused and corrupted",
                "Requests refused before they were queued, and requests with NaN in their logits.",
                units.RequestsPerSecond,
                (
                    ENGINES.rate(engine.ADMISSION_REJECTIONS, "service, reason"),
                    "{{service}} {{reason}}",
                ),
                (ENGINES.rate(engine.CORRUPTED, "service"), "{{service}} corrupted"),
            ),
            _by(
                engine.STRUCTURED_ANSWERS,
                "outcome",
                "Structured answers",
                "Answers that a grammar constrains: complete, cut off (incomplete) or failed.",
                units.RequestsPerSecond,
            ).span(12),
            series(
                "Tool calls that cannot be parsed",
                "Answers with text that begins like a tool call and is none that the request allows.",
                units.RequestsPerSecond,
                (ENGINES.rate(engine.TOOL_PARSE_FAILURES, "service"), "{{service}}"),
            ).span(12),
        ),
    )


def _machine() -> Row:
    return Row(
        "Memory, GPU and CPU",
        (
            series(
                "Memory of the process",
                "Resident memory of the engine's main process.",
                units.BytesIEC,
                (ENGINES.sum(engine.RESIDENT_MEMORY, "pod"), POD),
            ),
            series(
                "GPU memory",
                "Memory of each GPU that is in use, by any process, and all that it has.",
                units.BytesIEC,
                (ENGINES.sum(engine.GPU_MEMORY_USED, "pod, gpu"), f"{POD} {{{{gpu}}}} used"),
                (ENGINES.sum(engine.GPU_MEMORY_TOTAL, "pod, gpu"), f"{POD} {{{{gpu}}}} total"),
            ),
            fractions(
                "GPU utilization",
                "Fraction of the time in which a kernel ran on the GPU, by NVML.",
                (ENGINES.sum(engine.GPU_UTILIZATION, "pod, gpu"), f"{POD} {{{{gpu}}}}"),
            ),
            series(
                "CPU threads",
                "Threads that compute steps, of engines that compute on the CPU. Fewer while other "
                "programs use its cores.",
                units.Short,
                (ENGINES.sum(engine.CPU_THREADS, "pod"), POD),
            ).span(12),
            series(
                "Draining",
                "1 while an engine finishes its requests and takes no more.",
                units.Short,
                (ENGINES.sum(engine.DRAINING, "pod"), POD),
            ).span(12),
        ),
    )
