"""What the commands of one user leave for each other in the data directory: the access token and the gateway's address.

Both files are private (0600). The token is made once, so that a client configured yesterday still works today.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import Final

from rtmem.errors import ConfigError, DataDirectoryError
from rtmem.server import directory
from rtmem.settings import Settings

PRINCIPAL: Final = "local"

_TOKEN_FILE: Final = "token"
_ADDRESS_FILE: Final = "gateway"


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
    return _read_private(directory.locate(settings.server.data_dir).root / _TOKEN_FILE)


def keep_address(settings: Settings, address: str) -> None:
    """Note where the gateway listens, for `rtmem chat`."""
    _write_private(directory.prepare(settings.server.data_dir).root / _ADDRESS_FILE, address)


def known_address(settings: Settings) -> str:
    """Where a gateway of this data directory listened last, or would by the settings."""
    kept = _read_private(directory.locate(settings.server.data_dir).root / _ADDRESS_FILE)
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
