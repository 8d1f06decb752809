"""Reading what servers say, with replies as they come over the wire; no server in sight."""

from __future__ import annotations

from typing import Any

import pytest

from rtmem.errors import (
    CommandError,
    PermissionDeniedError,
    PersistenceError,
    ReadOnlyReplicaError,
    RtmemError,
    ServerFullError,
    ServerLoadingError,
    ServerTooOldError,
)
from rtmem.server.facts import ServerFacts, ask
from rtmem.steps import Batch, Request

REDIS_7 = b"# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n# Replication\r\nrole:slave\r\n"
VALKEY = (
    b"# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.3\r\nserver_mode:cluster\r\n"
    b"# Modules\r\nmodule:name=search,ver=10000,api=1,filters=0,usedby=[],using=[],options=[]\r\n"
    b"module:name=json,ver=10010,api=1,filters=0,usedby=[search],using=[],options=[]\r\n"
)
DRAGONFLY = b"# Server\r\nredis_version:7.4.0\r\ndragonfly_version:df-v1.30.1\r\nredis_mode:standalone\r\n"
CONFIG = [b"appendfsync", b"always", b"no-appendfsync-on-rewrite", b"no", b"save", b"3600 1"]
NO_LIBRARY = CommandError("ERR Missing library metadata")
DENIED = PermissionDeniedError("NOPERM User app has no permissions to run the command")


def play(*answers: list[Any] | RtmemError) -> tuple[ServerFacts, list[tuple[Any, ...]]]:
    """Facts from these answers, one a round trip, and the commands of every round trip."""
    steps = ask()
    asked = [_commands(next(steps))]
    for answer in answers:
        try:
            request = steps.throw(answer) if isinstance(answer, RtmemError) else steps.send(answer)
        except StopIteration as stop:
            assert answer is answers[-1], "it ended before all was answered"
            return stop.value, asked
        asked.append(_commands(request))
    raise AssertionError(f"it still asks: {asked[-1]}")


def _commands(request: Request) -> tuple[Any, ...]:
    assert isinstance(request, Batch)
    return request.commands


def test_an_old_replica() -> None:
    facts, _ = play([REDIS_7, CONFIG, 0], NO_LIBRARY)
    assert (facts.product, facts.version, facts.role) == ("redis", (7, 0, 15), "replica")
    assert (facts.fsync, facts.fsync_pauses_on_rewrite, facts.snapshots) == ("always", False, True)
    assert facts.modules == {}
    assert facts.denied == {}


def test_valkey_has_its_own_version_and_that_of_the_redis_it_speaks_for() -> None:
    facts, _ = play([VALKEY, CONFIG, 0], NO_LIBRARY)
    assert (facts.product, facts.version, facts.redis_version) == ("valkey", (8, 1, 3), (7, 2, 4))
    assert facts.mode == "cluster"
    assert facts.modules == {"search": 10000, "json": 10010}


def test_dragonfly_without_functions() -> None:
    facts, _ = play([DRAGONFLY, CONFIG, 0], ServerTooOldError("ERR unknown command"))
    assert (facts.product, facts.version) == ("dragonfly", (1, 30, 1))
    assert facts.denied == {"FUNCTION": "unknown"}


@pytest.mark.parametrize("config", [CONFIG, dict(zip(CONFIG[::2], CONFIG[1::2], strict=True))], ids=["resp2", "resp3"])
def test_both_protocols_are_read_alike(config: Any) -> None:
    assert play([REDIS_7, config, 0], NO_LIBRARY)[0] == play([REDIS_7, CONFIG, 0], NO_LIBRARY)[0]


@pytest.mark.parametrize("refusal", [ReadOnlyReplicaError(""), ServerFullError(""), PersistenceError(""), NO_LIBRARY])
def test_a_function_refused_for_another_reason_than_rights_is_allowed(refusal: RtmemError) -> None:
    assert play([REDIS_7, CONFIG, 0], refusal)[0].denied == {}


def test_a_refused_batch_is_asked_again_one_by_one() -> None:
    facts, asked = play(DENIED, [REDIS_7], DENIED, [0], NO_LIBRARY)
    assert [commands[0][0] for commands in asked] == ["INFO", "INFO", "CONFIG", "EXISTS", "FUNCTION"]
    assert facts.denied == {"CONFIG": "denied"}
    assert facts.version == (7, 0, 15)
    assert facts.fsync is None


@pytest.mark.parametrize("protocol", [2, 3])
def test_without_info_the_greeting_tells_what_it_can(protocol: int) -> None:
    module = {b"name": b"ReJSON", b"ver": 20803}
    hello = {
        b"server": b"redis",
        b"version": b"8.2.3",
        b"mode": b"standalone",
        b"role": b"master",
        b"modules": [module],
    }
    flat = [item for pair in hello.items() for item in pair]
    flat[-1] = [[item for pair in module.items() for item in pair]]
    facts, asked = play(DENIED, DENIED, [hello if protocol == 3 else flat], [CONFIG], [0], NO_LIBRARY)
    assert asked[2] == (("HELLO",),)
    assert (facts.version, facts.role, facts.modules) == ((8, 2, 3), "master", {"json": 20803})
    assert facts.fsync == "always"
    assert facts.denied == {"INFO": "denied"}


def test_nothing_is_guessed_when_all_is_denied() -> None:
    facts, _ = play(DENIED, DENIED, DENIED, DENIED, DENIED, DENIED)
    assert facts == ServerFacts(denied=dict.fromkeys(("INFO", "HELLO", "CONFIG", "EXISTS", "FUNCTION"), "denied"))


def test_a_denied_key_is_not_a_denied_command() -> None:
    keys = PermissionDeniedError("NOPERM No permissions to access a key")
    assert play(keys, [REDIS_7], [CONFIG], keys, NO_LIBRARY)[0].denied == {"EXISTS": "keys"}


@pytest.mark.parametrize("round_trip", range(2))
def test_a_server_that_cannot_answer_yet_is_not_judged(round_trip: int) -> None:
    answers: list[Any] = [[REDIS_7, CONFIG, 0], NO_LIBRARY]
    answers[round_trip] = ServerLoadingError("LOADING")
    with pytest.raises(ServerLoadingError):
        play(*answers)
