"""The bars and the summary of a run on a GPU, and two runs side by side."""

import io
from pathlib import Path

import pytest
from benchmarks.gpu import bars, results
from benchmarks.gpu.compare import compare, print_comparison
from benchmarks.gpu.context import Record


def decode(ratio: object, **more: object) -> Record:
    return {"step": "d", "item": f"decode {ratio}", "ratio_to_bound": ratio, **more}


@pytest.mark.parametrize(
    ("records", "verdict"),
    [
        ([], "not measured"),
        ([decode(True), decode(None), decode("fast")], "not measured"),
        ([decode(1.1), decode(1.29)], "1.29, reached"),
        ([decode(1.1), decode(1.4), decode(1.2)], "1.4, MISSED"),
        ([decode(1.1), decode("nan")], "nan, MISSED"),
        ([decode("inf")], "nan, MISSED"),
    ],
)
def test_a_bar_is_judged_by_its_worst_figure(records: list[Record], verdict: str) -> None:
    (bar,) = (bar for bar in bars.BARS if bar.figure == "ratio_to_bound")
    assert bar.verdict(records) == verdict


def test_a_bar_applies_to_its_records_alone() -> None:
    (bar,) = (bar for bar in bars.BARS if bar.figure == "gpu_busy")
    records = [{"step": "f", "streams": 1, "gpu_busy": 0.4}, {"step": "a", "streams": 64, "gpu_busy": 0.1},
               {"step": "f", "streams": 64, "gpu_busy": 0.97}]  # fmt: skip
    assert bar.verdict(records) == "0.97, reached"


@pytest.mark.parametrize(
    ("batch", "context", "is_judged"),
    [
        (32, 2048, True),
        (256, 8192, True),
        (31, 8192, False),
        (32, 2047, False),
        (None, None, False),
    ],
)
def test_long_decodes_of_many_sequences_are_judged(
    batch: int | None, context: int | None, is_judged: bool
) -> None:
    (bar,) = (bar for bar in bars.BARS if bar.figure == "bandwidth_share")
    record: Record = {"step": "c", "item": "it", "bandwidth_share": 0.8}
    if batch is not None:
        record |= {"batch": batch, "context": context}
    assert bar.verdict([record]) == ("0.8, MISSED" if is_judged else "not measured")


@pytest.mark.parametrize(
    ("shape", "num_tokens", "chunk_tokens", "is_judged"),
    [("8b", 8192, 8192, True), ("8b", 8192, 2048, False), ("8b", 2048, 2048, False),
     ("0.6b", 8192, 8192, False)],
)  # fmt: skip
def test_whole_prompts_of_the_large_model_are_judged(
    shape: str, num_tokens: int, chunk_tokens: int, is_judged: bool
) -> None:
    (bar,) = (bar for bar in bars.BARS if bar.figure == "peak_share")
    record = {
        "step": "e", "shape": shape, "num_tokens": num_tokens, "chunk_tokens": chunk_tokens,
        "peak_share": 0.4,
    }  # fmt: skip
    assert bar.verdict([record]) == ("0.4, MISSED" if is_judged else "not measured")


@pytest.mark.parametrize(
    ("record", "status", "line"),
    [
        ({"ok": True}, 0, "a: 1 items, 0 failed"),
        ({"left_out": "too large"}, 0, "a: left out: it, too large"),
        ({"ok": False}, 1, "FAILED a it: the check failed"),
        ({"ok": False, "difference": "key 3 of 8"}, 1, "FAILED a it: key 3 of 8"),
        (
            {"ok": False, "difference": "key 3 of 8\nkey 4 of 8\nand 2 more"},
            1,
            "FAILED a it: key 3 of 8 (and more, see results.jsonl)",
        ),
        ({"error": "Traceback\n  line\nValueError: no"}, 1, "FAILED a it: ValueError: no"),
        (
            {
                "error": "Traceback\n  line\nAcceleratorError: CUDA error: x\nCompile with y",
                "reason": "AcceleratorError: CUDA error: x",
            },
            1,
            "FAILED a it: AcceleratorError: CUDA error: x",
        ),
    ],
)
def test_the_summary_fails_with_its_records(record: Record, status: int, line: str) -> None:
    out = io.StringIO()
    assert bars.summary([{"step": "a", "item": "it"} | record], out) == status
    assert line in out.getvalue().splitlines()


def test_no_bar_is_judged_without_a_gpu() -> None:
    for device, is_judged in (("cpu", False), ("cuda", True)):
        out = io.StringIO()
        machine = {"step": "m", "item": "machine", "device": device}
        assert bars.summary([machine, decode(1.1)], out) == 0
        assert ("1.1, reached" in out.getvalue()) is is_judged


def test_the_summary_stays_short() -> None:
    out = io.StringIO()
    records = [{"step": "a", "item": str(n), "error": "x" * 5000} for n in range(500)]
    assert bars.summary(records, out) == 1
    assert len(out.getvalue()) < 12_000
    assert f"FAILED {500 - bars.MAX_FAILURES} more, see results.jsonl" in out.getvalue()


OLD = [
    {"step": "d", "item": "8b", "step_s": 0.02, "ratio_to_bound": 1.5, "ok": True, "note": "x"},
    {"step": "a", "item": "rope", "cases": 4, "times": {"copy_s": 2.0}},
    {"step": "a", "item": "gone", "cases": 1},
    {"step": "a", "left_out": "2 items"},
]
NEW = [
    {"step": "d", "item": "8b", "step_s": 0.01, "ratio_to_bound": 1.2, "ok": False, "note": "y"},
    {"step": "a", "item": "rope", "cases": 0, "times": {"copy_s": 3.0}},
    {"step": "c", "item": "batch 32, " + "a long name " * 20, "bandwidth_share": 0.9},
]


def test_two_runs_side_by_side() -> None:
    out = io.StringIO()
    compare(OLD, NEW, out)
    lines = out.getvalue().splitlines()
    table = [line.split() for line in lines if line[:2] in ("a ", "d ")]
    assert table == [
        ["a", "rope", "cases", "4", "0", "0.000"],
        ["a", "rope", "times.copy_s", "2", "3", "1.500"],
        ["d", "8b", "step_s", "0.02", "0.01", "0.500"],
        ["d", "8b", "ratio_to_bound", "1.5", "1.2", "0.800"],
    ]
    assert "only in the old run: a gone" in lines
    assert "failed in the new run: d 8b" in lines
    bar = next(n for n, line in enumerate(lines) if line.endswith("weights and KV cache:"))
    assert lines[bar + 1] == "    old: 1.5, MISSED; new: 1.2, reached"
    assert max(len(line) for line in lines) <= 120


def test_a_run_beside_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for record in NEW:
        results.append(tmp_path, record)
    assert print_comparison(tmp_path, tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    ratios = [line[106:].strip() for line in lines[1:] if line[:2] in ("a ", "c ", "d ")]
    assert ratios == ["", *["1.000"] * 4]  # cases: 0
    assert not any(line.startswith("only") for line in lines)


def test_a_run_without_results_cannot_be_compared(tmp_path: Path) -> None:
    assert print_comparison(tmp_path, tmp_path) == 2
