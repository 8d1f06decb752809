"""configs/: what is documented is what is built in, and it travels with every kind of installation."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import msgspec
import pytest

from rtmem import settings
from rtmem.server import conf

ROOT = Path(__file__).parents[1]
TOML = ROOT / "configs" / "rtmem.toml"
CONFIGS = {path.relative_to(ROOT / "configs").as_posix() for path in (ROOT / "configs").rglob("*") if path.is_file()}


def test_rtmem_toml_shows_every_setting_with_its_default() -> None:
    shown = tomllib.loads(TOML.read_text("utf-8"))
    built_in = msgspec.to_builtins(settings.Settings())
    assert shown == built_in
    assert [list(section) for section in shown.values()] == [list(section) for section in built_in.values()]


def test_rtmem_toml_can_be_loaded_as_it_is() -> None:
    assert settings.load(TOML, environ={}) == settings.Settings()


@pytest.mark.parametrize("path", sorted((ROOT / "configs").rglob("*.*")), ids=lambda path: path.name)
def test_every_paragraph_of_settings_has_its_reason(path: Path) -> None:
    for paragraph in path.read_text("utf-8").split("\n\n"):
        lines = [line for line in paragraph.strip().splitlines() if line]
        bare = [line for line in lines if not line.startswith(("#", "["))]
        assert not bare or lines[0].startswith("#") or "#" in lines[0], f"no reason above {bare[0]!r}"


def test_wheel_and_sdist_carry_every_config(tmp_path: Path) -> None:
    # The build backend alone, in this environment: an isolated build would download it again.
    for target in ("wheel", "sdist"):
        command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(tmp_path)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,), (sdist,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        assert {f"rtmem/_configs/{name}" for name in CONFIGS} <= names
        lua = {path.relative_to(ROOT).as_posix() for path in (ROOT / "rtmem").rglob("*.lua")}
        assert lua | {"rtmem/py.typed"} <= names
        assert {name.split("/")[0] for name in names} == {"rtmem", f"{wheel.name.rsplit('-', 3)[0]}.dist-info"}
    with tarfile.open(sdist) as archive:
        inside = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {f"configs/{name}" for name in CONFIGS} | {"README.md", "LICENSE", "tests/test_configs.py"} <= inside


def test_an_installed_wheel_finds_its_configs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    # Isolated (-I), so that neither the checkout nor PYTHONPATH is in reach; the unpacked wheel comes first.
    program = "import sys; sys.path.insert(0, sys.argv[1]); from rtmem.server import conf; print(conf.folder())"
    answer = subprocess.run(
        [sys.executable, "-I", "-c", program, str(tmp_path / "site")], check=True, capture_output=True, text=True
    )
    assert Path(answer.stdout.strip()) == tmp_path / "site" / "rtmem" / "_configs"


def test_a_checkout_finds_its_configs() -> None:
    assert conf.folder() == ROOT / "configs"
