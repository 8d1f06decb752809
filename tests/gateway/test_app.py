"""Who is let in, what a thread id may be, and what is answered to what is not a command."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedError

import rtmem
from tests.gateway.conftest import Served, ServeGateway
from tests.gateway.raw import raw_client, text_in

pytestmark = pytest.mark.anyio

HOSTILE_IDS = [
    ": { } * | , . - @ \\ \" '",
    "a/b",
    "..",
    "%2F",
    "emoji \N{GRINNING FACE}",
    "nul \x00 nul",
    "line\nbreak",
    "{alice/t}:c",
    "*",
    "Имя",
]


def command(method: str, **params: Any) -> dict[str, Any]:
    return {"id": 7, "method": method, "params": params}


async def post(served: Served, path: str, body: Any, token: str | None = "token-of-alice") -> httpx.Response:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    content = body if isinstance(body, bytes) else json.dumps(body)
    async with httpx.AsyncClient(base_url=served.url) as client:
        return await client.post(path, content=content, headers=headers)


async def state_of(served: Served, thread_id: str, token: str = "token-of-alice") -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=served.url, headers={"x-api-key": token}) as client:
        response = await client.get(f"/threads/{quote(thread_id, safe='')}/state")
        response.raise_for_status()
        found: dict[str, Any] = response.json()
        return found


async def test_ok_needs_no_token(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served, httpx.AsyncClient(base_url=served.url) as client:
        assert (await client.get("/ok")).json() == {"ok": True}


async def test_info_tells_which_version_serves(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served, httpx.AsyncClient(base_url=served.url) as client:
        info = (await client.get("/info", headers={"x-api-key": "token-of-alice"})).json()
        assert (info["name"], info["version"]) == ("rtmem", rtmem.__version__)


@pytest.mark.parametrize("token", [None, "wrong", "token-of-alic", "Token-Of-Alice", "токен"])
async def test_without_a_known_token_http_answers_401_and_a_websocket_closes_with_4401(
    serve_gateway: ServeGateway, token: str | None
) -> None:
    async with serve_gateway() as served:
        headers = {} if token is None else {"authorization": f"Bearer {token}".encode()}
        async with httpx.AsyncClient(base_url=served.url, headers=headers) as client:
            for response in (
                await client.get("/threads/t/state"),
                await client.post("/threads/t/commands", json=command("state.get")),
                await client.post("/threads", json={}),
                await client.post("/assistants/search", json={}),
            ):
                assert response.status_code == 401
                assert response.json()["error"] == "permission_denied"
                assert "set-cookie" not in response.headers
        query = "" if token is None else f"?token={quote(token)}"
        async with raw_client(served.ws_url, token=None, query=query) as client:
            with pytest.raises(ConnectionClosedError) as closed:
                await client.receive()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 4401


async def test_a_token_is_read_from_either_header_or_the_query(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served:
        async with raw_client(served.ws_url, token="token-of-alice") as client:
            await client.subscribe()
        async with raw_client(served.ws_url, token=None, query="?token=token-of-alice") as client:
            await client.subscribe()
        assert (await state_of(served, "t"))["values"] == {}


async def test_a_ticket_opens_websockets_only_and_no_browser_can_use_it(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served:
        cookie = (await post(served, "/threads/t/commands", command("state.get"))).headers["set-cookie"].split(";")[0]
        assert "token-of-alice" not in cookie
        async with raw_client(served.ws_url, token=None, cookie=cookie) as client:
            await client.subscribe()
        async with httpx.AsyncClient(base_url=served.url, headers={"cookie": cookie}) as http:
            assert (await http.get("/threads/t/state")).status_code == 401
        async with raw_client(served.ws_url, token=None, cookie=cookie, origin="https://evil.example") as client:
            with pytest.raises(ConnectionClosedError, match="4401"):
                await client.receive()


@pytest.mark.parametrize("thread_id", HOSTILE_IDS)
async def test_any_text_is_a_thread_id_and_names_one_thread(serve_gateway: ServeGateway, thread_id: str) -> None:
    async with serve_gateway() as served:
        async with raw_client(served.ws_url, thread_id) as client:
            await client.subscribe()
            await client.start("chat", "hello")
            assert (await client.until_end())["event"] == "completed"
            assert len((await client.ask("state.get"))["result"]["values"]["messages"]) == 2
        async with raw_client(served.ws_url, thread_id + "x") as client:
            assert (await client.ask("state.get"))["result"] == {"values": {}}


async def test_ids_that_differ_only_in_case_are_two_threads(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served:
        async with raw_client(served.ws_url, "Alice") as client:
            await client.subscribe()
            await client.start("chat", "hello")
            await client.until_end()
        assert len((await state_of(served, "Alice"))["values"]["messages"]) == 2
        assert (await state_of(served, "alice"))["values"] == {}


async def test_another_principals_thread_is_ones_own_empty_thread(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served:
        async with (
            raw_client(served.ws_url, "shared", token="token-of-bob") as bob,
            raw_client(served.ws_url, "shared", token="token-of-alice") as alice,
        ):
            await bob.subscribe(since=0)
            await alice.subscribe()
            await alice.start("chat", "my secret")
            await alice.until_end()
            await bob.start("chat", "anything here?")
            await bob.until_end()
        assert "my secret" not in json.dumps(bob.events)
        assert text_in(bob.events).startswith("You said anything here?")
        values = (await state_of(served, "shared", "token-of-bob"))["values"]
        assert [message["type"] for message in values["messages"]] == ["human", "ai"]
        # Not even a claim in the run's config moves a run to another principal.
        async with raw_client(served.ws_url, "shared", token="token-of-bob") as bob:
            await bob.subscribe()
            await bob.ask(
                "run.start",
                assistant_id="chat",
                input={"messages": [{"role": "user", "content": "2"}]},
                config={"configurable": {"principal": "alice", "thread_id": "shared", "checkpoint_ns": "x"}},
            )
            await bob.until_end()
        assert len((await state_of(served, "shared", "token-of-alice"))["values"]["messages"]) == 2
        assert len((await state_of(served, "shared", "token-of-bob"))["values"]["messages"]) == 4


async def test_an_id_over_512_bytes_is_a_typed_error(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served:
        for thread_id, fits in (("x" * 512, True), ("x" * 513, False), ("я" * 256, True), ("я" * 257, False)):
            response = await post(served, f"/threads/{quote(thread_id)}/commands", command("state.get"))
            assert response.status_code == (200 if fits else 422)
            assert fits or response.json()["meta"]["error_type"] == "IdTooLongError"
        async with raw_client(served.ws_url, "x" * 513) as client:
            with pytest.raises(ConnectionClosedError, match="4422"):
                await client.receive()


async def test_an_id_that_is_not_utf8_is_a_typed_error(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served:
        response = await post(served, "/threads/%FF/commands", command("state.get"))
        assert (response.status_code, response.json()["error"]) == (400, "invalid_argument")


def frame_of(method: str, **params: Any) -> str:
    return json.dumps({"id": 3, "method": method, "params": params})


@pytest.mark.parametrize(
    ("frame", "error", "command_id"),
    [
        ("{", "invalid_argument", None),
        ("[]", "invalid_argument", None),
        ("\ud83d".encode("utf-16-le", "surrogatepass"), "invalid_argument", None),
        ('{"id": "x", "method": "state.get"}', "invalid_argument", None),
        ('{"id": 3}', "invalid_argument", 3),
        ('{"id": 3, "method": "no.such"}', "unknown_command", 3),
        (frame_of("run.cancel"), "unknown_command", 3),
        (frame_of("run.start"), "invalid_argument", 3),
        (frame_of("run.start", assistant_id="nobody"), "invalid_argument", 3),
        (frame_of("run.start", assistant_id="chat", config={"tags": 1}), "invalid_argument", 3),
        (frame_of("subscription.subscribe", channels=["no"]), "invalid_argument", 3),
        (frame_of("subscription.subscribe", channels=[], since=-1), "invalid_argument", 3),
        (frame_of("subscription.unsubscribe", subscription_id="x"), "no_such_subscription", 3),
        (frame_of("input.respond"), "invalid_argument", 3),
        (frame_of("input.respond", interrupt_id="x", response=1), "no_such_interrupt", 3),
        ("[" * 100_000, "invalid_argument", None),
        ('{"id": 3, "x": ' + "[" * 100_000 + "]" * 100_000 + "}", "invalid_argument", None),
        ('{"id": 3, "method": "state.get", "params": {"x": ' + '{"x":' * 5_000, "invalid_argument", None),
    ],
)
async def test_a_bad_frame_is_answered_and_the_connection_stays(
    serve_gateway: ServeGateway, frame: str | bytes, error: str, command_id: int | None
) -> None:
    async with serve_gateway() as served, raw_client(served.ws_url) as client:
        await client.socket.send(frame)
        reply = await client.receive()
        assert (reply["type"], reply["id"], reply["error"]) == ("error", command_id, error)
        assert reply["message"]
        assert reply["meta"]["error_type"].endswith("Error")
        assert (await client.ask("state.get"))["result"] == {"values": {}}


async def test_http_answers_a_bad_body_400_and_a_failed_command_in_an_envelope(serve_gateway: ServeGateway) -> None:
    async with serve_gateway(frame_bytes_max=10_000) as served:
        path = "/threads/t/commands"
        assert (await post(served, path, b"{")).status_code == 400
        unknown = await post(served, path, command("no.such"))
        assert (unknown.status_code, unknown.json()["error"], unknown.json()["id"]) == (400, "unknown_command", 7)
        failed = await post(served, path, command("run.start", assistant_id="nobody"))
        assert (failed.status_code, failed.json()["type"]) == (200, "error")
        assert failed.json()["meta"] == {"error_type": "GraphNotFoundError", "retryable": False}
        subscribed = await post(served, path, command("subscription.subscribe", channels=["values"]))
        assert subscribed.json()["error"] == "not_supported"
        assert (await post(served, path, b"x" * 10_001)).status_code == 413
        deep = b'{"x":' * 2_000
        for deep_path in (path, "/threads", "/threads/t/stream/events"):
            assert (await post(served, deep_path, deep)).json()["meta"]["error_type"] == "MalformedFrameError"
        for no_id in (["a"], {"a": 1}, 5, True):
            assert (await post(served, "/threads", {"thread_id": no_id})).status_code == 400


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/no/such/path", 404),
        ("GET", "/threads/t/runs/x", 404),
        ("POST", "/threads/t/history", 404),
        ("POST", "/threads/search", 405),
        ("POST", "/threads/t/state", 405),
        ("DELETE", "/threads/t", 405),
        ("PUT", "/ok", 405),
    ],
)
async def test_what_is_not_served_is_a_typed_error_that_names_what_is(
    serve_gateway: ServeGateway, method: str, path: str, status: int
) -> None:
    async with serve_gateway() as served, httpx.AsyncClient(base_url=served.url) as client:
        response = await client.request(method, path)
        body = response.json()
        assert (response.status_code, body["error"]) == (status, "not_supported")
        assert body["message"].startswith(f"{method} {path} is not served here: use GET /ok, ")
        for route in ("GET /threads/{thread_id}/state", "POST /threads/{thread_id}/commands", "WS /threads"):
            assert route in body["message"]
        assert ("allow" in response.headers) == (status == 405)


async def test_a_websocket_elsewhere_is_told_where_to_go(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served, connect(f"{served.ws_url}/threads/t/stream") as socket:
        with pytest.raises(ConnectionClosedError, match=r"4404.*/threads/<thread_id>/stream/events"):
            await socket.recv()


async def test_a_fault_of_the_gateway_is_typed_too_and_told_to_its_log(
    serve_gateway: ServeGateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve_gateway() as served:
        monkeypatch.setattr(served.gateway.threads, "get", lambda *name: 1 / 0)
        response = await post(served, "/threads/t/commands", command("state.get"))
    assert (response.status_code, response.json()["error"]) == (500, "unknown_error")
    assert response.json()["message"] == "ZeroDivisionError: a fault in the gateway, see its log"
    assert "ZeroDivisionError: division by zero" in caplog.text


async def test_state_get_gives_the_state_or_some_keys_of_it(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served, raw_client(served.ws_url) as client:
        await client.subscribe(["lifecycle"])
        await client.start("nested", "hello")
        await client.until_end()
        everything = (await client.ask("state.get"))["result"]
        assert len(everything["values"]["messages"]) == 2
        assert everything["checkpoint"]["id"] == (await state_of(served, "t"))["checkpoint"]["checkpoint_id"]
        assert (await client.ask("state.get", keys=["no"]))["result"]["values"] == {}
        wrong = await client.ask("state.get", namespace=["nowhere"])
        assert wrong["error"] == "invalid_argument"


@pytest.mark.parametrize("messages", [5, [{"role": "nobody", "content": "x"}]])
async def test_a_state_that_its_graph_refuses_is_a_typed_error_until_the_next_run(
    serve_gateway: ServeGateway, messages: Any
) -> None:
    async with serve_gateway() as served, raw_client(served.ws_url) as client:
        await client.subscribe(["lifecycle"])
        await client.ask("run.start", assistant_id="chat", input={"messages": messages})
        assert (await client.until_end())["event"] == "failed"
        refused = await client.ask("state.get")
        assert refused["meta"] == {"error_type": "StateUnreadableError", "retryable": False}
        assert "start a run with a correct input" in refused["message"]
        async with httpx.AsyncClient(base_url=served.url, headers=served.auth) as http:
            assert (await http.get("/threads/t/state")).status_code == 409
        client.forget()
        await client.start("chat", "hello")
        assert (await client.until_end())["event"] == "completed"
        assert len((await state_of(served, "t"))["values"]["messages"]) == 2


async def test_a_run_from_a_checkpoint_that_is_not_there_is_refused_and_loses_nothing(
    serve_gateway: ServeGateway,
) -> None:
    async with serve_gateway() as served, raw_client(served.ws_url) as client:
        await client.subscribe(["lifecycle"])
        await client.start("chat", "hello")
        end = await client.until_end()

        async def start_from(checkpoint_id: Any) -> dict[str, Any]:
            said = {"messages": [{"role": "user", "content": "again"}]}
            config = {"configurable": {"checkpoint_id": checkpoint_id}}
            return await client.ask("run.start", assistant_id="chat", input=said, config=config)

        for nowhere in ("no-such-checkpoint", 5):
            refused = await start_from(nowhere)
            assert refused["meta"]["error_type"] == "InvalidRequestError"
        assert len((await state_of(served, "t"))["values"]["messages"]) == 2
        client.forget()
        assert (await start_from(end["checkpoint"]["id"]))["type"] == "success"
        assert (await client.until_end())["event"] == "completed"
        assert len((await state_of(served, "t"))["values"]["messages"]) == 4


async def test_a_frame_over_the_limit_closes_with_1009(serve_gateway: ServeGateway) -> None:
    async with serve_gateway(frame_bytes_max=10_000) as served, raw_client(served.ws_url) as client:
        await client.socket.send("x" * 10_001)
        with pytest.raises(ConnectionClosedError, match="1009"):
            await client.receive()


async def test_too_many_subscriptions_are_refused(serve_gateway: ServeGateway) -> None:
    async with serve_gateway(subscriptions_max=2) as served, raw_client(served.ws_url) as client:
        first = await client.subscribe(["values"])
        await client.subscribe(["values"])
        refused = await client.ask("subscription.subscribe", channels=["values"])
        assert refused["error"] == "not_supported"
        await client.ask("subscription.unsubscribe", subscription_id=first)
        await client.subscribe(["values"])
