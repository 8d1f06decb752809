"""The blocking driver: one send a batch, threads, forks, interrupts, closing, a user's client."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
import redis.asyncio

from rtmem.drivers import SyncDriver
from rtmem.errors import ConfigError, DeadlineExceededError
from rtmem.settings import Redis
from rtmem.steps import Batch, Command
from tests.drivers.processes import Spawn, eventually
from tests.drivers.relay import Relay


def batch(*commands: Command, **options: Any) -> Batch:
    return Batch(commands, **options)


class CountingSocket:
    """Stands before a connection's socket and keeps what is sent."""

    def __init__(self, driver: SyncDriver) -> None:
        wire = driver._wires._free[0]
        self.sends: list[bytes] = []
        self._socket = wire.socket
        wire.socket = self  # type: ignore[assignment]

    def sendall(self, data: bytes) -> None:
        self.sends.append(data)
        self._socket.sendall(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


def test_a_batch_is_one_send(relay: Relay) -> None:
    with SyncDriver.connect(relay.url) as driver:
        counting = CountingSocket(driver)
        relay.requests.clear()
        driver.answer(batch(*(("SET", number, number) for number in range(50)), atomic=True))
        assert len(counting.sends) == 1
        assert relay.requests == counting.sends
        assert counting.sends[0].startswith(b"*1\r\n$5\r\nMULTI\r\n")


def test_threads_share_a_driver_and_get_their_own_replies(relay: Relay) -> None:
    with SyncDriver.connect(relay.url, Redis(connections_max=4)) as driver, ThreadPoolExecutor(256) as threads:
        barrier = threading.Barrier(256, timeout=90)

        def ask(number: int) -> list[Any]:
            barrier.wait()
            return driver.answer(batch(("ECHO", number), ("ECHO", -number)))

        assert list(threads.map(ask, range(256))) == [[b"%d" % n, b"%d" % -n] for n in range(256)]
    assert relay.connections <= 4


def test_a_forked_child_speaks_on_connections_of_its_own(relay: Relay, redis_client: redis.Redis) -> None:
    with SyncDriver.connect(relay.url) as driver:
        (parent_id,) = driver.answer(batch(("CLIENT", "ID")))
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            # Nothing of pytest may run here: answer, report, and end without clean-up.
            try:
                ids = {driver.answer(batch(("CLIENT", "ID")))[0] for _ in range(3)}
                threads = [threading.Thread(target=lambda: driver.answer(batch(("INCR", "n")))) for _ in range(8)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                os.write(writing, b"own" if ids and parent_id not in ids else b"shared")
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            assert pipe.read() == b"own"
        os.waitpid(child, 0)
        assert driver.answer(batch(("CLIENT", "ID"))) == [parent_id]
        assert redis_client.get("n") == b"8"


_INTERRUPTED = """
import signal, sys, threading, time
from rtmem.drivers import SyncDriver
from rtmem.steps import Batch

signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background is born without it
driver = SyncDriver.connect(sys.argv[1])
print("ready", flush=True)
try:
    driver.answer(Batch((("XREAD", "BLOCK", 20_000, "STREAMS", "stream", "0"),), timeout_ms=30_000))
except KeyboardInterrupt:
    print(driver.answer(Batch((("ECHO", "in step"),)))[0].decode(), flush=True)
"""


def test_an_interrupted_call_leaves_no_reply_for_the_next(redis_url: str, redis_client: redis.Redis) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTED, redis_url],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        eventually(lambda: redis_client.info("clients")["blocked_clients"] == 1)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "in step\n"


def test_connecting_ends_with_the_deadline(spawn: Spawn) -> None:
    server = spawn().wait_until_answering()
    server.freeze()
    with SyncDriver.lazy(server.url, Redis(connect_timeout_ms=60_000)) as driver:
        started = time.monotonic()
        with pytest.raises(DeadlineExceededError, match="nothing was sent"):
            driver.answer(batch(("INCR", "n"), timeout_ms=100, idempotent=False))
        assert time.monotonic() - started < 30, "the connect timeout is not what ended it"
    server.thaw()


def test_closing_while_a_call_is_under_way_closes_its_connection_afterwards(
    redis_url: str, redis_client: redis.Redis
) -> None:
    driver = SyncDriver.connect(redis_url)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(
            driver.answer, batch(("XREAD", "BLOCK", 20_000, "STREAMS", "s", "0"), lane="blocking", timeout_ms=30_000)
        )
        eventually(lambda: redis_client.info("clients")["blocked_clients"] == 1)
        driver.close()
        redis_client.xadd("s", {"f": "v"}, id="1-0")
        assert asked.result() == [{b"s": [[b"1-0", [b"f", b"v"]]]}]
    eventually(lambda: redis_client.info("clients")["connected_clients"] == 1)
    gc.collect()


def test_a_failed_connect_leaves_nothing_open(redis_url: str, redis_client: redis.Redis) -> None:
    redis_client.acl_setuser("mute", enabled=True, nopass=True, commands=["+@all", "-ping"])
    try:
        for _ in range(3):
            with pytest.raises(Exception, match="NOPERM"):
                SyncDriver.connect(redis_url.replace("unix://", "unix://mute:x@"))
        eventually(lambda: redis_client.info("clients")["connected_clients"] == 1)
    finally:
        redis_client.acl_deluser("mute")


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("pool", [redis.ConnectionPool, redis.BlockingConnectionPool])
def test_a_users_client_lends_its_settings_and_is_not_disturbed(
    protocol: int, pool: type[redis.ConnectionPool], redis_url: str, redis_client: redis.Redis
) -> None:
    redis_client.acl_setuser("reader", enabled=True, passwords=["+s3cret"], keys=["*"], commands=["+@all"])
    theirs = pool.from_url(
        redis_url.replace("db=0", "db=3"), username="reader", password="s3cret", protocol=protocol, max_connections=1
    )
    with redis.Redis(connection_pool=theirs) as client:
        with SyncDriver.of_client(client) as driver, ThreadPoolExecutor(8) as threads:
            assert driver.answer(batch(("ACL", "WHOAMI"))) == [b"reader"]
            driver.answer(batch(("SET", "k", "v")))
            slow = [threads.submit(driver.answer, batch(("XREAD", "BLOCK", 50, "STREAMS", "s", "0"))) for _ in range(8)]
            # One connection is all that the user's client may have, and it still has it.
            assert client.get("k") == b"v"
            assert [future.result() for future in slow] == [[None]] * 8
        assert client.get("k") == b"v"
        theirs.disconnect()
    with redis.Redis.from_url(redis_url.replace("db=0", "db=3")) as other:
        assert other.get("k") == b"v"
    redis_client.acl_deluser("reader")


def test_a_client_that_cannot_be_used_is_refused(redis_url: str) -> None:
    with pytest.raises(ConfigError, match=r"redis\.Redis"):
        SyncDriver.of_client(redis.asyncio.Redis.from_url(redis_url))
    with pytest.raises(ConfigError, match="decode_responses=False"):
        SyncDriver.of_client(redis.Redis.from_url(redis_url, decode_responses=True))


def test_an_idle_connection_that_the_server_closed_is_not_used(relay: Relay) -> None:
    with SyncDriver.connect(relay.url) as driver:
        for _ in range(3):
            relay.cut()
            idle = driver._wires._free[0].socket
            eventually(lambda sock=idle: _hung_up(sock))  # type: ignore[misc]
            assert driver.answer(batch(("ECHO", "once"), idempotent=False)) == [b"once"]


def _hung_up(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
