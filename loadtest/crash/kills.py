"""kill -9 of Redis and of the gateway: what the page cache keeps, the one thing it does not, and turns that are cut.

A healthy disk keeps all that Redis has written, whatever the profile. While an fsync is under way Redis keeps back the
write itself for up to 2 s, though it answers; that goes with the process, unless its ack was "fsync".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import msgspec
from langgraph_sdk import get_client
from langgraph_sdk.stream.transport import ProtocolWebSocketTransport

from loadtest.crash.checking import check
from loadtest.crash.faults import Disk, build
from loadtest.crash.fleet import Crew, run_fleet, undisturbed
from loadtest.crash.gateway import ASSISTANT, PRINCIPAL, TOKEN, GatewayProcess, end_of_run, gateway, talkers
from loadtest.crash.lab import Lab, Scenario
from loadtest.crash.ledger import Acked, Ledger, Thread, window_ms
from loadtest.crash.outcome import Outcome, Verdict
from loadtest.crash.persevering import becomes
from loadtest.crash.victim import Victim, restart
from rtmem.settings import Ack

STALL_MS: Final = 10_000  # much longer than Redis keeps a write back
_TOKEN_INTERVAL_MS: Final = 250  # the answer that is cut has forty words: it lasts ten seconds
_PATIENCE_S: Final = 60.0


# Redis ---------------------------------------------------------------------------------------------------------------


async def kill_redis(lab: Lab, number: int) -> Outcome:
    """kill -9 of Redis on a healthy disk, while a fleet writes and talks; only Redis' own memory is lost."""
    seed = lab.label("kill -9 of redis", number)
    victim = lab.serve("balanced", lab.folder() / "data")

    async def kill(ledger: Ledger) -> float:
        turns = lab.chance("kill -9 of redis", number).randint(1, 8)
        await becomes(lambda: sum(one.verb == "turn" for one in ledger.acked) >= turns, "turns are told")
        victim.kill()
        return float("inf")

    with gateway(victim.url, "memory") as process:
        others = talkers(process.url, "memory", seed=seed, count=2)
        ledger, _ = await run_fleet(victim.url, "memory", seed=seed, crew=Crew(), crash=kill, others=others)
    return await _after(victim, ledger.acked, Outcome(scenario="kill -9 of redis", profile="balanced", seed=seed))


async def kill_redis_while_its_disk_stalls(lab: Lab, ack: Ack, number: int) -> Outcome:
    """The same in the middle of an fsync that does not end, with something in the buffer that is to be written."""
    seed = lab.label("kill -9 of redis, stalled disk", ack, number)
    folder = lab.folder()
    disk = Disk(build(folder), folder, folder / "data")
    victim = lab.serve("balanced", folder / "data", disk.environment)

    async def kill(ledger: Ledger) -> float:
        await ledger.begun()
        disk.order(delay_ms=STALL_MS)
        with victim.client() as client:
            await becomes(partial(_keeps_writes_back, client, ack), "Redis keeps writes back")
            # Two seconds after this moment it writes all the same: no time to lose.
            victim.kill()
        return time.monotonic()

    ledger, moment_s = await run_fleet(victim.url, ack, seed=seed, crew=Crew(), crash=kill)
    known = Outcome(scenario="kill -9 of redis, stalled disk", profile="balanced", ack=ack, volume="shim", seed=seed)
    return await _after(victim, ledger.acked, known, moment_s)


def _keeps_writes_back(client: Any, ack: Ack) -> bool:
    found = client.info("persistence")
    # Who waits for an fsync writes nothing meanwhile, so there may be nothing to keep back.
    return bool(found["aof_pending_bio_fsync"]) and (ack != "memory" or int(found["aof_buffer_length"]) > 0)


async def _after(victim: Victim, acked: list[Acked], known: Outcome, moment_s: float = 0.0) -> Outcome:
    back = await anyio.to_thread.run_sync(restart, "balanced", victim.data_dir)
    try:
        checked = await check(back.server.url, acked)
    finally:
        back.release()
    return msgspec.structs.replace(
        known,
        acked=len(acked),
        lost=len(checked.lost),
        turns=sum(one.verb == "turn" for one in acked),
        turns_lost=sum(one.verb == "turn" for one in checked.lost),
        window_ms=round(window_ms(checked.lost, moment_s), 1) if moment_s else 0.0,
        start=back.start,
        recovery_ms=round((checked.first_read_s - back.began_s) * 1000, 1),
        faults=tuple(checked.faults),
    )


# The gateway ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Talk:
    """One client of the official SDK: some whole turns, and one that is cut."""

    thread: Thread
    turns: int
    ready: bool = False  # the whole turns are done
    cut: bool = False  # the beginning of an answer has arrived

    def said(self, number: int) -> dict[str, Any]:
        text = f"what is {number} + {number}?" if number <= self.turns else "tell me a long story"
        return {"messages": [{"role": "user", "content": text}]}


async def kill_gateway(lab: Lab, number: int) -> Outcome:
    """kill -9 of the gateway while each client has the beginning of an answer; then another gateway, same address."""
    seed = lab.label("kill -9 of the gateway", number)
    chance = lab.chance("kill -9 of the gateway", number)
    victim = lab.serve("balanced", lab.folder() / "data")
    talks = [_Talk(Thread(f"talk-{n}", seed, principal=PRINCIPAL, turns=True), chance.randint(1, 2)) for n in range(4)]
    ledger = Ledger()
    process = GatewayProcess(victim.url, "memory", token_interval_ms=_TOKEN_INTERVAL_MS)
    go = anyio.Event()
    try:
        async with anyio.create_task_group() as clients:
            for talk in talks:
                clients.start_soon(_talk, talk, process.url, ledger, go)
            await becomes(lambda: all(talk.ready for talk in talks), "all have had their whole turns")
            go.set()
            await becomes(lambda: all(talk.cut for talk in talks), "all are in the middle of an answer")
            process.kill()
            clients.cancel_scope.cancel()
        began_s = time.monotonic()
        port = urlsplit(process.url).port or 0
        process = GatewayProcess(victim.url, "memory", port=port)
        wrong = [problem for talk in talks if (problem := await _goes_on(talk, process.url))]
        recovery_ms = (time.monotonic() - began_s) * 1000
    finally:
        process.kill()
    checked = await check(victim.url, ledger.acked)
    victim.kill()
    return Outcome(
        scenario="kill -9 of the gateway",
        profile="balanced",
        seed=seed,
        acked=len(ledger.acked),
        lost=len(checked.lost),
        turns=len(ledger.acked),
        turns_lost=len(checked.lost),
        recovery_ms=round(recovery_ms, 1),
        faults=(*wrong, *checked.faults),
        note=f"{len(talks)} turns cut, each told as cut, resumed and ended" if not wrong else "",
    )


async def _talk(talk: _Talk, url: str, ledger: Ledger, go: anyio.Event) -> None:
    async with undisturbed(get_client(url=url, api_key=TOKEN)) as client:
        for number in range(1, talk.turns + 2):
            if number > talk.turns:
                talk.ready = True
                await go.wait()
            stream = client.threads.stream(talk.thread.name, assistant_id=ASSISTANT, transport="websocket")
            async with undisturbed(stream) as conversation:
                channels = ["lifecycle"] if number <= talk.turns else ["messages"]
                events = conversation.subscribe(channels, namespaces=[[]], depth=0)
                await conversation.run.start(input=talk.said(number))
                if number <= talk.turns:
                    end = await end_of_run(events)
                    ledger.add("turn", talk.thread, end["checkpoint"]["id"], number)
                    continue
                async for event in events:
                    if event["params"]["data"].get("event") == "content-block-delta":
                        talk.cut = True
                        await anyio.sleep_forever()


async def _goes_on(talk: _Talk, url: str) -> str:
    """What is wrong with a thread whose gateway was killed in the middle of a turn; empty if nothing is."""
    name = talk.thread.name
    async with undisturbed(get_client(url=url, api_key=TOKEN)) as client:
        headers = {"x-api-key": TOKEN}
        told = await _last_end(ProtocolWebSocketTransport(client=client.http.client, thread_id=name, headers=headers))
        if told.get("event") != "failed" or not told.get("resumable") or "cut off" not in str(told.get("error")):
            return f"{name}: the cut turn is told as {told}"
        stream = client.threads.stream(name, assistant_id=ASSISTANT, transport="websocket")
        async with undisturbed(stream) as conversation:
            events = conversation.subscribe(["lifecycle"], namespaces=[[]], depth=0)
            await conversation.run.start(input=None)
            end = await end_of_run(events)
        if end.get("event") != "completed":
            return f"{name}: the cut turn does not go on: {end}"
        values: Any = (await client.threads.get_state(name))["values"]
        kinds = [message["type"] for message in values["messages"]]
        if kinds.count("human") != talk.turns + 1 or kinds[-1] != "ai":
            return f"{name}: after {talk.turns} turns and a resumed one its messages are {kinds}"
    return ""


async def _last_end(transport: ProtocolWebSocketTransport) -> dict[str, Any]:
    """How the last run of a thread ended, by its log."""
    stream = transport.open_event_stream({"channels": ["lifecycle"], "since": 0})
    end: dict[str, Any] = {}
    try:
        with anyio.move_on_after(_PATIENCE_S):
            async for event in stream.events:
                if event["type"] == "event" and not event["params"].get("namespace"):
                    data = event["params"]["data"]
                    end = data if data["event"] in ("completed", "failed", "interrupted") else {}
                    if data["event"] == "failed":
                        break
    finally:
        await stream.close()
    return end


# All of them ---------------------------------------------------------------------------------------------------------


async def run(lab: Lab) -> list[Outcome]:
    """Kills of each kind, a tenth of the cuts."""
    kills = max(1, lab.cuts // 10)
    plan: list[Callable[[int], Coroutine[Any, Any, Outcome]]] = [
        partial(kill_redis, lab),
        partial(kill_redis_while_its_disk_stalls, lab, "fsync"),
        partial(kill_redis_while_its_disk_stalls, lab, "memory"),
        partial(kill_gateway, lab),
    ]
    lab.bar.announce(len(plan) * kills)
    outcomes = []
    for kind in plan:
        with lab.covering():
            for number in range(kills):
                lab.bar.describe("kill -9")
                outcomes.append(await kind(number))
                lab.bar.step()
    return outcomes


def judge(outcomes: list[Outcome]) -> list[Verdict]:
    """What was promised of kills."""
    control = [one for one in outcomes if "stalled" in one.scenario and one.ack == "memory"]
    promised = [one for one in outcomes if one not in control]
    lost, acked = sum(one.lost for one in promised), sum(one.acked for one in promised)
    bites = sum(one.lost > 0 for one in control)
    return [
        Verdict(
            what="kill -9 of Redis and of the gateway",
            promised='0 lost on a healthy disk, and with ack="fsync" on one that stalls; a cut turn is told as cut',
            found=f"{lost} of {acked:,} lost in {len(promised)} kills",
            kept=lost == 0 and acked > 0,
        ),
        Verdict(
            what="control: kill -9 with a stalled fsync, ack memory",
            promised="has to lose",
            found=f"lost in {bites} of {len(control)}, {sum(one.lost for one in control):,} acknowledged writes",
            kept=bites > 0 or not control,
        ),
    ]


SCENARIOS: Final = [
    Scenario(name="kills", what="kill -9 of Redis and of the gateway in mid-turn", run=run, judge=judge)
]
