"""What a run leaves behind: JSON that reads back, a picture, a table."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from rtmem.loadtest import (
    Experiment,
    Latency,
    Measured,
    Report,
    Verdict,
    describe_machine,
    peak_rss_bytes,
    versions_of,
    write_json,
)
from rtmem.loadtest.console import progress_bar, show
from rtmem.loadtest.picture import write_picture

pytestmark = pytest.mark.anyio


@pytest.fixture
async def report() -> Report:
    def row(name: str, p50_us: float, ratio: float) -> Measured:
        latency = Latency.of([p50_us * 0.9, p50_us, p50_us * 1.4])
        return Measured(
            contender=name,
            latency=latency,
            ratio=ratio,
            ratio_low=ratio,
            ratio_high=ratio,
            operations_per_s=1e6 / p50_us,
            client_cpu_us=p50_us / 2,
            facts={"bytes on the wire": 212.0},
        )

    rows = [row("floor", 100, 1.0), row("rtmem full", 115, 1.15), row("peer", 900, 9.0)]
    failed = Measured(contender="broken peer", errors=5, first_error="TypeError: no")
    experiments = [
        Experiment(name=f"aput {size}", baseline="floor", concurrency=1, rounds=3, operations=3, rows=[*rows, failed])
        for size in ("2 KB", "50 KB", "1 MB")
    ]
    sizes = [Measured(contender=name, facts={"bytes": size}) for name, size in (("rtmem full", 3e5), ("peer", 4e6))]
    experiments.append(
        Experiment(name="growth", baseline="", concurrency=1, rounds=1, operations=1, rows=sizes, fact="bytes")
    )
    return Report(
        title="checkpoint savers",
        seed=42,
        started_at="2026-11-29T22:00:00Z",
        duration_s=1.0,
        machine=describe_machine(),
        versions=versions_of(["redis", "msgspec", "no-such-package"]),
        peak_rss_bytes=peak_rss_bytes(),
        experiments=experiments,
        verdicts=[
            Verdict.of("aput 50 KB", target=1.3, measured=1.15, unit="x"),
            Verdict.of("growth", target=0.5, measured=0.7, unit="MB", best_other="1.4 MB"),
            Verdict.of("never ran", target=1.0, measured=None, unit="x"),
            Verdict.at_least("recall", target=0.7, measured=0.6, unit=""),
        ],
    )


async def test_json_reads_back_as_the_same_report(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "report.json"

    write_json(report, path)

    assert msgspec.json.decode(path.read_bytes(), type=Report) == report
    tree = json.loads(path.read_text("utf-8"))
    assert tree["seed"] == 42
    assert tree["machine"]["cores"] >= 1
    assert tree["experiments"][0]["rows"][1]["latency"]["p99_us"] > 0
    assert [verdict["passed"] for verdict in tree["verdicts"]] == [True, False, False, False]


async def test_every_quantity_in_the_json_says_its_unit() -> None:
    schemas = msgspec.json.schema(Report)["$defs"]
    plain = {"count", "target", "measured", "load_1min"}
    plain |= {"ratio", "ratio_low", "ratio_high", "throughput_ratio", "client_cpu_ratio"}
    for struct_name in ("Latency", "Measured", "Verdict", "Machine", "Report"):
        for field, schema in schemas[struct_name]["properties"].items():
            kinds = {schema.get("type")} | {option.get("type") for option in schema.get("anyOf", ())}
            if "number" in kinds and field not in plain:
                assert field.endswith(("_us", "_ms", "_s", "_bytes")), f"{struct_name}.{field} has no unit"


async def test_versions_name_only_what_is_installed(report: Report) -> None:
    assert set(report.versions) == {"redis", "msgspec"}
    assert report.peak_rss_bytes > 10_000_000


async def test_picture_is_a_png_with_a_panel_for_every_experiment(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "report.png"

    write_picture(report, path)

    head = path.read_bytes()[:24]
    width, height = struct.unpack(">II", head[16:24])
    assert head.startswith(b"\x89PNG\r\n\x1a\n")
    # Three panels in a line, so four experiments take two lines.
    assert width > 1_200
    assert height > 300


async def test_terminal_shows_ratios_verdicts_failures_and_how_to_repeat(report: Report) -> None:
    out = io.StringIO()

    show(report, Console(file=out, width=200))

    text = out.getvalue()
    for piece in (
        "1.15",
        "9.00",
        "115 µs",
        "TypeError: no",
        "FAIL",
        "not measured",
        "<= 1.3 x",
        ">= 0.7",
        "seed 42",
        "redis ",
    ):
        assert piece in text


def test_progress_goes_with_what_was_announced() -> None:
    out = io.StringIO()

    with progress_bar(Console(file=out, width=120, force_terminal=True)) as bar:
        bar.announce(2)
        bar.describe("aput")
        bar.step()
        bar.step()

    assert "2/2" in out.getvalue()


def test_engine_imports_nothing_heavy() -> None:
    heavy = ["matplotlib", "numpy", "rich", "redis", "langgraph"]
    code = f"import sys, rtmem.loadtest; print([name for name in {heavy!r} if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
