"""One thread at a gateway, as a client that must not lose a word of it. Knows no screen.

The client is the official SDK. What it does not do is done here: it gives up on a gateway that is away for more than
a few seconds, and it cannot know that a run died with its process. After each turn, and after each break, the thread's
state at the gateway decides what is still to be shown or to be done.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import anyio
import httpx
from langgraph_sdk import get_client
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from rtmem.errors import ConfigError, RtmemError, RunFailedError, ServerUnavailableError, UnauthorizedError

GATEWAY_WAIT_MS: Final = 60_000
_CONTINUATIONS_MAX: Final = 3  # of one answer; a run that kills its gateway each time must not do so forever
_POLL_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Words:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The agent called a tool."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """The run waits for a decision."""

    interrupt_id: str
    value: Any


@dataclass(frozen=True, slots=True)
class Notice:
    """Something happened to the connection or to the run, and what was done about it."""

    text: str


Heard: TypeAlias = Words | ToolUse | Question | Notice
Start: TypeAlias = Callable[[Any], Awaitable[object]]


class Conversation:
    """A thread to talk to. One turn at a time."""

    def __init__(self, url: str, token: str, thread_id: str) -> None:
        self.url = url
        self.thread_id = thread_id
        self._assistant_id = ""
        # Twice: the SDK does not send the client's headers when it opens a stream's websocket.
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = get_client(url=url, api_key=None, headers=self._headers)
        self._shown: dict[str, str] = {}  # message id -> what the user has seen of it

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def check(self) -> None:
        """Raises ServerUnavailableError if nobody listens there; at once, where the SDK would try for eight seconds."""
        try:
            async with httpx.AsyncClient(timeout=5) as client:
                (await client.get(f"{self.url}/ok")).raise_for_status()
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise self._unreachable(exc) from exc

    async def choose(self, assistant_id: str | None) -> None:
        """Talk to this assistant, or to the only one.

        Raises:
            ConfigError: no such assistant, or several to choose from.
        """
        with self._typed_errors():
            served = [str(assistant["assistant_id"]) for assistant in await self._client.assistants.search()]
        if assistant_id is None and len(served) == 1:
            assistant_id = served[0]
        if assistant_id not in served:
            asked = f"no assistant {assistant_id!r}" if assistant_id else "several assistants"
            raise ConfigError(f"{asked} at {self.url}: choose one with --assistant: {', '.join(served)}")
        self._assistant_id = assistant_id

    async def state(self) -> dict[str, Any]:
        """The thread's state; a new thread has an empty one.

        Raises:
            ServerUnavailableError, UnauthorizedError: no gateway, or not for this token.
        """
        with self._typed_errors():
            return dict(await self._client.threads.get_state(self.thread_id))

    async def say(self, text: str) -> AsyncIterator[Heard]:
        """Send a message and listen to the answer."""
        # The id is ours, so that sending again after a break adds nothing twice.
        message = {"role": "user", "content": text, "id": str(uuid.uuid4())}
        async for heard in self._turn(lambda stream: stream.run.start(input={"messages": [message]}), message["id"]):
            yield heard

    async def decide(self, question: Question, answer: Any) -> AsyncIterator[Heard]:
        """Answer a question of the run, and listen to how it goes on."""
        params = {"interrupt_id": question.interrupt_id, "namespace": [], "response": answer}

        async def respond(_: Any) -> None:
            await self._command("input.respond", params)

        async for heard in self._turn(respond, ""):
            yield heard

    async def _turn(self, start: Start, message_id: str) -> AsyncIterator[Heard]:
        """Start, listen, and go on wherever it broke, until the state at the gateway says that the turn is over."""
        seen_before = {str(message.get("id")) for message in messages_of(await self.state())}
        if message_id:
            seen_before.add(message_id)
        failure = ""
        for _ in range(1 + _CONTINUATIONS_MAX):
            ending = _Ending()
            async for heard in self._listen(start, ending):
                yield heard
            if ending.lost:
                yield Notice("connection lost, waiting for the gateway")
                await self._wait_for_gateway()
            state = await self.state()
            for heard in self._rest(state, seen_before):
                yield heard
            if questions := questions_of(state):
                for question in questions:
                    yield question
                return
            failure = ending.failure
            if failure and _is_task_error(state):
                break
            if message_id and message_id not in {message.get("id") for message in messages_of(state)}:
                if failure:
                    break
                yield Notice("connected again; the message had not arrived, sending it once more")
                continue
            if not state.get("next"):
                return
            yield Notice("connected again; the answer was cut off, here it is from its beginning")
            start = self._continue
        raise RunFailedError(f"no answer: {failure or 'the run was cut off again and again; see the gateway’s log'}")

    async def _listen(self, start: Start, ending: _Ending) -> AsyncIterator[Heard]:
        """One connection's worth of a run: from `start` to the end of the run or of the connection."""
        try:
            async with self._client.threads.stream(
                self.thread_id, assistant_id=self._assistant_id, headers=self._headers, transport="websocket"
            ) as stream:
                await start(stream)
                async for event in stream.subscribe(["messages", "lifecycle", "input"]):
                    for heard in self._read(event, ending):
                        yield heard
                # A question ends the SDK's subscription early, whatever is still on its way.
                ending.lost = not (ending.over or stream.interrupted)
        except (httpx.HTTPStatusError, InvalidStatus) as exc:
            raise self._refused(exc.response.status_code, exc) from exc
        except ConnectionClosed as exc:
            # The gateway closes with 4000 plus an HTTP status; of those, 408 and 429 mean: try again.
            status = exc.rcvd.code - 4000 if exc.rcvd is not None else 0
            if 400 <= status < 500 and status not in (408, 429):
                raise self._refused(status, exc) from exc
            ending.lost = True
        except (httpx.TransportError, WebSocketException, OSError, TimeoutError):
            ending.lost = True
        except RtmemError:
            raise
        except RuntimeError as exc:
            # The SDK's error for a command that the gateway refused.
            raise RunFailedError(str(exc)) from exc

    def _read(self, event: Mapping[str, Any], ending: _Ending) -> list[Heard]:
        params = event.get("params") or {}
        data = params.get("data") or {}
        if event.get("method") == "lifecycle" and not params.get("namespace"):
            ending.over = data.get("event") in ("completed", "failed", "interrupted")
            if data.get("event") == "failed":
                ending.failure = str(data.get("error") or "the run failed")
            return []
        if event.get("method") != "messages":
            return []
        return self._read_message(data, ending)

    def _read_message(self, data: Mapping[str, Any], ending: _Ending) -> list[Heard]:
        kind = data.get("event")
        if kind == "message-start":
            ending.message_id = str(data.get("id") or data.get("message_id") or "") if data.get("role") == "ai" else ""
        elif kind == "content-block-delta" and ending.message_id:
            delta = data.get("delta") or {}
            if delta.get("type") == "text-delta" and delta.get("text"):
                return [self._show(ending.message_id, delta["text"])]
        elif kind == "content-block-finish" and ending.message_id:
            block = data.get("content") or {}
            if block.get("type") == "tool_call":
                return [ToolUse(str(block.get("name")), block.get("args") or {})]
        return []

    def _show(self, message_id: str, text: str) -> Words:
        self._shown[message_id] = self._shown.get(message_id, "") + text
        return Words(text)

    def _rest(self, state: Mapping[str, Any], seen_before: set[str]) -> list[Heard]:
        """What the state holds of this turn's answers and was not shown: the end of a broken stream, or all of it."""
        rest: list[Heard] = []
        for message in messages_of(state):
            message_id, text = str(message.get("id")), text_of(message)
            if message.get("type") != "ai" or message_id in seen_before:
                continue
            shown = self._shown.get(message_id, "")
            if text.startswith(shown) and len(text) > len(shown):
                rest.append(self._show(message_id, text[len(shown) :]))
        return rest

    async def _wait_for_gateway(self) -> None:
        deadline = time.monotonic() + GATEWAY_WAIT_MS / 1000
        while True:
            try:
                return await self.check()
            except ServerUnavailableError:
                if time.monotonic() > deadline:
                    raise
                await anyio.sleep(_POLL_S)

    async def _continue(self, _: Any) -> None:
        # No input: LangGraph goes on from the thread's last checkpoint. A run that lives after all is just listened to.
        await self._command("run.start", {"assistant_id": self._assistant_id}, allowed="RunInProgressError")

    async def _command(self, method: str, params: Mapping[str, Any], allowed: str = "") -> None:
        """Send a command whose refusal has to be told apart; the SDK's own methods keep only the message."""
        path = f"/threads/{quote(self.thread_id, safe='')}/commands"
        reply = await self._client.http.post(path, json={"id": 1, "method": method, "params": params})
        if not isinstance(reply, dict) or reply.get("type") != "error":
            return
        if not allowed or (reply.get("meta") or {}).get("error_type") != allowed:
            raise RunFailedError(f"the gateway refused {method}: {reply.get('message')}")

    @contextmanager
    def _typed_errors(self) -> Iterator[None]:
        try:
            yield
        except httpx.HTTPStatusError as exc:
            raise self._refused(exc.response.status_code, exc) from exc
        except httpx.TransportError as exc:
            raise self._unreachable(exc) from exc

    def _unreachable(self, cause: BaseException) -> ServerUnavailableError:
        return ServerUnavailableError(
            f"no gateway answers at {self.url} ({type(cause).__name__}): start one with `rtmem up`, or give its --url"
        )

    def _refused(self, status: int, cause: BaseException) -> RtmemError:
        if status in (401, 403):
            return UnauthorizedError(
                f"the gateway at {self.url} does not know this token: `rtmem up` prints the right one; "
                "give it with --token or RTMEM_TOKEN"
            )
        return RunFailedError(f"the gateway at {self.url} refused with status {status}: {cause}")


@dataclass(slots=True)
class _Ending:
    """How one connection's worth of a run ended."""

    over: bool = False  # the run said so itself
    lost: bool = False
    failure: str = ""
    message_id: str = ""  # of the message that is being streamed


def messages_of(state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The messages in a thread's state; an empty list if it has none."""
    values = state.get("values")
    found = values.get("messages") if isinstance(values, Mapping) else None
    return [message for message in found if isinstance(message, Mapping)] if isinstance(found, list) else []


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message, whichever shape its content has."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "".join(block if isinstance(block, str) else str(block.get("text", "")) for block in blocks)


def questions_of(state: Mapping[str, Any]) -> list[Question]:
    """What the thread's run waits for."""
    return [
        Question(str(interrupt.get("id")), interrupt.get("value"))
        for task in state.get("tasks") or ()
        for interrupt in task.get("interrupts") or ()
    ]


def _is_task_error(state: Mapping[str, Any]) -> bool:
    return any(task.get("error") for task in state.get("tasks") or ())
