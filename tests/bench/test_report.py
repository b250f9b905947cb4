"""Tables, Markdown and JSON of results that were made up."""

from __future__ import annotations

import json
from dataclasses import replace

from attngen.bench.cases import Case
from attngen.bench.environment import Environment, environment
from attngen.bench.measure import CallReport, Line, Result
from attngen.bench.processes import MemoryLine, StartLine
from attngen.bench.report import (
    call_data,
    call_tables,
    environment_note,
    markdown,
    memory_table,
    process_data,
    start_table,
)
from attngen.timing import Timing

WHERE = Environment("a CPU", 2, "Linux", "3.11", 0.1, "2026-12-01", {"numpy": "2.4"})
CASE = Case("H2 S8", 2, 2, 8, 8, 4)


def report(our_reason: str | None = None) -> CallReport:
    ours = Result("attngen", None if our_reason else Timing((0.002,)), 1.0, 1e-7, our_reason)
    results = (
        ours,
        Result("peer", Timing((0.003, 0.002, 0.004)), 1.5, 1e-7, None),
        Result("absent", None, None, None, "absent is not installed"),
    )
    return CallReport("core", WHERE, (Line(CASE, 2, 10**9, 1e12, 1e-5, results),))


def test_call_table_as_markdown() -> None:
    (table,) = call_tables(report())
    assert markdown(table) == (
        "**core, 2 threads (FMA peak 1000 GFLOP/s); × is their time over ours**\n"
        "\n"
        "| work | attngen | rate | of peak | peer | absent |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| H2 S8 | 2.00 ms | 500 GFLOP/s | 50% | 3.00 ms (1.50×) | – |\n"
        "\n"
        "- absent: absent is not installed"
    )


def test_a_wrong_result_of_ours_is_not_timed_and_says_so() -> None:
    wrong = report("wrong by 0.1, and 1e-05 is allowed")
    (table,) = call_tables(wrong)
    assert not wrong.correct
    assert table.rows[0][1:4] == ("–", "–", "–")
    assert table.notes[0] == "attngen: wrong by 0.1, and 1e-05 is allowed"


def test_reasons_name_their_lines_only_where_others_went_well() -> None:
    lines = (
        MemoryLine("us", "one", 1, 10, 100),
        MemoryLine("us", "two", 1, None, 100, "cannot"),
        MemoryLine("them", "one", 1, None, 100, "absent"),
        MemoryLine("them", "two", 1, None, 100, "absent"),
    )
    assert memory_table(lines).notes == ("us: cannot (two)", "them: absent")


def test_start_table_has_medians() -> None:
    table = start_table(
        [StartLine("us", "cold", (3.0, 1.0, 2.0)), StartLine("x", "cold", (), "no")]
    )
    assert table.rows == (("us", "cold", "2.00 s", "3"), ("x", "cold", "–", "0"))


def test_json_has_every_figure_and_the_environment() -> None:
    data = json.loads(json.dumps(call_data(report())))
    (line,) = data["lines"]
    assert data["environment"]["cpu"] == "a CPU"
    assert line["case"]["heads"] == 2
    assert line["results"][1]["timing"] == [0.003, 0.002, 0.004]
    assert line["results"][0]["share_of_peak"] == 0.5
    assert line["results"][2]["reason"] == "absent is not installed"
    starts = process_data("start", WHERE, [StartLine("us", "cold", (1.0,))])
    assert json.loads(json.dumps(starts))["lines"][0]["seconds"] == [1.0]


def test_a_busy_machine_is_pointed_out() -> None:
    assert "BUSY" not in environment_note(WHERE)
    assert "BUSY before (load 3.0)" in environment_note(replace(WHERE, load=3.0))


def test_environment_is_complete() -> None:
    here = environment()
    assert here.cpu
    assert here.cores >= 1
    assert {"numpy", "numba"} <= here.versions.keys()
