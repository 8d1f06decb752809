from __future__ import annotations

import redis


def test_a_started_server_answers_at_its_url(redis_client: redis.Redis) -> None:
    assert redis_client.ping()
