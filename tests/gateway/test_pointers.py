"""Values in and out by HTTP: who may read them, what a range is, and that nothing large is in a frame or a state."""

from __future__ import annotations

import json
import operator
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypedDict

import httpx
import pytest
import redis
from langchain.agents import create_agent
from langgraph.graph import END, START, StateGraph
from langgraph_sdk import get_client
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedError

from rtmem.agent import ByPointer, PointerMiddleware
from rtmem.checkpoint import AsyncRedisSaver
from rtmem.drivers import AsyncDriver
from rtmem.pointers import AsyncPointers
from rtmem.pointers import Pointers as BlockingPointers
from rtmem.settings import Checkpoint, Pointers, Redis
from tests.agent.offload.worlds import Scripted, call, last_result, pointer_in
from tests.gateway.conftest import Served, ServeGateway
from tests.gateway.raw import raw_client

pytestmark = pytest.mark.anyio

TEXT = "line of a log, número %d\n"
LOG = "".join(TEXT % number for number in range(20_000))  # about 550 KB, several chunks


def client_of(served: Served, token: str = "token-of-alice") -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=served.url, headers={"authorization": f"Bearer {token}"}, timeout=120)


async def all_of(parts: AsyncIterator[bytes]) -> bytes:
    return b"".join([part async for part in parts])


async def post(client: httpx.AsyncClient, body: bytes | str, media_type: str, **query: Any) -> dict[str, Any]:
    response = await client.post("/pointers", content=body, headers={"content-type": media_type}, params=query)
    assert response.status_code == 201, response.text
    pointer: dict[str, Any] = response.json()
    assert response.headers["location"] == f"/pointers/{pointer['id']}"
    return pointer


@pytest.mark.parametrize(
    ("media_type", "body", "kind"),
    [
        ("text/plain; charset=utf-8", LOG.encode(), "text"),
        ("application/json", json.dumps([{"id": n, "name": f"n {n}"} for n in range(5_000)]).encode(), "json"),
        ("application/octet-stream", bytes(range(256)) * 3_000, "bytes"),
        ("image/png", b"\x89PNG\r\n\x1a\n" + bytes(5_000), "bytes"),
        ("", b"no type", "bytes"),
        ("text/plain", b"", "text"),
    ],
)
async def test_what_is_posted_is_a_pointer_and_comes_back_as_it_was(
    serve_gateway: ServeGateway, media_type: str, body: bytes, kind: str
) -> None:
    async with serve_gateway() as served, client_of(served) as client:
        pointer = await post(client, body, media_type, name="of a client")
        assert (pointer["kind"], pointer.get("name")) == (kind, "of a client")
        whole = await client.get(f"/pointers/{pointer['id']}")
        assert whole.status_code == 200
        if kind == "json":
            assert whole.json() == json.loads(body)
        else:
            assert whole.content == body
        assert whole.headers["content-length"] == str(len(whole.content))
        assert whole.headers["accept-ranges"] == "bytes"
        # A page that a tool fetched must not run as if it were the gateway's own.
        assert whole.headers["content-disposition"] == "attachment"
        assert whole.headers["x-content-type-options"] == "nosniff"


async def test_a_body_that_comes_in_pieces_without_a_length_is_stored_whole(serve_gateway: ServeGateway) -> None:
    async def pieces() -> Any:
        for at in range(0, len(LOG), 10_000):
            yield LOG[at : at + 10_000].encode()

    async with serve_gateway() as served, client_of(served) as client:
        response = await client.post("/pointers", content=pieces(), headers={"content-type": "text/plain"})
        assert (await client.get(response.headers["location"])).text == LOG


@pytest.mark.parametrize(
    ("asked", "first", "stop"),
    [
        ("bytes=0-9", 0, 10),
        ("bytes=131060-131090", 131_060, 131_091),  # over the end of a chunk
        ("bytes=300000-", 300_000, None),
        ("bytes=-7", -7, None),
        ("bytes=10-999999999", 10, None),
    ],
)
async def test_a_range_is_answered_with_just_its_bytes(
    serve_gateway: ServeGateway, asked: str, first: int, stop: int | None
) -> None:
    body = LOG.encode()
    async with serve_gateway() as served, client_of(served) as client:
        pointer = await post(client, body, "text/plain")
        part = await client.get(f"/pointers/{pointer['id']}", headers={"range": asked})
        assert part.status_code == 206
        assert part.content == body[first:stop]
        start = first % len(body)
        assert part.headers["content-range"] == f"bytes {start}-{start + len(part.content) - 1}/{len(body)}"


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ("bytes=999999999-", 416),
        ("bytes=-0", 416),
        ("bytes=5-2", 200),
        ("lines=1-2", 200),
        ("bytes=a-b", 200),
        ("bytes=1-2,5-6", 200),
        ("bytes=-", 200),
        ("bytes=" + "9" * 400 + "-", 200),
    ],
)
async def test_a_range_that_is_none_gets_the_whole_and_one_behind_the_end_416(
    serve_gateway: ServeGateway, asked: str, status: int
) -> None:
    async with serve_gateway() as served, client_of(served) as client:
        pointer = await post(client, LOG, "text/plain")
        answer = await client.get(f"/pointers/{pointer['id']}", headers={"range": asked})
        assert answer.status_code == status
        assert answer.content == (LOG.encode() if status == 200 else b"")


async def test_a_part_is_asked_for_in_lines_items_or_characters_and_goes_on_with_its_continuation(
    serve_gateway: ServeGateway,
) -> None:
    async with serve_gateway() as served, client_of(served) as client:
        log = f"/pointers/{(await post(client, LOG, 'text/plain'))['id']}"
        lines = (await client.get(log, params={"unit": "lines", "start": 7, "count": 2})).json()
        assert lines["content"] == TEXT % 7 + TEXT % 8
        assert lines["total"] == 20_000
        first = (await client.get(log, params={"characters_max": 100})).json()
        rest = (await client.get(log, params={"characters_max": 100, "continuation": first["continuation"]})).json()
        assert first["content"] + rest["content"] == LOG[:200]
        rows = await post(client, json.dumps([{"id": n} for n in range(100)]), "application/json")
        items = (await client.get(f"/pointers/{rows['id']}", params={"unit": "items", "start": 98})).json()
        assert items["content"] == [{"id": 98}, {"id": 99}]
        for wrong in ({"unit": "pages"}, {"start": "-1"}, {"start": "1e3"}, {"count": "x" * 500}, {"unit": "rows"}):
            refused = await client.get(log, params=wrong)
            assert refused.status_code == 400
            assert len(refused.content) < 1_000


async def test_a_value_that_is_deleted_while_it_is_downloaded_is_never_taken_for_a_shorter_one(
    serve_gateway: ServeGateway, caplog: pytest.LogCaptureFixture
) -> None:
    body = bytes(24 * 1024 * 1024)  # more than all buffers on the way hold
    async with serve_gateway() as served, client_of(served) as client:
        pointer = (await post(client, body, "application/octet-stream"))["id"]
        async with client.stream("GET", f"/pointers/{pointer}") as response:
            parts = response.aiter_bytes(65_536)
            assert len(await anext(parts)) == 65_536
            assert await served.gateway.pointers.bind("alice").delete(pointer)
            with pytest.raises(httpx.RemoteProtocolError, match="without sending complete message body"):
                await all_of(parts)
    assert f"a download was broken off: no pointer '{pointer}'" in caplog.text
    assert "Traceback" not in caplog.text


async def test_somebody_elses_pointer_and_one_that_never_was_are_the_same_404(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served, client_of(served) as alice, client_of(served, "token-of-bob") as bob:
        pointer = (await post(alice, LOG, "text/plain"))["id"]
        unknown = "mp_" + "a" * 26
        for query in ({}, {"unit": "lines"}):
            foreign = await bob.get(f"/pointers/{pointer}", params=query)
            never = await bob.get(f"/pointers/{unknown}", params=query)
            assert foreign.status_code == never.status_code == 404
            assert foreign.text.replace(pointer, "") == never.text.replace(unknown, "")
            assert foreign.json()["error"] == "no_such_pointer"
            assert "POST" in foreign.json()["message"]
            assert "list" not in foreign.json()["message"]
            names = {"content-type", "content-length", "set-cookie"}
            assert names & foreign.headers.keys() == names & never.headers.keys()
        for hostile in ("..%2F..", "%00", "*", "mp_" + "A" * 26, "mc_" + "a" * 26, "x" * 4_000):
            assert (await bob.get(f"/pointers/{hostile}")).status_code == 404
        assert (await alice.get(f"/pointers/{pointer}")).status_code == 200
        for path in ("/pointers", f"/pointers/{pointer}"):
            method = "POST" if path == "/pointers" else "GET"
            async with httpx.AsyncClient(base_url=served.url) as nobody:
                assert (await nobody.request(method, path)).status_code == 401


async def test_ones_own_expired_pointer_is_410_and_a_strangers_404(
    serve_gateway: ServeGateway, redis_client: redis.Redis
) -> None:
    async with serve_gateway() as served, client_of(served) as alice, client_of(served, "token-of-bob") as bob:
        pointer = (await post(alice, "short", "text/plain", ttl_ms=1))["id"]
        answer = await alice.get(f"/pointers/{pointer}")
        while answer.status_code == 200:  # within that millisecond
            answer = await alice.get(f"/pointers/{pointer}")
        assert answer.status_code == 410
        assert (await bob.get(f"/pointers/{pointer}")).status_code == 404


async def test_a_value_over_the_limit_is_413_with_or_without_a_length_and_nothing_of_it_stays(
    serve_gateway: ServeGateway, redis_client: redis.Redis
) -> None:
    async def pieces() -> Any:
        for _ in range(30):
            yield b"x" * 1_000

    async with serve_gateway(upload_bytes_max=20_000) as served, client_of(served) as client:
        for body in (b"x" * 30_000, pieces()):
            refused = await client.post("/pointers", content=body)
            assert refused.status_code == 413
            assert "upload_bytes_max" in refused.json()["message"]
        for media_type, body in (("application/json", b"{broken"), ("text/plain", b"\xff\xfe")):
            refused = await client.post("/pointers", content=body, headers={"content-type": media_type})
            assert refused.status_code == 400
            assert "application/octet-stream" in refused.json()["message"]
        assert redis_client.keys("rtmem:p:*") == []


async def test_a_principal_without_room_is_told_507(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served, client_of(served) as client:
        served.gateway.pointers = served.gateway.pointers.limited(tenant_bytes_max=1_000)
        refused = await client.post("/pointers", content=b"x" * 5_000)
        assert refused.status_code == 507
        assert refused.json()["meta"]["error_type"] == "QuotaExceededError"


async def test_a_pointer_that_is_posted_for_a_thread_ends_with_it(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served, client_of(served) as client:
        pointer = (await post(client, LOG, "text/plain", thread_id="t"))["id"]
        saver = served.saver.bind("alice")
        await saver.adelete_thread("t")
        assert (await client.get(f"/pointers/{pointer}")).status_code == 410


async def test_a_frame_or_body_over_the_limit_is_told_where_to_send_the_value(serve_gateway: ServeGateway) -> None:
    async with serve_gateway(frame_bytes_max=10_000) as served, client_of(served) as client:
        async with connect(f"{served.ws_url}/threads/t/stream/events", additional_headers=served.auth) as socket:
            await socket.send("x" * 20_000)
            with pytest.raises(ConnectionClosedError, match=r"1009.*POST the value to /pointers"):
                await socket.recv()
        refused = await client.post("/threads/t/commands", content=b"x" * 20_000)
        assert refused.status_code == 413
        assert "POST" in refused.json()["message"]
        assert "/pointers" in refused.json()["message"]


class Report(TypedDict):
    rows: Annotated[list[dict[str, Any]], operator.add]
    note: str


def report_graph() -> Any:
    def fetch(state: Report) -> dict[str, Any]:
        return {"rows": [{"id": n, "name": f"row {n}"} for n in range(3_000)], "note": "done"}

    builder = StateGraph(Report)
    builder.add_node("fetch", fetch)
    builder.add_edge(START, "fetch")
    builder.add_edge("fetch", END)
    return builder.compile()


async def test_a_large_state_comes_as_a_pointer_for_who_asks_and_unmodified_clients_see_no_difference(
    serve_gateway: ServeGateway,
) -> None:
    async with (
        serve_gateway(graphs={"report": report_graph()}) as served,
        client_of(served) as client,
        get_client(url=served.url, api_key="token-of-alice") as sdk,
    ):
        async with sdk.threads.stream("t", assistant_id="report", transport="websocket") as thread:
            await thread.run.start(input={"rows": [], "note": ""})
            output = await thread.output
        assert len(output["rows"]) == 3_000
        whole = await sdk.threads.get_state("t")
        assert len(whole["values"]["rows"]) == 3_000
        asked = {"offload_bytes_min": 10_000}
        by_get = (await client.get("/threads/t/state", params=asked)).json()["values"]
        command = {"id": 1, "method": "state.get", "params": asked}
        by_command = (await client.post("/threads/t/commands", json=command)).json()["result"]["values"]
        async with connect(f"{served.ws_url}/threads/t/stream/events", additional_headers=served.auth) as socket:
            await socket.send(json.dumps(command))
            by_socket = json.loads(await socket.recv())["result"]["values"]
        for values in (by_get, by_command, by_socket):
            assert values["note"] == "done"
            assert values["rows"]["type"] == "rtmem.pointer"
            assert values["rows"]["items"] == 3_000
            found = await client.get(f"/pointers/{values['rows']['id']}")
            assert found.json() == whole["values"]["rows"]
        items = {"unit": "items", "start": 2_999}
        last = await client.get(f"/pointers/{by_get['rows']['id']}", params=items)
        assert last.json()["content"] == [{"id": 2_999, "name": "row 2999"}]
        refused = await client.get("/threads/t/state", params={"offload_bytes_min": 5})
        assert refused.status_code == 400


async def test_a_graphs_oversized_values_lie_at_pointers_behind_the_gateway_too(
    serve_gateway: ServeGateway, redis_client: redis.Redis
) -> None:
    url = f"unix://{redis_client.connection_pool.connection_kwargs['path']}?db=0"
    async with await AsyncDriver.connect(url) as driver:
        saver = AsyncRedisSaver(driver=driver, settings=Checkpoint(offload_bytes_min=20), pointers=Pointers())
        async with (
            serve_gateway(graphs={"report": report_graph()}, saver=saver) as served,
            client_of(served) as client,
            get_client(url=served.url, api_key="token-of-alice") as sdk,
        ):
            async with sdk.threads.stream("t", assistant_id="report", transport="websocket") as thread:
                await thread.run.start(input={"rows": [], "note": ""})
                output = await thread.output
            assert len(output["rows"]) == 3_000
            assert redis_client.hget("rtmem:p:{alice/}:h", "values") is not None
            values = (await client.get("/threads/t/state")).json()["values"]
            assert values == output


# Agents --------------------------------------------------------------------------------------------------------------


def find() -> list[dict[str, int]]:
    """Find the user's rows."""
    return [{"id": number} for number in range(5_000)]


async def count(rows: Annotated[list[dict[str, int]], ByPointer]) -> int:
    """Count rows."""
    return len(rows)


def agent_of(middleware: PointerMiddleware) -> tuple[Any, list[str]]:
    """An agent that finds rows for whoever comes first; the next one passes on that pointer. And what was answered."""
    ids: list[str] = []
    answers: list[str] = []

    def first(messages: Any) -> dict[str, dict[str, Any]]:
        ids.append(pointer_in(last_result(messages).content))
        return {"count": {"rows": ids[0]}}

    def heard(messages: Any) -> str:
        answers.append(str(last_result(messages).content))
        return "done"

    def heard_and_read(messages: Any) -> dict[str, dict[str, Any]]:
        heard(messages)
        return {"read_pointer": {"pointer": ids[0]}}

    turns = [
        *(call(find={}), first, heard_and_read, heard),
        *(lambda _: {"count": {"rows": ids[0]}}, heard_and_read, heard),
    ]
    return create_agent(Scripted(turns=turns), [find, count], middleware=[middleware]), answers


@pytest.mark.parametrize("given", ["none", "awaiting", "blocking"])
async def test_pointers_of_an_agent_are_those_of_whoever_is_authenticated(
    serve_gateway: ServeGateway, redis_url: str, given: str
) -> None:
    patient = Redis(deadline_ms=60_000)
    pointers: Any = None
    if given != "none":
        kind = AsyncPointers if given == "awaiting" else BlockingPointers
        pointers = kind(redis_url, principal="developer", redis=patient)
    agent, answers = agent_of(PointerMiddleware(pointers) if pointers is not None else PointerMiddleware())
    async with serve_gateway(graphs={"agent": agent}) as served:
        for token in ("token-of-alice", "token-of-bob"):
            async with raw_client(served.ws_url, f"thread-with-{token}", token=token) as client:
                await client.subscribe(["lifecycle"])
                await client.start("agent", "go")
                assert (await client.until_end())["event"] == "completed"
        assert answers[0] == "5000"
        assert answers[1].startswith("items 0-")
        assert ["There is no pointer" in answer for answer in answers[2:]] == [True, True]
        kept = {}
        for principal in ("alice", "bob", "developer"):
            page = await served.gateway.pointers.bind(principal).list()
            kept[principal] = len(page.pointers)
        # Pinned to the thread that the tool was called in, of the same principal.
        assert kept == {"alice": 1, "bob": 0, "developer": 0}
        alices = served.gateway.pointers.bind("alice")
        assert len((await alices.list("thread-with-token-of-alice")).pointers) == 1
    if given == "awaiting":
        await pointers.aclose()
    elif given == "blocking":
        pointers.close()


async def test_how_long_a_result_may_be_behind_a_gateway_is_what_its_settings_say(serve_gateway: ServeGateway) -> None:
    agent, answers = agent_of(PointerMiddleware())
    longest = {"pointers": Pointers(inline_characters_max=600, compute_ms_max=60_000)}
    async with serve_gateway(graphs={"agent": agent}, sections=longest) as served:
        async with raw_client(served.ws_url, "t") as client:
            await client.subscribe(["lifecycle"])
            await client.start("agent", "go")
            await client.until_end()
    assert len(answers[1]) <= 600
