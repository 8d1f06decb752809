"""Prices are measured on real servers of each profile, against the one that keeps no log."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from loadtest.crash.lab import NoBar
from loadtest.crash.prices import (
    BASELINE,
    OFFERS,
    NoDiskError,
    Offer,
    compare,
    cost,
    disk_folder,
    require_disk,
    server_of,
)

pytestmark = pytest.mark.anyio

NOWHERE = pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="NOT COVERED: no tmpfs at /dev/shm")


async def test_an_offer_is_priced_against_the_server_without_a_log() -> None:
    durable = Offer("durable")
    prices = await compare(
        disk_folder(), NoBar(), seed=1, offers=[BASELINE, durable], states=["2 KB"], crowds=[2], rounds=1, turn_s=0.1
    )
    assert prices.file_system
    assert prices.redis_version.startswith("8.")
    (experiment,) = prices.experiments
    assert [(row.contender, row.errors) for row in experiment.rows] == [("ephemeral", 0), ("durable", 0)]
    same = cost(prices, "ephemeral", "2 KB", 2)
    assert same is not None
    assert (same.throughput_ratio, same.p99_ratio) == (1, 1)
    found = cost(prices, "durable", "2 KB", 2)
    assert found is not None
    assert found.throughput_ratio > 0
    assert cost(prices, "durable", "2 KB", 32) is None
    assert cost(prices, "relaxed", "2 KB", 2) is None


@pytest.mark.parametrize("offer", OFFERS, ids=lambda offer: offer.name)
def test_each_server_has_the_log_and_the_replica_that_its_profile_promises(offer: Offer) -> None:
    policy = {"ephemeral": None, "relaxed": "no", "durable": "always"}.get(offer.profile, "everysec")
    with server_of(offer.profile, disk_folder()) as server, redis.Redis.from_url(server.url) as client:
        data_dir = server.data_dir
        assert client.config_get("appendonly")["appendonly"] == ("yes" if policy else "no")
        if policy:
            assert client.config_get("appendfsync")["appendfsync"] == policy
        replicas = int(offer.profile == "replicated")
        assert client.info("replication")["connected_slaves"] == replicas
        assert client.config_get("min-replicas-to-write")["min-replicas-to-write"] == str(replicas)
        assert client.set("k", "v")
    assert not data_dir.exists()


@NOWHERE
def test_a_folder_in_memory_is_refused_because_fsync_costs_nothing_there() -> None:
    with pytest.raises(NoDiskError, match="costs nothing"):
        require_disk(Path("/dev/shm"))
