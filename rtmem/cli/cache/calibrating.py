"""`rtmem cache calibrate`: the threshold of an embedder, from pairs of questions that somebody has labelled."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from rtmem.cli import options, screen
from rtmem.cli.cache.calibration_report import Calibration, as_text, show, write_text
from rtmem.errors import CalibrationError, ConfigError, ExtraMissingError, InvalidRequestError
from rtmem.operations.calibration import CONFIDENCE, Compared, Goal, by_kind, choose, curve, refusals
from rtmem.operations.labelled_pairs import KINDS, LabelledPair, read_pairs

if TYPE_CHECKING:
    from rtmem.settings import Embedding
    from rtmem.steps import Embedder

_PRECISION: Final = 0.99
_FILE_BYTES_MAX: Final = 512 * 1024 * 1024


def calibrate(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="PAIRS...", help="CSV or TSV: kind,first,second, or two columns of texts and a label."),
    ],
    precision: Annotated[
        float | None,
        typer.Option("--precision", min=0, max=1, help=f"So many of the hits shall be right; default {_PRECISION}."),
    ] = None,
    false_hits: Annotated[
        float | None,
        typer.Option("--false-hits", min=0, max=1, help="Instead: at most so many of the other pairs shall hit."),
    ] = None,
    sure: Annotated[
        bool,
        typer.Option("--sure", help=f"The {CONFIDENCE:.0%} bound shall reach it, not only what was counted."),
    ] = False,
    model: Annotated[
        str,
        typer.Option(
            "--model", metavar="MODEL", help="local, multilingual or remote:NAME; default: that of \\[embedding]."
        ),
    ] = "",
    guard: Annotated[bool, typer.Option("--guard/--no-guard", help="With the cache's guard, as it will run.")] = True,
    pairs_max: Annotated[
        int, typer.Option("--pairs-max", min=1, help="Of a larger file so many are drawn, always the same.")
    ] = 10_000,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where calibration.json and .png go if one is found.")
    ] = Path("."),
    picture: Annotated[bool, typer.Option("--picture/--no-picture", help="Draw the curve.")] = True,
    config: options.Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what is written as JSON.")] = False,
) -> None:
    """Find how near a question must be to a cached one, by pairs that you label.

    Of a [bold]paraphrase[/bold] one answer serves both questions. Of the others it does not:
    number, unit, date, negation, antonym, swap, name, quoted (nearly the same
    words), unrelated. Take them from what your users ask, near misses above all,
    some hundreds of each. Public sets work too, by the names of their columns
    (question1, question2, is_duplicate; sentence1, sentence2, label).

    Prints what each threshold would do, and the line for your settings. It needs
    no Redis. Examples:
      [bold]rtmem cache calibrate pairs.csv[/bold]
      [bold]rtmem cache calibrate pairs.csv --precision 0.95 --model multilingual[/bold]
      [bold]rtmem cache calibrate pairs.csv --false-hits 0.01 --sure[/bold]
    """
    from rtmem.cli.cache import picture as pictures
    from rtmem.embedding import from_settings

    goal = _goal(precision, false_hits, sure)
    embedding = _embedding(config, model)
    if picture:
        pictures.require()
    pairs = _drawn(_read(files), pairs_max)
    with closing(from_settings(embedding)) as embedder:
        compared = _compared(pairs, embedder, guard)
    points = curve(compared)
    choice, failure = None, None
    try:
        choice = choose(compared, goal)
    except CalibrationError as exc:
        failure = exc  # what the pairs do show is shown first
    paraphrases = sum(each.same for each in compared)
    made = Calibration(
        model=embedding.model,
        embedder=embedder.name,
        fingerprint=embedder.fingerprint,
        guard=guard,
        files=[str(path) for path in files],
        paraphrases=paraphrases,
        others=len(compared) - paraphrases,
        goal=goal.words,
        choice=choice,
        failure="" if failure is None else failure.message,
        kinds=[] if choice is None else by_kind(compared, choice.threshold, KINDS),
        reasons=[] if choice is None else refusals(compared, choice.threshold),
        points=points,
    )
    if as_json:
        typer.echo(as_text(made), nl=False)
    else:
        show(made)
    if failure is not None:
        raise failure
    write_text(made, out / "calibration.json")
    written = f"written: {out / 'calibration.json'}"
    if picture:
        bare = curve([msgspec.structs.replace(each, refusal="") for each in compared])
        pictures.write_picture(out / "calibration.png", made, bare)
        written += f", {out / 'calibration.png'}"
    screen.note(written)


def _goal(precision: float | None, false_hits: float | None, sure: bool) -> Goal:
    if precision is not None and false_hits is not None:
        raise InvalidRequestError("--precision and --false-hits are two goals: give one of them")
    if precision is None and false_hits is None:
        precision = _PRECISION
    goal = Goal(precision=precision, false_hit_rate=false_hits, sure=sure)
    _ = goal.counted_min  # refuses what no pairs can show, before any work
    return goal


def _embedding(config: str | None, model: str) -> Embedding:
    from rtmem.embedding import missing

    settings = options.load(config).embedding
    settings = msgspec.structs.replace(settings, model=model) if model else settings
    if extra := missing(settings):
        raise ExtraMissingError(
            f"the embedder {settings.model!r} is not installed: pip install 'rtmem[{extra}]', or choose another one "
            "with --model",
            extra=extra,
        )
    return settings


def _read(files: Sequence[Path]) -> list[LabelledPair]:
    pairs: list[LabelledPair] = []
    for path in files:
        try:
            if path.stat().st_size > _FILE_BYTES_MAX:
                raise InvalidRequestError(f"{path} is larger than {_FILE_BYTES_MAX >> 20} MB: give a part of it")
            text = path.read_text("utf-8")
        except OSError as exc:
            raise ConfigError(f"{path}: {exc.strerror}: give a CSV or TSV file of pairs") from exc
        except UnicodeDecodeError as exc:
            raise InvalidRequestError(
                f"{path}, byte {exc.start:,}: not UTF-8: write it again as UTF-8 (iconv -f ... -t UTF-8)"
            ) from exc
        read = read_pairs(text, str(path))
        if read.skipped:
            screen.note(f"({path}: {screen.counted(read.skipped, 'row')} left out: a text is missing)")
        if not read.pairs:
            raise InvalidRequestError(f"{path} has a header and no pairs: add some hundreds")
        pairs += read.pairs
    return pairs


def _drawn(pairs: list[LabelledPair], pairs_max: int) -> list[LabelledPair]:
    if len(pairs) <= pairs_max:
        return pairs
    screen.note(f"({pairs_max:,} of {len(pairs):,} pairs, drawn at random; --pairs-max takes more)")
    return random.Random(0).sample(pairs, pairs_max)


def _compared(pairs: list[LabelledPair], embedder: Embedder, guard: bool) -> list[Compared]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from rtmem.cli.cache.comparing import compare_pairs, guard_reason, texts_of

    columns = (TextColumn("{task.description:<12}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen.err, transient=True) as bars:
        task = bars.add_task("embedding", total=len(texts_of(pairs)))
        return compare_pairs(
            pairs, embedder, guard_reason if guard else None, lambda count: bars.update(task, advance=count)
        )
