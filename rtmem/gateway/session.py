"""What one connection has asked for: a state machine that reads frames, decides, and does no I/O.

    receive(frame)  -> Command | bytes (an error reply)     what to do next, or what to answer
    subscribe()     -> Subscription                         with the seq from which its events must be read
    caught_up()  fall_behind()                              its past has been sent: live events may follow; or not
    wants(event)                                            is this live event to be sent here?

A subscription is in one of two states. *Catching up*: its past is read from the log, live events pass it by (they will
be read too). *Live*: events are sent as they happen. The steps between them are taken without an await by the caller,
so nothing falls between the two. A live one whose client reads too slowly catches up again.

Where a subscription starts
---------------------------
- With `since`: after it.
- Without, on a thread that is running or waits for an answer: at the beginning of that run. The JavaScript SDK always
  re-subscribes without `since` and drops what it has seen by `event_id`; the Python SDK opens its first stream after
  the run has started.
- Without, on an idle thread: at the end. Replaying an old `completed` would end the client's next run before it began.
  Three exceptions, in which the last run is this client's business: it was started on this connection; or this
  connection is a reconnect (its first command id is not 1, so earlier ones went over a socket that broke); or nobody
  has heard how the run ended, and it ended moments ago (started over HTTP, finished before its client subscribed).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from rtmem.errors import MalformedFrameError, NoSuchSubscriptionError, UnknownCommandError, UnsupportedError
from rtmem.gateway import protocol
from rtmem.gateway.protocol import Command, SubscribeParams
from rtmem.records import LogEvent, LogHead

UNHEARD_END_MS: Final = 5_000


@dataclass(eq=False, slots=True)
class Subscription:
    """One filter, and how far its events have been handed over."""

    id: str
    params: SubscribeParams
    start_seq: int
    live: bool = False
    ended: bool = False

    def matches(self, event: LogEvent) -> bool:
        """Does the filter let `event` through? The rules are those of the SDKs' own client-side filter."""
        channels = self.params.channels
        if event.channel not in channels and not (event.channel.startswith("custom:") and "custom" in channels):
            return False
        prefixes = self.params.namespaces
        if not prefixes:
            return True
        depth = self.params.depth
        return any(
            _is_prefix(prefix, event.namespace) and (depth is None or len(event.namespace) - len(prefix) <= depth)
            for prefix in prefixes
        )


def _is_prefix(prefix: tuple[str, ...], namespace: tuple[str, ...]) -> bool:
    """`prefix` may name a segment with or without its `:task-id`."""
    return len(prefix) <= len(namespace) and all(
        asked == found or (":" not in asked and found.partition(":")[0] == asked)
        for asked, found in zip(prefix, namespace, strict=False)
    )


@dataclass(eq=False, slots=True)
class Session:
    """The subscriptions of one connection."""

    subscriptions_max: int
    started_run_id: str | None = None  # the last run that this connection has started
    _first_command_id: int | None = None
    _subscriptions: dict[str, Subscription] = field(default_factory=dict)
    _created: int = 0
    _passed_seq: int = 0

    def receive(self, frame: bytes | str) -> Command | bytes:
        """The command to carry out, or the error to answer. A bad frame never costs the connection."""
        try:
            command = protocol.decode_command(frame)
        except (MalformedFrameError, UnknownCommandError) as exc:
            return protocol.failure(exc.data.get("command_id"), exc)
        if self._first_command_id is None:
            self._first_command_id = command.id
        return command

    def subscribe(self, params: SubscribeParams, head: LogHead, now_ms: int) -> Subscription:
        """A new subscription, catching up from its `start_seq`.

        Args:
            head: of the thread, as this gateway knows it.
            now_ms: monotonic, same clock as head.ended_ms.

        Raises:
            UnsupportedError: this connection has too many.
        """
        if len(self._subscriptions) >= self.subscriptions_max:
            raise UnsupportedError(
                f"this connection has {self.subscriptions_max} subscriptions already: unsubscribe from some, "
                "or ask for several channels at once"
            )
        self._created += 1
        start = params.since if params.since is not None else self._start_without_since(head, now_ms)
        subscription = Subscription(f"sub-{self._created}", params, start)
        self._subscriptions[subscription.id] = subscription
        return subscription

    def _start_without_since(self, head: LogHead, now_ms: int) -> int:
        concerned = (
            head.status != "idle"
            or (head.run_id and head.run_id == self.started_run_id)
            or self._first_command_id not in (None, 1)
            or (head.unheard and now_ms - head.ended_ms <= UNHEARD_END_MS)
        )
        return head.run_after_seq if concerned else head.last_seq

    def unsubscribe(self, subscription_id: str) -> None:
        """Raises NoSuchSubscriptionError."""
        subscription = self._subscriptions.pop(subscription_id, None)
        if subscription is None:
            raise NoSuchSubscriptionError(
                f"no subscription {subscription_id!r} on this connection: use the id that subscription.subscribe gave"
            )
        subscription.ended = True

    def caught_up(self, subscriptions: Iterable[Subscription], seq: int) -> None:
        """Everything up to `seq`, which is now, has been sent for them."""
        for subscription in subscriptions:
            subscription.start_seq = seq
            subscription.live = True

    def fall_behind(self) -> list[Subscription]:
        """The event being offered cannot be sent: the live subscriptions, which have to catch up from before it."""
        fallen = [one for one in self._subscriptions.values() if one.live]
        # The event before, not this one's seq less one: seqs have gaps, and the log is read after a seq it knows.
        seq = max(self._passed_seq, *(one.start_seq for one in fallen))
        for subscription in fallen:
            subscription.start_seq = seq
            subscription.live = False
        return fallen

    def passed(self, event: LogEvent) -> None:
        """`event` has been offered to this connection, and sent if it was wanted."""
        self._passed_seq = event.seq

    def wants(self, event: LogEvent) -> bool:
        """Is `event`, which has just happened, to be sent on this connection? Once, however many filters match."""
        return any(
            one.live and event.seq > one.start_seq and one.matches(event) for one in self._subscriptions.values()
        )

    def follows(self, event: LogEvent) -> bool:
        """Will `event` reach this connection, now or when it has caught up?"""
        return any(event.seq > one.start_seq and one.matches(event) for one in self._subscriptions.values())
