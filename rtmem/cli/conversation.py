"""One thread at a gateway, as a client that must not lose a word of it. Knows no screen.

Built from the official SDK's client and websocket transport. Its thread stream on top of them is not used: it gives up
on a gateway that is away for more than three seconds, and a question of an earlier run ends its subscriptions early.
Here, a command's reply says after which seq its consequences come, and every connection goes on after the last seq that
was heard. After each turn the thread's state decides what is still to be shown or to be done.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import anyio
import httpx
from langgraph_sdk import get_client
from langgraph_sdk.stream.transport import ProtocolWebSocketTransport
from websockets.exceptions import ConnectionClosed, InvalidStatus

from rtmem.cli.states import Question, messages_of, questions_of, text_of
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
class Notice:
    """Something happened to the connection or to the run, and what was done about it."""

    text: str


_LOST: Final = Notice("connection lost, waiting for the gateway")

Heard: TypeAlias = Words | ToolUse | Question | Notice


class Conversation:
    """A thread to talk to. One turn at a time."""

    def __init__(self, url: str, token: str, thread_id: str) -> None:
        self.url = url.rstrip("/")
        self.thread_id = thread_id
        self._assistant_id = ""
        self._client = get_client(url=self.url, api_key=token or None)
        self._probe = httpx.AsyncClient(timeout=5)
        self._shown: dict[str, str] = {}  # message id -> what the user has seen of it

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()
        await self._probe.aclose()

    async def check(self) -> None:
        """Raises ServerUnavailableError if nobody listens there; at once, where the SDK would try for eight seconds."""
        try:
            (await self._probe.get(f"{self.url}/ok")).raise_for_status()
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

    async def state(self, *, wait_ms: int = GATEWAY_WAIT_MS) -> dict[str, Any]:
        """The thread's state; a new thread has an empty one.

        Args:
            wait_ms: how long a gateway that cannot tell it now is asked again.

        Raises:
            ServerUnavailableError, UnauthorizedError: no gateway, or not for this token.
        """
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            try:
                with self._typed_errors():
                    return dict(await self._client.threads.get_state(self.thread_id))
            except ServerUnavailableError:
                if time.monotonic() > deadline:
                    raise
                await anyio.sleep(_POLL_S)

    async def say(self, text: str) -> AsyncIterator[Heard]:
        """Send a message and listen to the answer."""
        # The id is ours, so that sending again after a break adds nothing twice.
        message = {"role": "user", "content": text, "id": str(uuid.uuid4())}
        start = _Command("run.start", {"assistant_id": self._assistant_id, "input": {"messages": [message]}})
        async for heard in self._turn(start, message["id"]):
            yield heard

    async def decide(self, question: Question, answer: Any) -> AsyncIterator[Heard]:
        """Answer a question of the run, and listen to how it goes on."""
        params = {"interrupt_id": question.interrupt_id, "namespace": [], "response": answer}
        async for heard in self._turn(_Command("input.respond", params), ""):
            yield heard

    async def _turn(self, command: _Command, message_id: str) -> AsyncIterator[Heard]:
        """Start, listen, and go on wherever it broke, until the state at the gateway says that the turn is over."""
        if await self._is_away():
            yield _LOST
        seen_before = {message_id, *(str(message.get("id")) for message in messages_of(await self.state()))}
        for _ in range(1 + _CONTINUATIONS_MAX):
            ending = _Ending()
            async for heard in self._listen(command, ending):
                yield heard
            if await self._is_away():
                yield _LOST
            state = await self.state()
            for heard in self._rest(state, seen_before, message_id):
                yield heard
            if questions := questions_of(state):
                for question in questions:
                    yield question
                return
            if ending.failure and not ending.resumable:
                raise RunFailedError(f"no answer: {ending.failure}")
            arrived = not message_id or message_id in {one.get("id") for one in messages_of(state)}
            if not arrived and (ending.unsent or ending.failure):
                yield Notice("sending the message once more")
            elif state.get("next") and not ending.completed:  # what goes on after that is somebody else's turn
                yield Notice("the answer was cut off, here it is from its beginning")
                command = _Command("run.start", {"assistant_id": self._assistant_id})
            else:
                return
        raise RunFailedError("no answer: the run was cut off again and again; see what the gateway prints")

    async def _listen(self, command: _Command, ending: _Ending) -> AsyncIterator[Heard]:
        """Send `command` and hear the run to its end, each event once, over as many connections as that takes."""
        transport = ProtocolWebSocketTransport(client=self._client.http.client, thread_id=self.thread_id)
        try:
            since = await self._send(transport, command)
            ending.unsent = since is None
        except ServerUnavailableError:
            ending.unsent = True
            yield _LOST
            await self._wait_for_gateway()
            return
        while True:
            params: dict[str, Any] = {"channels": ["messages", "lifecycle", "input", "custom:rtmem.cache"]}
            if since is not None:
                params["since"] = since
            stream = transport.open_event_stream(params)
            try:
                async for event in stream.events:
                    since = event.get("seq", since)
                    for heard in self._read(event, ending):
                        yield heard
                    if ending.over:
                        return
                self._raise_if_refused(await stream.done)
            finally:
                await stream.close()
            yield _LOST
            await self._wait_for_gateway()

    async def _send(self, transport: ProtocolWebSocketTransport, command: _Command) -> int | None:
        """Send a command; the seq after which its consequences come, or None to hear the run at work from its start."""
        with self._typed_errors():
            reply = await transport.send_command({"id": 1, "method": command.method, "params": command.params}) or {}
        meta = reply.get("meta") or {}
        if reply.get("type") != "error":
            return meta.get("applied_through_seq")
        # Our own run, if this was sent twice because a reply was lost; or an earlier one, to be heard out first.
        if meta.get("error_type") == "RunInProgressError" and command.method == "run.start":
            return None
        if meta.get("retryable"):
            raise ServerUnavailableError(f"the gateway at {self.url} cannot do that now: {reply.get('message')}")
        raise RunFailedError(f"the gateway refused {command.method}: {reply.get('message')}")

    def _raise_if_refused(self, error: BaseException | None) -> None:
        """Raise if the gateway closed a stream for good: with 4000 plus an HTTP status that is not "try again"."""
        if isinstance(error, InvalidStatus):
            raise self._refused(error.response.status_code, error) from error
        if isinstance(error, ConnectionClosed) and error.rcvd is not None:
            status = error.rcvd.code - 4000
            if 400 <= status < 500 and status not in (408, 429):
                raise self._refused(status, error) from error

    def _read(self, event: Mapping[str, Any], ending: _Ending) -> list[Heard]:
        params = event.get("params") or {}
        data = params.get("data") or {}
        if event.get("method") == "lifecycle" and not params.get("namespace"):
            ending.over = data.get("event") in ("completed", "failed", "interrupted")
            ending.completed = data.get("event") == "completed"
            if data.get("event") == "failed":
                ending.failure = str(data.get("error") or "the run failed")
                ending.resumable = bool(data.get("resumable"))
            return []
        if event.get("method") == "custom" and data.get("name") == "rtmem.cache":
            return [_of_cache(data.get("payload") or {})]
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

    def _rest(self, state: Mapping[str, Any], seen_before: set[str], own_id: str) -> list[Heard]:
        """What the state holds of this turn's answers and was not shown: the end of a broken stream, or all of it.

        A turn that somebody else has had since then is his.
        """
        rest: list[Heard] = []
        began = not own_id
        for message in messages_of(state):
            message_id, text = str(message.get("id")), text_of(message)
            if message.get("type") == "human":
                if began and message_id not in seen_before:
                    break
                began = began or message_id == own_id
            if message.get("type") != "ai" or message_id in seen_before:
                continue
            shown = self._shown.get(message_id, "")
            if text.startswith(shown) and len(text) > len(shown):
                rest.append(self._show(message_id, text[len(shown) :]))
        return rest

    async def _is_away(self) -> bool:
        try:
            await self.check()
        except ServerUnavailableError:
            return True
        return False

    async def _wait_for_gateway(self) -> None:
        deadline = time.monotonic() + GATEWAY_WAIT_MS / 1000
        while True:
            try:
                return await self.check()
            except ServerUnavailableError:
                if time.monotonic() > deadline:
                    raise
                await anyio.sleep(_POLL_S)

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
        if status >= 500:
            return ServerUnavailableError(
                f"the gateway at {self.url} cannot answer now ({status}): {_told(cause) or 'look at what it prints'}"
            )
        return RunFailedError(f"the gateway at {self.url} refused with status {status}: {_told(cause) or cause}")


@dataclass(frozen=True, slots=True)
class _Command:
    method: str
    params: Mapping[str, Any]


@dataclass(slots=True)
class _Ending:
    """How listening to a run ended."""

    over: bool = False  # the run said so itself
    completed: bool = False  # nothing of it was cut off
    unsent: bool = False  # the command may not have arrived
    failure: str = ""
    resumable: bool = False  # it did not fail of itself, and a run without input goes on from there
    message_id: str = ""  # of the message that is being streamed


def _told(cause: BaseException) -> str:
    """What the gateway itself says of the error in its answer."""
    if not isinstance(cause, httpx.HTTPStatusError):
        return ""
    try:
        return str(cause.response.json()["message"])
    except (ValueError, LookupError, TypeError, httpx.ResponseNotRead):
        return ""  # not our gateway, or something in front of it


def _of_cache(hit: Mapping[str, Any]) -> Notice:
    how = "the same question" if hit.get("kind") == "exact" else f"a like question, distance {hit.get('distance'):.3f}"
    return Notice(f"from the cache: {how} took {hit.get('saved_ms'):,} ms once")
