"""A new setting of the scheduler needs edits of five files, which are made here.

They follow "An engine setting" in CONTRIBUTING.md, and are made in a copy of both packages.
"""

from pathlib import Path

import pytest
from tests.support.edited_package import PRESENT, edited_package, run_program

import penstock_engine

pytestmark = pytest.mark.slow

PROGRAM = "tests.engine_flags.new_setting"
OPERATOR_EDITS = {
    "api/inferenceservice/engine.py": [
        (
            '    """Order and limits of waiting requests in each engine."""\n',
            "\n    max_step_seqs: int | None = Field(\n"
            '        default=None, description="Maximum number of sequences of a step.", ge=1\n'
            "    )\n",
        )
    ],
    "core/runtimes/penstock.py": [
        (
            '    option("engine.scheduling.requestTimeout", "--request-timeout", text="{:g}".format),\n',
            '    option("engine.scheduling.maxStepSeqs", "--max-step-seqs"),\n',
        )
    ],
}
ENGINE_EDITS = {
    "options/config.py": [
        (
            "    model_dir: Path\n",
            "    max_step_seqs: Annotated[\n"
            '        int | None, Option(min=1, help="Maximum number of sequences of a step.")\n'
            "    ] = None\n",
        )
    ],
    "core/scheduler_config.py": [
        ("    window_tokens: int | None = None\n", "    max_step_seqs: int | None = None\n")
    ],
    "core/scheduler.py": [
        (
            "                chunks.append((admitted, admitted.num_computed_tokens, num_tokens))\n",
            "                if len(chunks) == self.config.max_step_seqs:\n"
            "                    break\n",
        )
    ],
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results of new_setting.py in a copy of the packages with the edits."""
    folder = tmp_path_factory.mktemp("edited")
    edited_package(folder, ENGINE_EDITS, Path(penstock_engine.__file__).parent)
    return run_program(edited_package(folder, OPERATOR_EDITS), PROGRAM)


def test_the_scheduler_follows_it(results):
    assert results["sequences"] == [4, 2]


def test_a_spec_that_has_it_is_another_revision(results):
    without, bounded = results["revisions"]
    assert results["settings"] == {"engine.scheduling.maxStepSeqs": 2}
    assert without == run_program(PRESENT, PROGRAM, "revision")
    assert bounded != without


def test_users_are_told_of_its_field(results):
    field = "spec.engine.scheduling.maxStepSeqs"
    assert results["advice"] == f"lower {field}"
    assert results["refused_argument"].endswith(
        f"must not have --max-step-seqs=2: set {field} instead"
    )
    assert results["refused_value"].startswith(f"{field}: ")
