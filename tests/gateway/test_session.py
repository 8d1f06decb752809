"""The state machine of a connection, without a connection."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rtmem.errors import NoSuchSubscriptionError, UnsupportedError
from rtmem.gateway.protocol import Command, SubscribeParams
from rtmem.gateway.session import UNHEARD_END_MS, Session, Subscription
from rtmem.records import LogEvent, LogHead

IDLE = LogHead(last_seq=100, run_id="run", run_after_seq=40, status="idle")


def event(seq: int, channel: str = "values", *namespace: str) -> LogEvent:
    return LogEvent(seq, channel, namespace, b"{}")


def filtered(**params: Any) -> Subscription:
    return Subscription("s", msgspec.convert({"channels": ["values"], **params}, SubscribeParams), 0)


def subscribed(session: Session, head: LogHead = IDLE, *, since: int | None = None, now_ms: int = 0) -> Subscription:
    return session.subscribe(SubscribeParams(("values",), since=since), head, now_ms)


@pytest.mark.parametrize(
    ("params", "channel", "namespace", "passes"),
    [
        ({}, "values", (), True),
        ({}, "messages", (), False),
        ({}, "values", ("child:1",), True),
        ({"channels": ["custom"]}, "custom:progress", (), True),
        ({"channels": ["custom:progress"]}, "custom:progress", (), True),
        ({"channels": ["custom:progress"]}, "custom:other", (), False),
        ({"channels": ["custom:progress"]}, "custom", (), False),
        ({"namespaces": [["child"]]}, "values", (), False),
        ({"namespaces": [["child"]]}, "values", ("child:1",), True),
        ({"namespaces": [["child:1"]]}, "values", ("child:2",), False),
        ({"namespaces": [["child"]]}, "values", ("children:1",), False),
        ({"namespaces": [["a"], ["b"]]}, "values", ("b:1", "c:2"), True),
        ({"namespaces": [[]], "depth": 0}, "values", (), True),
        ({"namespaces": [[]], "depth": 0}, "values", ("child:1",), False),
        ({"namespaces": [["child"]], "depth": 1}, "values", ("child:1", "x:1"), True),
        ({"namespaces": [["child"]], "depth": 1}, "values", ("child:1", "x:1", "y:1"), False),
    ],
)
def test_a_filter_lets_through_what_the_sdks_let_through(
    params: dict[str, Any], channel: str, namespace: tuple[str, ...], passes: bool
) -> None:
    from langgraph_sdk.stream.subscription import matches_subscription

    assert filtered(**params).matches(event(1, channel, *namespace)) == passes
    method, _, name = channel.partition(":")
    sdk_event: Any = {
        "method": method,
        "params": {"namespace": list(namespace), "data": {"name": name} if name else {}},
    }
    assert matches_subscription(sdk_event, {"channels": ["values"], **params}) == passes  # type: ignore[typeddict-item]


def test_with_since_it_starts_after_it() -> None:
    assert subscribed(Session(8), since=7).start_seq == 7
    assert subscribed(Session(8), since=0).start_seq == 0


@pytest.mark.parametrize(("status", "start"), [("idle", 100), ("running", 40), ("interrupted", 40)])
def test_without_since_it_starts_with_the_current_run(status: Any, start: int) -> None:
    head = msgspec.structs.replace(IDLE, status=status)
    assert subscribed(Session(8), head).start_seq == start


def test_without_since_it_replays_the_run_that_this_connection_started() -> None:
    assert subscribed(Session(8, started_run_id="run")).start_seq == 40
    assert subscribed(Session(8, started_run_id="another")).start_seq == 100
    assert subscribed(Session(8), LogHead(0, "", 0, "idle")).start_seq == 0


def test_without_since_a_reconnected_client_replays_the_last_run() -> None:
    for first_command_id, start in ((1, 100), (5, 40)):
        session = Session(8)
        frame = b'{"id": %d, "method": "subscription.subscribe", "params": {"channels": ["values"]}}' % first_command_id
        command = session.receive(frame)
        assert isinstance(command, Command)
        assert isinstance(command.params, SubscribeParams)
        assert session.subscribe(command.params, IDLE, 0).start_seq == start


def test_without_since_a_run_whose_end_nobody_heard_is_replayed_for_a_moment() -> None:
    unheard = msgspec.structs.replace(IDLE, unheard=True, ended_ms=1_000)
    assert subscribed(Session(8), unheard, now_ms=1_000 + UNHEARD_END_MS).start_seq == 40
    assert subscribed(Session(8), unheard, now_ms=1_001 + UNHEARD_END_MS).start_seq == 100


def test_live_events_are_wanted_once_it_has_caught_up_and_not_before() -> None:
    session = Session(8)
    subscription = subscribed(session)
    assert not session.wants(event(101))
    assert session.follows(event(101))
    session.caught_up([subscription], 105)
    assert not session.wants(event(105))
    assert session.wants(event(106))
    assert not session.wants(event(106, "messages"))
    session.unsubscribe(subscription.id)
    assert subscription.ended
    assert not session.wants(event(107))


def test_who_falls_behind_catches_up_from_the_event_before() -> None:
    session = Session(8)
    first, second, catching_up = (subscribed(session) for _ in range(3))
    session.caught_up([first], 100)
    assert session.fall_behind() == [first]
    assert first.start_seq == 100
    session.caught_up([first], 110)
    session.passed(event(120))
    session.caught_up([second], 120)
    # The next seq may be any number above; 120 is the last one that the log knows.
    assert session.fall_behind() == [first, second]
    assert (first.start_seq, second.start_seq, catching_up.live) == (120, 120, False)


def test_subscriptions_are_bounded_and_named() -> None:
    session = Session(2)
    names = {subscribed(session).id, subscribed(session).id}
    assert len(names) == 2
    with pytest.raises(UnsupportedError, match="2 subscriptions"):
        subscribed(session)
    session.unsubscribe(names.pop())
    assert subscribed(session).id not in names
    with pytest.raises(NoSuchSubscriptionError):
        session.unsubscribe("sub-99")


def test_a_bad_frame_is_answered_with_its_id() -> None:
    answer = Session(8).receive(b'{"id": 4, "method": "no.such"}')
    assert isinstance(answer, bytes)
    assert msgspec.json.decode(answer)["id"] == 4
