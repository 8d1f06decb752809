from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from rtmem.errors import ConfigError
from rtmem.server import conf, embedded
from tests.conftest import ServerFactory
from tests.server.processes import settings

_UNITS = {"mb": 1024**2, "gb": 1024**3}
# Read once at start; CONFIG GET tells them in another form or not at all.
_UNASKABLE = {"save", "client-output-buffer-limit", "unixsocketperm", "loadmodule"}


def directives(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition(" ")
            yield name, value.strip('"')


def as_reported(value: str) -> str:
    match = re.fullmatch(r"(\d+)(mb|gb)", value)
    return str(int(match[1]) * _UNITS[match[2]]) if match else value


@pytest.mark.parametrize("profile", conf.PROFILES)
def test_redis_runs_with_every_line_of_the_profile(redis_server: ServerFactory, profile: str) -> None:
    server = redis_server(profile=profile)
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        for name, value in directives(conf.profile_text(profile)):
            if name not in _UNASKABLE:
                assert client.config_get(name) == {name: as_reported(value)}
        assert client.config_get("save") == {"save": ""}
        limits = client.config_get("client-output-buffer-limit")["client-output-buffer-limit"]
        assert "pubsub 33554432 8388608 60" in limits


@pytest.mark.parametrize(
    ("profile", "appendonly", "appendfsync"),
    [("relaxed", "yes", "no"), ("balanced", "yes", "everysec"), ("durable", "yes", "always")],
)
def test_a_profile_is_its_fsync_policy(profile: str, appendonly: str, appendfsync: str) -> None:
    lines = dict(directives(conf.profile_text(profile)))
    assert (lines["appendonly"], lines["appendfsync"]) == (appendonly, appendfsync)


def test_profiles_differ_in_nothing_but_the_log() -> None:
    common = set(directives(conf.profile_text("ephemeral"))) & set(directives(conf.profile_text("durable")))
    for profile in conf.PROFILES:
        own = set(directives(conf.profile_text(profile))) - common
        assert {name for name, _ in own} <= {"appendonly", "appendfsync"}


def test_an_unknown_profile_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'fast'.*balanced.*durable"):
        conf.profile_text("fast")


def test_a_profile_for_several_machines_is_not_started_as_one_server(data_dir: Path) -> None:
    with pytest.raises(ConfigError, match=r"several machines.*rtmem configs show replicated"):
        embedded.start(settings(data_dir, profile="replicated"))


def test_directives_carry_their_reason_and_the_last_word() -> None:
    found = {directive.name: directive for directive in conf.directives("replicated")}
    assert found["port"].value == "6379"
    assert "nobody follows" in found["min-replicas-to-write"].reason
    assert found["save"].value == ""
    limits = [one for one in conf.directives("replicated") if one.name == "client-output-buffer-limit"]
    assert len(limits) == 3


def test_a_rendered_file_tells_its_profile() -> None:
    site = conf.Site(Path("/d"), Path("/d/s"), 1)
    assert conf.profile_of(conf.render("relaxed", site)) == "relaxed"
    assert conf.profile_of("maxmemory 1\n") == ""


def test_extra_lines_have_the_last_word(redis_server: ServerFactory) -> None:
    server = redis_server(extra_conf=["hz 77"])
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        assert client.config_get("hz") == {"hz": "77"}


def test_half_of_the_memory_is_left_to_others() -> None:
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total_bytes = int(meminfo["MemTotal"].split()[0]) * 1024
    assert 0 < conf.default_maxmemory_bytes() <= total_bytes // 2
