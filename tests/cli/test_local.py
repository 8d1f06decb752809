from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

from rtmem import settings as rtmem_settings
from rtmem.cli import local
from rtmem.errors import ConfigError, GatewayRunningError
from rtmem.settings import Gateway, Redis, Server, Settings


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
    with local.only_gateway(settings) as keep_address:
        keep_address(local.connectable(listening))
        assert local.known_address(settings) == address


def test_the_address_of_a_gateway_that_is_gone_is_not_believed(tmp_path: Path) -> None:
    settings = Settings(server=Server(data_dir=str(tmp_path / "data")))
    with local.only_gateway(settings) as keep_address:
        keep_address("http://127.0.0.1:1")
        killed = (tmp_path / "data" / "gateway").read_bytes()
    assert not (tmp_path / "data" / "gateway").exists()
    (tmp_path / "data" / "gateway").write_bytes(killed)
    (tmp_path / "data" / "gateway").chmod(0o600)
    assert local.known_address(settings) == "http://127.0.0.1:8123"


def test_a_second_gateway_of_one_embedded_redis_is_refused_and_told_the_first(tmp_path: Path) -> None:
    settings = Settings(server=Server(data_dir=str(tmp_path / "data")))
    with local.only_gateway(settings) as keep_address:
        keep_address("http://127.0.0.1:1")
        told = f"at http://127.0.0.1:1: talk to it with `rtmem chat --data-dir {tmp_path / 'data'}`"
        with pytest.raises(GatewayRunningError, match=re.escape(told)), local.only_gateway(settings):
            pass
    with local.only_gateway(settings):
        pass


def test_a_gateway_with_a_redis_of_its_own_runs_beside_and_leaves_the_address_alone(tmp_path: Path) -> None:
    settings = Settings(server=Server(data_dir=str(tmp_path / "data")))
    other = Settings(server=settings.server, redis=Redis(url="redis://localhost:1"))
    with local.only_gateway(settings) as keep_address:
        keep_address("http://127.0.0.1:1")
        with local.only_gateway(other) as keep_other:
            keep_other("http://127.0.0.1:2")
        assert local.known_address(settings) == "http://127.0.0.1:1"


def test_rtmem_model_is_a_short_name_of_the_setting() -> None:
    assert rtmem_settings.load(environ={"RTMEM_MODEL": "openai:a"}).agent.model == "openai:a"
    both = {"RTMEM_MODEL": "openai:a", "RTMEM_AGENT__MODEL": "openai:b"}
    assert rtmem_settings.load(environ=both).agent.model == "openai:b"
