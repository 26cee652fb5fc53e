"""A test of a quantity that gateways do not count: these edits of four files are all that it needs.

They follow "A canary test" in CONTRIBUTING.md, and are made in a copy of the package.
"""

import json
import re

import pytest
from tests.support.edited_package import PRESENT, ROOT, edited_package, run_program

pytestmark = pytest.mark.slow

PROGRAM = "tests.core.canary.new_quantity"
TEST = """

@dataclass(frozen=True, slots=True)
class DecodeTime(StreamedLatency):
    metric: ClassVar = "Decode time"
    stake: ClassVar = 0.9

    @staticmethod
    def values(arm: Arm) -> Binned:
        return (arm.decode,)
"""
EDITS = {
    "core/canary/arm.py": [
        ("    overall_s: float | None\n", "    decode_s: float | None\n"),
        ("    overall_s=None,\n", "    decode_s=None,\n"),
        ("    output: Moments\n", "    decode: Moments\n"),
        ("    output=NOTHING,\n", "    decode=NOTHING,\n"),
        (
            '        self._add("overall", _log(answer.overall_s))\n',
            '        self._add("decode", _log(answer.decode_s))\n',
        ),
    ],
    "gateway/stats/request_record.py": [
        (
            "            overall_s=self._times.engine_ttft_s,\n",
            "            decode_s=(self._tpot_s or 0) * (usage.output_tokens - 1),\n",
        )
    ],
    "sim/rollout/arms.py": [
        (
            "        overall_s=request.ttft_s,\n",
            "        decode_s=request.end_s - request.first_token_s,\n",
        ),
        (
            "    output = _cells(block[good], side.output[good], blocks)\n",
            "    decode = _cells(block[good], (side.tpot + side.output)[good], blocks)\n",
        ),
        ("            output=output[i],\n", "            decode=decode[i],\n"),
    ],
    "core/canary/compared_metrics.py": [
        ("        return arm.tpot\n", TEST),
        ("    output: OutputLength\n", "    decode: DecodeTime\n"),
    ],
}
"""Text that is inserted, and after which line, by file."""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results of new_quantity.py in a copy of the package with the edits."""
    records = run_program(PRESENT, PROGRAM, "records")
    package = edited_package(tmp_path_factory.mktemp("edited"), EDITS)
    return run_program(package, PROGRAM, given=json.dumps(records))


def test_the_recipe_names_these_files():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    (recipe,) = (part for part in text.split("\n\n") if part.startswith("**A canary test.**"))
    assert {*re.findall(r"`operator/penstock/([\w/]+\.py)`", recipe)} == EDITS.keys()


def test_gateways_count_it_and_the_judge_aborts_for_it(results):
    kind, reason = results["verdict"]
    assert kind == "Abort"
    assert reason.startswith("Decode time of the canary is +50.0 % against its control")


def test_it_is_shown_and_stored(results):
    assert results["metrics"] == [
        "TTFT", "TTFT with queues", "TPOT", "Errors", "Objective violations", "Output length",
        "Decode time",
    ]  # fmt: skip
    assert results["is_stored"]


def test_the_simulator_of_services_measures_it(results):
    phases = [phase for phase, _ in results["phases"]]
    assert phases == ["Starting", "Judging", "Growing", "Promoting", "Draining", "Stable"]
    accepted = dict(results["phases"])["Growing"]
    assert "Decode time of the canary is " in accepted
    assert accepted.endswith("; all within tolerance")


def test_the_simulator_of_many_canaries_measures_it(results):
    successful, measured = results["drawn"]
    assert measured == successful > 400


def test_what_was_stored_or_reported_without_it_is_not_read(results):
    assert results["old_trial"] is None
    assert results["old_report"].startswith(
        "unreadable stats report: GatewayReport.arms.default/chat"
    )
    assert results["old_report"].endswith("lacks decode")
