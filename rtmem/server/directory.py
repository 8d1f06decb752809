"""The private directory of an embedded server, and the path of its socket."""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rtmem.errors import DataDirectoryError

# The kernel's limit is 108 bytes on Linux and 104 on macOS, the closing zero included.
SOCKET_BYTES_MAX: Final = 100

_NEXT_STEP: Final = "choose another directory with RTMEM_SERVER__DATA_DIR, or give this one to your user"


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of one server. Everything is below `root`, except a socket whose path would be too long."""

    root: Path
    socket: Path

    @property
    def transition_lock(self) -> Path:
        """Held while somebody starts or stops the server, so that one at a time does."""
        return self.root / "transition.lock"

    @property
    def share_lock(self) -> Path:
        """Held, shared, by every process that uses the server."""
        return self.root / "shares.lock"

    @property
    def life_lock(self) -> Path:
        """Held by the server itself, as an inherited file, for as long as it lives."""
        return self.root / "life.lock"

    @property
    def conf(self) -> Path:
        return self.root / "redis.conf"

    @property
    def log(self) -> Path:
        return self.root / "redis.log"

    @property
    def pid(self) -> Path:
        return self.root / "redis.pid"

    @property
    def append_only(self) -> Path:
        return self.root / "appendonlydir"

    @property
    def marker(self) -> Path:
        """What was last seen of the log, outside its directory: see marker.py."""
        return self.root / "aof.marker"

    @property
    def quarantine(self) -> Path:
        """Where a repair puts every byte that it removes from the log."""
        return self.root / "quarantine"

    def command(self, words: str) -> str:
        """What to type to have `rtmem <words>` done to this directory, wherever one stands."""
        default = self.root == default_data_dir().resolve()
        return f"rtmem {words}" + ("" if default else f" --data-dir {shlex.quote(str(self.root))}")

    def restart(self, profile: str | None = None) -> str:
        """What to type to have its server run with `profile`: the only change of its settings that lasts."""
        up = f"up --profile {profile or 'balanced'}"
        return f"{self.command('down')}; {self.command(up)}"


def default_data_dir() -> Path:
    """$XDG_DATA_HOME/rtmem, or ~/.local/share/rtmem."""
    base = os.environ.get("XDG_DATA_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".local" / "share") / "rtmem"


def prepare(data_dir: str) -> Layout:
    """Create what is missing and make it private (mode 0700).

    Raises:
        DataDirectoryError: it cannot be created or written, belongs to somebody else, or is open to others and full of
            files that are not ours.
    """
    layout = locate(data_dir)
    try:
        layout.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise _unusable(layout.root, f"cannot be created: {exc.strerror}") from exc
    _make_private(layout)
    if not _may(os.W_OK | os.X_OK, layout.root):
        raise _unusable(layout.root, "is not writable for this user")
    if layout.socket.parent != layout.root:
        _private_runtime_dir(layout.socket.parent)
    return layout


def locate(data_dir: str) -> Layout:
    """The files a server in `data_dir` has, without creating any. Two names of one directory are one server."""
    try:
        root = (Path(data_dir).expanduser() if data_dir else default_data_dir()).resolve()
        barred = root.is_dir() and not _may(os.X_OK, root)
    except (OSError, RuntimeError, ValueError) as exc:
        raise DataDirectoryError(f"data directory {data_dir!r}: {exc}: {_NEXT_STEP}", data_dir=data_dir) from exc
    if barred:
        raise _unusable(root, "cannot be entered by this user")
    if not _is_utf8(root):
        raise DataDirectoryError(
            f"data directory {str(root)!r} has a name that is not UTF-8, so no URL can tell it: {_NEXT_STEP}",
            data_dir=data_dir,
        )
    socket = root / "redis.sock"
    if len(os.fsencode(socket)) > SOCKET_BYTES_MAX:
        name = hashlib.sha256(os.fsencode(root)).hexdigest()[:24]
        socket = _runtime_dir() / f"{name}.sock"
    return Layout(root, socket)


def _may(mode: int, path: Path) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _is_utf8(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _runtime_dir() -> Path:
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if base and len(base) < SOCKET_BYTES_MAX - 40 and os.path.isdir(base):
        return Path(base) / "rtmem"
    # The name is known to everybody, so the directory is checked before it is used: see _private_runtime_dir.
    return Path("/tmp" if os.path.isdir("/tmp") else tempfile.gettempdir()) / f"rtmem-{os.geteuid()}"


def _private_runtime_dir(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
    except OSError as exc:
        raise _unusable(path, f"(for the socket) cannot be created: {exc.strerror}") from exc
    # Another user may have made it first, to put a socket of his own where ours is expected.
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise _unusable(path, "(for the socket) is not a private directory of this user")


def _make_private(layout: Layout) -> None:
    try:
        status = layout.root.stat()
        if not status.st_mode & 0o077:
            return
        if status.st_uid != os.geteuid():
            raise _unusable(layout.root, f"belongs to user {status.st_uid}, this is user {os.geteuid()}")
        ours = layout.life_lock.exists() or not any(layout.root.iterdir())
        if not ours:
            raise _unusable(layout.root, "holds other files and is open to other users (`chmod 700` would close it)")
        layout.root.chmod(0o700)
    except OSError as exc:
        raise _unusable(layout.root, f"cannot be made private: {exc.strerror}") from exc


def _unusable(path: Path, found: str) -> DataDirectoryError:
    return DataDirectoryError(f"data directory {path} {found}: {_NEXT_STEP}", data_dir=str(path))
