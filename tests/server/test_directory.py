from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rtmem.errors import DataDirectoryError
from rtmem.server import directory, embedded
from rtmem.settings import Server

NOBODY = 65534


@contextmanager
def as_nobody() -> Iterator[None]:
    """As root, work with another user's rights: root may write everywhere, so nothing would be refused."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_path(tmp_path: Path) -> Path:
    """A directory that another user can reach; pytest's own are closed to others."""
    for path in (tmp_path, *tmp_path.parents):
        if Path(tempfile.gettempdir()) in path.parents:
            path.chmod(0o755)
    return tmp_path


def test_a_new_directory_is_private_with_all_its_parents_made(tmp_path: Path) -> None:
    layout = directory.prepare(str(tmp_path / "a" / "b"))
    assert layout.root == (tmp_path / "a" / "b").resolve()
    assert layout.root.stat().st_mode & 0o777 == 0o700


def test_a_name_that_no_url_can_tell_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataDirectoryError, match=r"not UTF-8.*RTMEM_SERVER__DATA_DIR"):
        directory.prepare(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    assert not any(tmp_path.iterdir())


def test_an_empty_directory_is_made_private(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir(mode=0o755)
    assert directory.prepare(str(tmp_path / "d")).root.stat().st_mode & 0o777 == 0o700


def test_an_open_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir(mode=0o755)
    (tmp_path / "d" / "letter.txt").write_text("")
    with pytest.raises(DataDirectoryError, match="holds other files and is open to other users"):
        directory.prepare(str(tmp_path / "d"))
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o755


def test_a_path_below_a_file_is_refused_with_a_next_step(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        DataDirectoryError, match=r"cannot be created: Not a directory.*RTMEM_SERVER__DATA_DIR"
    ) as caught:
        directory.prepare(str(tmp_path / "file" / "data"))
    assert caught.value.data["data_dir"] == str(tmp_path / "file" / "data")


def test_a_file_is_not_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataDirectoryError):
        directory.prepare(str(tmp_path / "file"))


def test_a_directory_that_may_not_be_made_is_refused(open_path: Path) -> None:
    (open_path / "closed").mkdir(mode=0o555)
    with as_nobody(), pytest.raises(DataDirectoryError, match="Permission denied"):
        directory.prepare(str(open_path / "closed" / "data"))


def test_a_directory_of_somebody_else_is_refused(open_path: Path) -> None:
    (open_path / "d").mkdir(mode=0o755)
    if os.geteuid() != 0:
        pytest.skip("needs root to make a directory of another user")
    with as_nobody(), pytest.raises(DataDirectoryError, match="belongs to user 0, this is user 65534"):
        directory.prepare(str(open_path / "d"))


def test_a_directory_without_the_right_to_write_is_refused(open_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to give a directory away")
    (open_path / "d").mkdir(mode=0o500)
    os.chown(open_path / "d", NOBODY, NOBODY)
    with as_nobody(), pytest.raises(DataDirectoryError, match="is not writable"):
        directory.prepare(str(open_path / "d"))


def test_a_directory_that_this_user_may_not_enter_is_refused_by_whoever_asks(open_path: Path) -> None:
    (open_path / "d").mkdir(mode=0o000)
    settings = Server(data_dir=str(open_path / "d"))
    with as_nobody():
        for ask in (embedded.stop, embedded.running_url):
            with pytest.raises(DataDirectoryError, match=r"cannot be entered by this user.*RTMEM_SERVER__DATA_DIR"):
                ask(settings)


def test_no_directory_means_the_users_data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert directory.locate("").root == tmp_path.resolve() / "rtmem"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert directory.locate("").root == tmp_path.resolve() / ".local" / "share" / "rtmem"


def test_a_short_path_keeps_its_socket_inside() -> None:
    layout = directory.locate("/d")
    assert layout.socket == Path("/d/redis.sock")


def test_long_paths_get_different_short_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run")
    one, other = directory.locate(f"/{'a' * 120}"), directory.locate(f"/{'b' * 120}")
    assert one.socket != other.socket
    assert one.socket.parent == other.socket.parent == Path("/run/rtmem")
    assert len(os.fsencode(one.socket)) <= directory.SOCKET_BYTES_MAX


def test_a_socket_directory_that_others_can_enter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="rt-") as runtime_dir:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime_dir)
        Path(runtime_dir, "rtmem").mkdir()
        Path(runtime_dir, "rtmem").chmod(0o777)
        with pytest.raises(DataDirectoryError, match="not a private directory"):
            directory.prepare(f"{runtime_dir}/{'d' * 120}")
