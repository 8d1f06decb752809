"""What the commands of one user leave for each other in the data directory: the access token and the gateway's address.

Both files are private (0600). The token is made once, so that a client configured yesterday still works today. The
address is believed only while its gateway lives, which is what a lock says: it ends with its holder, however it ends.
"""

from __future__ import annotations

import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rtmem.errors import ConfigError, DataDirectoryError, GatewayRunningError
from rtmem.server import directory, lock
from rtmem.settings import Settings

PRINCIPAL: Final = "local"

_TOKEN_FILE: Final = "token"
_ADDRESS_FILE: Final = "gateway"
_LOCK_FILE: Final = "gateway.lock"

KeepAddress = Callable[[str], None]


def ensure_token(settings: Settings) -> str:
    """The token of this data directory, made at the first call."""
    root = directory.prepare(settings.server.data_dir).root
    path = root / _TOKEN_FILE
    if token := _read_private(path):
        return token
    token = secrets.token_urlsafe(24)
    _write_private(path, token)
    return token


def known_token(settings: Settings) -> str:
    """The token that clients on this machine should use: a configured one, or the kept one; empty if there is none."""
    if settings.gateway.tokens:
        return next(iter(settings.gateway.tokens))
    return kept_token(settings)


def kept_token(settings: Settings) -> str:
    """The token of this data directory; empty if there is none."""
    return _read_private(directory.locate(settings.server.data_dir).root / _TOKEN_FILE)


@contextmanager
def only_gateway(settings: Settings) -> Iterator[KeepAddress]:
    """Be the gateway of this data directory; gives what notes its address for `rtmem chat`, until the end.

    Beside a gateway that runs there already, one with a Redis of its own may run too, and notes nothing.

    Raises:
        GatewayRunningError: both would use the embedded Redis, and take each other's runs for dead.
    """
    layout = directory.prepare(settings.server.data_dir)
    root, path = layout.root, layout.root / _ADDRESS_FILE
    descriptor = lock.open_lock(root / _LOCK_FILE)
    try:
        # Windows has no such lock, and no embedded Redis to share.
        first = sys.platform == "win32" or lock.try_lock(descriptor)
        if not first and not settings.redis.url:
            raise GatewayRunningError(
                f"a gateway of data directory {root} runs already, at {_read_private(path) or 'no address yet'}: talk "
                f"to it with `{layout.command('chat')}`, stop it with Ctrl-C where it runs, or give this one another "
                "--data-dir",
                data_dir=str(root),
            )
        if first:
            path.unlink(missing_ok=True)  # of one that was killed
        try:
            yield (lambda address: _write_private(path, address)) if first else (lambda address: None)
        finally:
            if first:
                path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def known_address(settings: Settings) -> str:
    """Where the gateway of this data directory listens; without one that lives, where it would by the settings."""
    root = directory.locate(settings.server.data_dir).root
    path = root / _LOCK_FILE
    lives = path.exists() and (sys.platform == "win32" or not lock.is_free(path))
    kept = _read_private(root / _ADDRESS_FILE) if lives else ""
    host, port = settings.gateway.host, settings.gateway.port
    return kept or connectable(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")


def connectable(url: str) -> str:
    """`url` as a client on this machine would type it: "all interfaces" is no address to connect to."""
    return url.replace("://0.0.0.0:", "://127.0.0.1:").replace("://[::]:", "://[::1]:")


def _read_private(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise ConfigError(
                    f"{path} can be read by others: chmod 600 it, or delete it to get a new one", path=str(path)
                )
            return file.read().strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as exc:
        raise DataDirectoryError(f"{path} cannot be read: {exc}: check its owner and mode", path=str(path)) from exc


def _write_private(path: Path, text: str) -> None:
    # Written aside and moved, so that no reader ever sees half a token.
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text + "\n")
        draft.replace(path)
    except OSError as exc:
        raise DataDirectoryError(f"{path} cannot be written: {exc}: check its directory", path=str(path)) from exc
