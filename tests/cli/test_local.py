from __future__ import annotations

import stat
from pathlib import Path

import pytest

from rtmem import settings as rtmem_settings
from rtmem.cli import local
from rtmem.errors import ConfigError
from rtmem.settings import Gateway, Server, Settings


def test_the_token_is_made_once_and_private(tmp_path: Path) -> None:
    settings = Settings(server=Server(data_dir=str(tmp_path / "data")))
    assert local.known_token(settings) == ""
    token = local.ensure_token(settings)
    assert len(token) >= 32
    assert local.ensure_token(settings) == local.known_token(settings) == token
    assert stat.S_IMODE((tmp_path / "data" / "token").stat().st_mode) == 0o600


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    settings = Settings(server=Server(data_dir=str(tmp_path / "data")))
    local.ensure_token(settings)
    (tmp_path / "data" / "token").chmod(0o644)
    with pytest.raises(ConfigError, match="can be read by others: chmod 600"):
        local.known_token(settings)


def test_configured_tokens_come_first(tmp_path: Path) -> None:
    settings = Settings(server=Server(data_dir=str(tmp_path / "data")), gateway=Gateway(tokens={"t": "ann"}))
    assert local.known_token(settings) == "t"


@pytest.mark.parametrize(
    ("listening", "address"),
    [
        ("http://127.0.0.1:8123", "http://127.0.0.1:8123"),
        ("http://0.0.0.0:8123", "http://127.0.0.1:8123"),
        ("http://[::]:8123", "http://[::1]:8123"),
    ],
)
def test_the_address_is_kept_as_a_client_types_it(tmp_path: Path, listening: str, address: str) -> None:
    settings = Settings(server=Server(data_dir=str(tmp_path / "data")))
    assert local.known_address(settings) == "http://127.0.0.1:8123"
    local.keep_address(settings, local.connectable(listening))
    assert local.known_address(settings) == address


def test_rtmem_model_is_a_short_name_of_the_setting() -> None:
    assert rtmem_settings.load(environ={"RTMEM_MODEL": "openai:a"}).agent.model == "openai:a"
    both = {"RTMEM_MODEL": "openai:a", "RTMEM_AGENT__MODEL": "openai:b"}
    assert rtmem_settings.load(environ=both).agent.model == "openai:b"
