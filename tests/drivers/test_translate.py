"""Each error of Redis as users meet it: provoked at a real server, typed, with a next step, without secrets."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from rtmem import errors
from rtmem.drivers import AsyncDriver, SyncDriver
from rtmem.drivers.translate import connection_error, error_reply
from rtmem.steps import Batch, Command
from tests.drivers.colours import COLOURS, Colour, talking
from tests.drivers.processes import Process, Spawn, becomes, free_port, spawning

pytestmark = pytest.mark.anyio
both_colours = pytest.mark.parametrize("colour", COLOURS)

SET: Command = ("SET", "k", "v" * 1_000)


async def failing(colour: Colour, url: str, kind: type[errors.RtmemError], *commands: Command, **settings: Any) -> str:
    """The message of the error, which is exactly a `kind`, that `commands` end with; also of all of its causes."""
    with pytest.raises(errors.RtmemError) as raised:
        async with talking(colour, url, **settings) as talker:
            await talker.answer(*commands)
    assert type(raised.value) is kind, raised.value
    error: BaseException | None = raised.value
    while error is not None:
        assert "hunter2" not in str(error), "a password is never shown"
        error = error.__cause__
    return str(raised.value)


@pytest.fixture(scope="module")
def server() -> Iterator[Process]:
    with spawning() as spawn:
        yield spawn("maxmemory-policy noeviction").wait_until_answering()


@both_colours
async def test_no_redis(colour: Colour, tmp_path: Path) -> None:
    for url in (f"redis://:hunter2@127.0.0.1:{free_port()}", f"unix://{tmp_path}/none.sock", "redis://no.such.invalid"):
        message = await failing(colour, url, errors.ServerUnavailableError)
        assert "rtmem up" in message
        assert "check its URL, wherever it was given (an argument, --redis-url, RTMEM_REDIS__URL)" in message


@both_colours
async def test_something_that_is_no_redis(colour: Colour) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.recv(1024)
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}"
        assert "check host and port" in await failing(colour, url, errors.ServerError)
        listener.shutdown(socket.SHUT_RDWR)


@both_colours
@pytest.mark.parametrize("protocol", [2, 3])
async def test_wrong_and_missing_passwords(colour: Colour, protocol: int, spawn: Spawn) -> None:
    port = spawn("requirepass right").wait_until_answering(password="right").port
    for url in (f"redis://:hunter2@127.0.0.1:{port}", f"redis://me:hunter2@127.0.0.1:{port}"):
        message = await failing(colour, url, errors.AuthenticationError, protocol=protocol)
        assert "redis://user:password@host" in message
    message = await failing(colour, f"redis://127.0.0.1:{port}", errors.AuthenticationError, protocol=protocol)
    assert "password@" in message


_ADDING = """#!lua name=adding
redis.register_function('adding', function(keys) return redis.call('XADD', keys[1], '*', 'f', 'v') end)
"""


@both_colours
async def test_denied_by_acl(colour: Colour, server: Process) -> None:
    with server.client() as client:
        client.acl_setuser("me", enabled=True, passwords=["+hunter2"], keys=["rtmem:*"], commands=["+@all", "-xadd"])
        client.function_load(_ADDING, replace=True)
    url = f"redis://me:hunter2@127.0.0.1:{server.port}"
    for command in (("XADD", "rtmem:x", "*", "f", "v"), ("SET", "other", "v"), ("FCALL", "adding", 1, "rtmem:x")):
        assert "ACL SETUSER" in await failing(colour, url, errors.PermissionDeniedError, command)


@both_colours
async def test_a_read_only_replica(colour: Colour, spawn: Spawn) -> None:
    replica = spawn(f"replicaof 127.0.0.1 {free_port()}").wait_until_answering()
    assert "redis+sentinel://" in await failing(colour, replica.url, errors.ReadOnlyReplicaError, SET)


@both_colours
async def test_maxmemory_reached(colour: Colour, server: Process) -> None:
    with server.client() as client:
        client.config_set("maxmemory", 1)
        try:
            for atomic in (False, True):
                async with talking(colour, server.url) as talker:
                    with pytest.raises(errors.ServerFullError, match="raise maxmemory"):
                        await talker.answer(SET, atomic=atomic)
        finally:
            client.config_set("maxmemory", 0)


@both_colours
async def test_a_disk_that_cannot_be_written(colour: Colour, spawn: Spawn) -> None:
    server = await with_a_broken_disk(spawn)
    assert "disk" in await failing(colour, server.url, errors.PersistenceError, SET)


async def test_a_server_whose_disk_cannot_be_written_can_be_connected_to_and_read(spawn: Spawn) -> None:
    # Such a server denies even PING.
    server = await with_a_broken_disk(spawn)
    get = Batch((("GET", "k"),))
    with SyncDriver.connect(server.url) as driver:
        assert driver.answer(get) == [b"v"]
    async with await AsyncDriver.connect(server.url) as awaiting:
        assert await awaiting.answer(get) == [b"v"]


async def with_a_broken_disk(spawn: Spawn) -> Process:
    server = spawn("save 3600 1").wait_until_answering()
    # The finished RDB cannot take the place of a directory; also root cannot make it.
    (server.folder / "dump.rdb" / "in the way").mkdir(parents=True)
    with server.client() as client:
        client.set("k", "v")
        client.bgsave()
        await becomes(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
    return server


@both_colours
async def test_too_few_replicas(colour: Colour, spawn: Spawn) -> None:
    server = spawn("min-replicas-to-write 1").wait_until_answering()
    assert "min-replicas-to-write" in await failing(colour, server.url, errors.PersistenceError, SET)


@both_colours
async def test_unknown_commands(colour: Colour, server: Process) -> None:
    for command in (("NO-SUCH-COMMAND",), ("FT.SEARCH", "i", "*"), ("CONFIG", "NO-SUCH")):
        assert "Redis >= 7.0" in await failing(colour, server.url, errors.ServerTooOldError, command)
    message = await failing(colour, server.url, errors.FunctionMissingError, ("FCALL", "rtmem_none", 0))
    assert "load" in message


@both_colours
async def test_too_many_clients(colour: Colour, spawn: Spawn) -> None:
    server = spawn("maxclients 1").wait_until_answering()
    with server.client() as client:
        await becomes(lambda: bool(client.ping()))
        message = await failing(colour, server.url, errors.ServerUnavailableError, retries_max=0)
    assert re.search("maxclients|cannot reach", message)


@both_colours
async def test_a_function_that_fails_is_a_command_error(colour: Colour, server: Process) -> None:
    message = await failing(colour, server.url, errors.CommandError, ("EVAL", "return redis.call('LPOP')", 0))
    assert "Redis answered" in message


@pytest.mark.parametrize(
    ("text", "kind", "retryable"),
    [
        ("LOADING Redis is loading the dataset in memory", errors.ServerLoadingError, True),
        ("MASTERDOWN Link with MASTER is down", errors.ServerUnavailableError, True),
        ("CLUSTERDOWN The cluster is down", errors.ServerUnavailableError, True),
        ("TRYAGAIN Multiple keys request during rehashing of slot", errors.ServerUnavailableError, True),
        ("BUSY Redis is busy running a script", errors.ServerUnavailableError, True),
        ("NOAUTH Authentication required.", errors.AuthenticationError, False),
        ("MOVED 1 127.0.0.1:7000", errors.ConfigError, False),
        ("CROSSSLOT Keys in request don't hash to the same slot", errors.CommandError, False),
        ("RTMEM_LAYOUT 2", errors.NewerLayoutError, False),
        ("RTMEM_FENCED", errors.StaleWriterError, False),
        ("RTMEM_DELETED", errors.ThreadDeletedError, False),
        ("RTMEM_CORRUPT x", errors.CorruptRecordError, False),
        ("ERR whatever", errors.CommandError, False),
    ],
)
async def test_codes_become_errors(text: str, kind: type[errors.RtmemError], retryable: bool) -> None:
    error = error_reply(text)
    assert type(error) is kind
    assert error.retryable is retryable
    assert error.data["reply"] == text


async def test_an_answer_of_our_own_functions_is_told_without_where_in_their_text_it_arose() -> None:
    error = error_reply("RTMEM_FENCED the thread is at fencing token 5 script: rtmem_put, on @user_function:81.")
    assert str(error) == "the thread is at fencing token 5: another runner owns this thread now: stop this one"


@pytest.mark.parametrize(
    ("exc", "kind"),
    [
        (redis.BusyLoadingError("LOADING"), errors.ServerLoadingError),
        (redis.TimeoutError("Timeout connecting to server"), errors.ServerUnavailableError),
        (redis.ConnectionError("refused"), errors.ServerUnavailableError),
        (ConnectionResetError("reset"), errors.ServerUnavailableError),
        (redis.InvalidResponse("H"), errors.ServerError),
        (redis.ResponseError("OOM full"), errors.ServerFullError),
        (errors.ServerFullError("as it is"), errors.ServerFullError),
        (KeyError("bug"), errors.ServerError),
    ],
)
async def test_exceptions_of_a_connect_become_errors(exc: Exception, kind: type[errors.RtmemError]) -> None:
    assert type(connection_error(exc, "here")) is kind
