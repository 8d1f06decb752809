"""The unmodified JavaScript SDK, a second client that nobody here wrote: everything over one websocket.

Needs node and npm. The packages are installed once into a cache directory; without node, npm or their registry these
tests are skipped and say why.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest

from rtmem.settings import Cache
from tests.gateway.cached import Counted, answered
from tests.gateway.conftest import Served, ServeGateway
from tests.gateway.graphs import chat
from tests.gateway.raw import raw_client
from tests.gateway.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.anyio

SOURCE = Path(__file__).parent / "javascript"


@pytest.fixture(scope="session")
def javascript_client() -> Path:
    """A directory with the script and its packages."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node or npm is not installed: the JavaScript SDK cannot be run here")
    manifest = (SOURCE / "package.json").read_bytes()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "rtmem-tests" / f"javascript-{hashlib.sha256(manifest).hexdigest()[:12]}"
    if not (home / "installed").exists():
        home.mkdir(parents=True, exist_ok=True)
        (home / "package.json").write_bytes(manifest)
        try:
            installed = subprocess.run(
                ["npm", "install", "--no-fund", "--no-audit", "--ignore-scripts"],
                cwd=home,
                capture_output=True,
                text=True,
                timeout=100,
            )
        except subprocess.TimeoutExpired:
            pytest.skip("npm has not installed the JavaScript SDK within 100 s: its registry is slow here")
        if installed.returncode != 0:
            pytest.skip(f"npm cannot install the JavaScript SDK here: {installed.stderr.strip()[-300:]}")
        (home / "installed").touch()
    # Node looks for packages from where the script lies.
    shutil.copy(SOURCE / "converse.mjs", home / "converse.mjs")
    return home


async def conversed(home: Path, served: Served, scenario: str, token: str = "token-of-alice") -> Any:
    with anyio.fail_after(PATIENCE_S):
        done = await anyio.run_process(["node", "converse.mjs", served.url, token, scenario], cwd=home, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def words(count: int) -> str:
    return "".join(f" word{number}" for number in range(count))


async def test_turns_stream_token_by_token_and_end_with_their_state(
    serve_gateway: ServeGateway, javascript_client: Path
) -> None:
    async with serve_gateway() as served:
        first, second = await conversed(javascript_client, served, "turns")
    assert first["tokens"] == [["You said hello 3:", " word0", " word1", " word2"]]
    assert first["output"] == ["hello 3", f"You said hello 3:{words(3)}"]
    assert "".join(second["tokens"][-1]) == f"You said again 2:{words(2)}"
    assert second["output"] == [*first["output"], "again 2", f"You said again 2:{words(2)}"]


async def test_a_run_that_ended_before_the_subscription_is_heard(
    serve_gateway: ServeGateway, javascript_client: Path
) -> None:
    async with serve_gateway() as served:
        output = await conversed(javascript_client, served, "quick")
    assert output == ["quick 1", f"You said quick 1:{words(1)}"]


async def test_an_interrupt_is_asked_and_answered(serve_gateway: ServeGateway, javascript_client: Path) -> None:
    async with serve_gateway() as served:
        result = await conversed(javascript_client, served, "interrupt")
    assert result == {"asked": {"question": "really?"}, "output": ["do it", "told yes"]}


async def test_it_reconnects_in_mid_answer_and_misses_nothing(
    serve_gateway: ServeGateway, javascript_client: Path
) -> None:
    gate = anyio.Event()
    async with serve_gateway(graphs={"gated": chat(words_max=20, gate=gate)}) as served:
        listeners = served.gateway.threads.get("alice", "js-reconnect").listeners

        async def open_gate_after_reconnect() -> None:
            await eventually(lambda: listeners)
            first = set(listeners)
            await eventually(lambda: listeners and first.isdisjoint(listeners))
            gate.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(open_gate_after_reconnect)
            result = await conversed(javascript_client, served, "reconnect")
    assert result["sockets"] == 2
    assert result["text"] == f"You said hello 60:{words(60)}"
    assert result["output"] == ["hello 60", result["text"]]


async def test_a_wrong_token_is_final(serve_gateway: ServeGateway, javascript_client: Path) -> None:
    async with serve_gateway() as served:
        result = await conversed(javascript_client, served, "refused", token="wrong")
    assert result["sockets"] == 1
    assert result["message"]


async def test_an_answer_of_the_cache_streams_like_any_other(
    serve_gateway: ServeGateway, javascript_client: Path
) -> None:
    counted = Counted()
    patient = Cache(lookup_deadline_ms=60_000, update_deadline_ms=60_000)
    async with serve_gateway(graphs={"slow": counted.graph}, sections={"cache": patient}) as served:
        await served.gateway.caches.awake.wait()
        async with raw_client(served.ws_url, "another") as client:
            await client.subscribe(["lifecycle"])
            await client.start("slow", "hello 3")
            await client.until_end()
        await eventually(lambda: not served.gateway.runs.at_work)
        first, second = await conversed(javascript_client, served, "turns")
    assert counted.asked == ["hello 3", "again 2"]
    (tokens,) = first["tokens"]
    assert len(tokens) > 1
    assert "".join(tokens) == answered("hello 3")
    assert first["output"] == ["hello 3", answered("hello 3")]
    assert second["output"] == [*first["output"], "again 2", answered("again 2", 2)]
