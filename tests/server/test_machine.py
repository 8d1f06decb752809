from __future__ import annotations

import os
from pathlib import Path

import pytest

from rtmem.drivers import SyncDriver
from rtmem.server import facts, machine
from rtmem.server.facts import ServerFacts
from tests.conftest import ServerFactory

MOUNTS = r"""/dev/vda / ext4 rw 0 0
/dev/vdb /data xfs rw 0 0
tmpfs /data/memory tmpfs rw 0 0
server:/x /data/with\040space nfs4 rw 0 0
overlay / overlay rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/data/redis", "xfs"),
        ("/data", "xfs"),
        ("/database", "overlay"),  # the later mount on / covers the first
        ("/data/memory/a/b", "tmpfs"),
        ("/data/with space/a", "nfs4"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount_above(path: str, kind: str) -> None:
    assert machine.file_system_of(path, MOUNTS) == kind


def test_the_machine_of_a_server_here_is_seen(redis_server: ServerFactory) -> None:
    server = redis_server(profile="balanced", modules=False)
    driver = SyncDriver.connect(server.url)
    answered = driver.run(facts.ask(directives=["dir", "appenddirname"]))
    driver.close()
    found = machine.look(answered)
    assert found is not None
    assert found.log_dir == str(server.data_dir / "appendonlydir")
    assert found.file_system == machine.file_system_of(str(server.data_dir), Path("/proc/self/mounts").read_text())
    assert found.overcommit == int(Path("/proc/sys/vm/overcommit_memory").read_text())


def test_a_server_in_a_container_is_not_taken_for_a_stranger_with_its_number() -> None:
    assert machine.look(ServerFacts(process_id=os.getpid())) is None  # this process is no Redis
    assert machine.look(ServerFacts()) is None


def test_what_the_kernel_says_is_read_and_what_it_does_not_say_is_left_open(tmp_path: Path) -> None:
    answered = ServerFacts(process_id=7, config={"dir": "/data", "appenddirname": "log"})
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/comm").write_text("redis-server\n")
    assert machine.look(answered, root=tmp_path) == machine.MachineFacts(log_dir="/data/log")
    (tmp_path / "sys/kernel/mm/transparent_hugepage").mkdir(parents=True)
    (tmp_path / "sys/kernel/mm/transparent_hugepage/enabled").write_text("[always] madvise never\n")
    (tmp_path / "proc/self").mkdir()
    (tmp_path / "proc/self/mounts").write_text(MOUNTS)
    found = machine.look(answered, root=tmp_path)
    assert found == machine.MachineFacts(huge_pages="always", log_dir="/data/log", file_system="xfs")
