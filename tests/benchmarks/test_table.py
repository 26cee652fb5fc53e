"""Tables of the panel."""

from benchmarks.simulator.panel.load import draw_load
from benchmarks.simulator.panel.table import Row, plan_table


def test_plans_are_counted_by_class_of_loads() -> None:
    """Two loads of different kinds, of which the first has an attainment far below any objective."""
    rows = [
        Row(
            draw_load(seed),
            {"replicas": 2, "attainment": 1.0, "gpu_hours": 2.0},
            1.0,
            {"plan x1": {"attainment": attainment, "gpu_hours": gpu_hours}},
        )
        for seed, attainment, gpu_hours in ((2000, 0.5, 1.0), (2001, 1.0, 4.0))
    ]
    table = plan_table(rows, ["plan x1"])
    names, numbers, plans = (list(column.cells) for column in table.columns)
    cells = dict(zip(names, zip(numbers, plans, strict=True), strict=True))
    assert cells[rows[0].load.kind] == ("1", "0 0.50 0.50")
    assert cells[rows[1].load.kind] == ("1", "1 2.00 2.00")
    assert cells["all"] == ("2", "1 1.25 1.25")
