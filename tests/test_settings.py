"""What people write into files and variables is checked, and what is wrong is named where it was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtmem import settings
from rtmem.errors import ConfigError


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("RTMEM_GATEWAY__PORT", "99999"),
        ("RTMEM_GATEWAY__PORT", "-1"),
        ("RTMEM_GATEWAY__SEND_BUFFER_BYTES", "99999999999"),
        ("RTMEM_GATEWAY__DRAIN_TIMEOUT_MS", "-5"),
        ("RTMEM_CHECKPOINT__TTL_MS", "-1"),
        ("RTMEM_REDIS__DEADLINE_MS", "0"),
        ("RTMEM_REDIS__CONNECTIONS_MAX", "0"),
        ("RTMEM_SERVER__MAXMEMORY_BYTES", "-1"),
        ("RTMEM_GATEWAY__PORT", "http"),
        ("RTMEM_CHECKPOINT__REFRESH_ON_READ", "perhaps"),
    ],
)
def test_a_value_out_of_range_or_of_another_type_is_refused_by_the_name_of_its_variable(
    variable: str, value: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{variable}: .* is '{value}': Expected"):
        settings.load(environ={variable: value})


@pytest.mark.parametrize("tokens", ['{"": "ann"}', '{"secret": ""}'])
def test_an_empty_token_or_principal_is_refused_and_no_token_is_shown(tokens: str) -> None:
    with pytest.raises(ConfigError, match=r"^RTMEM_GATEWAY__TOKENS: tokens in \[gateway\]: .*length >= 1") as refused:
        settings.load(environ={"RTMEM_GATEWAY__TOKENS": tokens})
    assert "secret" not in str(refused.value)


def test_a_choice_is_refused_with_the_list_of_choices() -> None:
    with pytest.raises(ConfigError, match="'safe': choose one of ephemeral, relaxed, balanced, durable, replicated"):
        settings.load(environ={"RTMEM_SERVER__PROFILE": "safe"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[gatway]\nport = 1\n", r"no section \[gatway\]: did you mean gateway\?"),
        ("[gateway]\nprot = 1\n", r"no setting 'prot' in \[gateway\]: did you mean port\?"),
        ("[agent]\nzzz = 1\n", "no setting 'zzz' in .*: there are model, model_base_url, memory, token_interval_ms"),
        ("[gateway]\nport = 99999\n", r"port in \[gateway\] is 99999: Expected `int` <= 65535"),
        ("gateway = 3\n", r"\[gateway\]: Expected `object`, got `int`: write a table"),
        ("[gateway\n", "check the TOML syntax"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_the_file_and_the_likely_meaning(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=f"^settings file {file}: .*{said}"):
        settings.load(file, environ={})


@pytest.mark.parametrize("variable", ["RTMEM_GATWAY__PORT", "RTMEM_GATEWAY__PROT"])
def test_a_misspelled_variable_is_told_with_the_likely_meaning(variable: str) -> None:
    with pytest.raises(ConfigError, match=f"^{variable}: .*did you mean (gateway|port)"):
        settings.load(environ={variable: "1"})


def test_a_variable_with_one_underscore_is_not_passed_over() -> None:
    with pytest.raises(ConfigError, match="RTMEM_GATEWAY_PORT sets nothing: write RTMEM_GATEWAY__PORT"):
        settings.load(environ={"RTMEM_GATEWAY_PORT": "8100"})
    assert settings.load(environ={"RTMEM_TOKEN": "t", "RTMEM_URL": "u", "RTMEM_DEBUG": "1"}) == settings.Settings()


def test_a_missing_file_is_a_matter_of_its_path_and_not_of_syntax(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file or directory: check the path in RTMEM_CONFIG") as missing:
        settings.load(environ={"RTMEM_CONFIG": str(tmp_path / "nowhere.toml")})
    assert "syntax" not in str(missing.value)


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"mine\.toml"):
        settings.load(file, environ={})
