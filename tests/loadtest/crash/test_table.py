"""The table of promises from a few outcomes made by hand: exact text, and a picture that shows all of it."""

from __future__ import annotations

import io
import struct
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from loadtest.crash import BEGIN, END, publish
from loadtest.crash.outcome import Outcome, Report
from loadtest.crash.prices import OFFERS, Prices
from loadtest.crash.table import kept, markdown, ratio, rich_table, sheets, write_picture
from rtmem.loadtest import Experiment, Latency, Measured


def outcome(profile: str, ack: str = "memory", *, crash: str = "power cut", **more: object) -> Outcome:
    return Outcome(scenario=profile, crash=crash, profile=profile, ack=ack, seed="7", **more)  # type: ignore[arg-type]


def report(outcomes: list[Outcome], prices: Prices | None) -> Report:
    return Report(
        seed=7,
        started_at="2026-11-30T01:00:00+00:00",
        duration_s=1.0,
        versions={},
        outcomes=outcomes,
        verdicts=[],
        prices=prices,
    )


OUTCOMES = [
    outcome("durable", volume="xfs", acked=400, recovery_ms=30, longest_fsync_ms=4.25),
    outcome("balanced", crash="kill -9 of Redis", acked=5_000, recovery_ms=20),
    outcome("balanced", volume="ext4", acked=1_000, lost=70, window_ms=640, recovery_ms=40, start="repaired"),
    outcome("balanced", volume="ext4", acked=900, recovery_ms=50, longest_fsync_ms=21),
    outcome("balanced", volume="shim", acked=100, lost=5, window_ms=1_240, recovery_ms=60, start="accept-loss"),
    outcome("durable", volume="ext4", acked=600, recovery_ms=25, longest_fsync_ms=12.5),
    outcome("balanced", "fsync", volume="ext4", acked=64, turns=12, recovery_ms=33),
    outcome("relaxed", volume="ext4", acked=9_000, lost=9_000, window_ms=12_400, recovery_ms=10),
]


def experiment(state: str, crowd: int, **offers: tuple[float, float]) -> Experiment:
    """Offers by name: throughput as a ratio, and p99 in µs."""
    rows = [
        Measured(contender=name.replace("_", ", ack "), latency=latency(p99_us), throughput_ratio=throughput)
        for name, (throughput, p99_us) in offers.items()
    ]
    return Experiment(
        name=f"aput, whole state new, {state}",
        baseline="ephemeral",
        concurrency=crowd,
        rounds=1,
        operations=1,
        rows=rows,
    )


def latency(p99_us: float) -> Latency:
    return Latency(count=9, mean_us=p99_us, p50_us=p99_us, p95_us=p99_us, p99_us=p99_us, max_us=p99_us)


PRICES = Prices(
    file_system="ext4",
    redis_version="8.2.3",
    experiments=[
        experiment(
            "2 KB",
            1,
            ephemeral=(1.0, 500),
            balanced=(0.97, 600),
            durable=(0.1, 5_500),
            balanced_fsync=(0.00041, 999_000),
        ),
        experiment("2 KB", 256, ephemeral=(1.0, 20_000), balanced=(0.9, 25_000), durable=(0.55, 76_000)),
    ],
)


def test_the_table_is_exactly_this() -> None:
    assert markdown(sheets(OUTCOMES, PRICES)) == (
        "**What a crash takes.** Window: how old the oldest lost acknowledgement was when the crash came; the median "
        "is over all crashes. Recovery: from the start of the server to the first checkpoint read.\n"
        "\n"
        "| crash | profile | crashes | acknowledged | lost | window p50 / max | longest fsync | recovery p50 / max "
        "| unattended starts |\n"
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        "| power cut | relaxed | 1 (1 ext4) | 9,000 | all, in 1 of 1 | 12 s / 12 s |  | 10 ms / 10 ms | 1 of 1 |\n"
        "| power cut | balanced | 3 (2 ext4, 1 shim) | 2,000 | 75, in 2 of 3 | 640 ms / 1,240 ms | 21 ms "
        "| 50 ms / 60 ms | 2 of 3 |\n"
        "| power cut | durable | 2 (1 ext4, 1 XFS) | 1,000 | 0 | 0 | 12 ms | 28 ms / 30 ms | 2 of 2 |\n"
        "| power cut | balanced, ack fsync | 1 (1 ext4) | 64 (12 turns) | 0 | 0 | < 10 ms | 33 ms / 33 ms | 1 of 1 |\n"
        "| kill -9 of Redis | balanced | 1 | 5,000 | 0 | 0 |  | 20 ms / 20 ms | 1 of 1 |\n"
        "\n"
        "**What it costs.** Throughput / p99 latency of AsyncRedisSaver.aput as ratios to ephemeral, which keeps no "
        "log; Redis 8.2.3, data on ext4.\n"
        "\n"
        "| profile | 2 KB, 1 client | 2 KB, 32 clients | 2 KB, 256 clients | 50 KB, 1 client | 50 KB, 32 clients "
        "| 50 KB, 256 clients |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        "| ephemeral | 1.00x / 1.00x | not measured | 1.00x / 1.00x | not measured | not measured | not measured |\n"
        "| balanced | 0.97x / 1.20x | not measured | 0.90x / 1.25x | not measured | not measured | not measured |\n"
        "| durable | 0.10x / 11x | not measured | 0.55x / 3.8x | not measured | not measured | not measured |\n"
        "| balanced, ack fsync | 0.00041x / 2,000x | not measured | not measured | not measured | not measured "
        "| not measured |\n"
    )


def test_what_raised_is_told_beside_the_ratios() -> None:
    failing = Measured(
        contender="durable", latency=latency(9), throughput_ratio=0.5, errors=97, first_error="NotDurableError: slow"
    )
    base = Measured(contender="ephemeral", latency=latency(9), throughput_ratio=1)
    found = Experiment(
        name="aput, whole state new, 50 KB",
        baseline="ephemeral",
        concurrency=256,
        rounds=1,
        operations=1,
        rows=[base, failing],
    )
    (sheet,) = sheets([], Prices(file_system="ext4", redis_version="8.2.3", experiments=[found]))
    assert sheet.note.endswith(" Puts that raised: durable, 50 KB, 256 clients: 97 (NotDurableError).")


def test_crashes_of_two_kinds_never_share_a_row() -> None:
    rows = {(row.kind, row.offer): row for row in kept(OUTCOMES)}
    assert rows["kill -9 of Redis", "balanced"].acked == 5_000
    assert rows["power cut", "balanced"].acked == 2_000


def test_a_control_in_which_nothing_was_acknowledged_is_no_promise() -> None:
    assert kept([outcome("balanced", crash="groups without MULTI", torn=9)]) == []


def test_what_was_found_broken_is_not_lost_on_the_way() -> None:
    (row,) = kept([outcome("durable", acked=1, faults=("no base",)), outcome("durable", faults=("torn", "torn"))])
    assert row.faults == 3


def test_a_partial_run_shows_what_it_has() -> None:
    assert [sheet.title for sheet in sheets(OUTCOMES, None)] == ["What a crash takes"]
    assert [sheet.title for sheet in sheets([], PRICES)] == ["What it costs"]


def test_the_terminal_shows_the_same_cells() -> None:
    out = io.StringIO()
    for sheet in sheets(OUTCOMES, PRICES):
        Console(file=out, width=240).print(rich_table(sheet))
    for cell in ("75, in 2 of 3", "640 ms / 1,240 ms", "2 ext4, 1 shim", "0.55x / 3.8x", "not measured"):
        assert cell in out.getvalue()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234, "1,200x"),
        (11.2, "11x"),
        (3.14, "3.1x"),
        (1.0, "1.00x"),
        (0.102, "0.10x"),
        (0.034, "0.034x"),
        (0.00041, "0.00041x"),
        (0.0, "0x"),
    ],
)
def test_a_ratio_has_two_digits(value: float, text: str) -> None:
    assert ratio(value) == text


@pytest.mark.parametrize("prices", [PRICES, None])
def test_the_picture_is_a_png_for_all_or_half_a_run(prices: Prices | None, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "crash.png"
    write_picture(report(OUTCOMES, prices), path)
    head = path.read_bytes()[:24]
    width, height = struct.unpack(">II", head[16:24])
    assert head.startswith(b"\x89PNG\r\n\x1a\n")
    assert width > 1_200
    assert height > 400


def test_what_is_published_is_whole_in_one_readme_and_without_disk_faults_in_the_other(tmp_path: Path) -> None:
    readmes = (tmp_path / "README.md", tmp_path / "loadtest" / "README.md")
    (tmp_path / "loadtest").mkdir()
    for readme in readmes:
        readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    faults = [outcome("durable", "all", crash="disk fault: EIO fsync, power cut after it", acked=3)]
    publish(report([*OUTCOMES, *faults], PRICES), tmp_path)
    short, whole = (readme.read_text() for readme in readmes)
    assert whole == f"before\n{BEGIN}\n{markdown(sheets([*OUTCOMES, *faults], PRICES))}{END}\nafter\n"
    assert short == f"before\n{BEGIN}\n{markdown(sheets(OUTCOMES, PRICES))}{END}\nafter\n"
    assert (tmp_path / "loadtest" / "crash.png").exists()


@pytest.mark.parametrize("place", ["README.md", "loadtest/README.md"])
def test_the_readme_shows_what_the_lab_writes(place: str) -> None:
    readme = (Path(__file__).parents[3] / place).read_text("utf-8")
    shown = readme.split(BEGIN)[1].split(END)[0]
    made = markdown(sheets(OUTCOMES, PRICES))

    def headings(text: str) -> list[str]:
        """Of each table: the line above the rule."""
        lines = text.splitlines()
        return [above for above, below in pairwise(lines) if below.startswith("| --- |")]

    assert headings(shown) == headings(made)
    costs = shown.split("**What it costs.**")[1]
    assert [line.split(" | ")[0] for line in costs.splitlines()[4:]] == [f"| {offer.name}" for offer in OFFERS]
    assert "not measured" not in costs
    losses = shown.split("**What it costs.**")[0]
    for offer in ("relaxed", "balanced", "durable", "balanced, ack fsync"):
        assert f"| power cut | {offer} | " in losses
