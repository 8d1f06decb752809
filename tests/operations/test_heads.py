from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

from rtmem.operations.heads import Channel, Head, Heads
from rtmem.operations.sharing import ListImage


def head(member: bytes, size: int = 100) -> Head:
    return Head(member, b"nonce", body=b"x" * size)


def test_a_head_is_found_until_a_newer_one_replaces_it() -> None:
    heads = Heads(10_000)
    assert heads.get(("t", "")) is None
    heads.remember(("t", ""), head(b"2\0"))
    heads.remember(("t", ""), head(b"1\0"))
    found = heads.get(("t", ""))
    assert found is not None
    assert found.member == b"2\0"
    heads.remember(("t", ""), head(b"3\0"))
    assert heads.get(("t", "")) is not found
    assert heads.get(("t", "ns")) is None


def test_the_least_recently_used_leaves_first() -> None:
    heads = Heads(350)
    for name in "abc":
        heads.remember((name, ""), head(b"1\0"))
    heads.get(("a", ""))
    heads.remember(("d", ""), head(b"1\0"))
    assert [name for name in "abcd" if heads.get((name, ""))] == ["a", "c", "d"]


def test_a_head_larger_than_the_bound_is_not_kept_and_drops_its_outdated_one() -> None:
    heads = Heads(350)
    heads.remember(("a", ""), head(b"1\0"))
    heads.remember(("b", ""), head(b"1\0"))
    heads.remember(("a", ""), head(b"2\0", 1_000))
    assert heads.get(("a", "")) is None
    assert heads.get(("b", "")) is not None
    assert Heads(0).get(("a", "")) is None


def test_forgetting_a_thread_forgets_all_its_namespaces() -> None:
    heads = Heads(10_000)
    for key in (("a", ""), ("a", "ns"), ("b", "")):
        heads.remember(key, head(b"1\0"))
    heads.forget_thread("a")
    assert [heads.get(key) for key in (("a", ""), ("a", "ns"))] == [None, None]
    assert heads.get(("b", "")) is not None


def test_size_counts_pieces_with_the_objects_they_are_decoded_to() -> None:
    image = ListImage([b"p" * 16] * 10, [10], [1], [b"s" * 1_000], [None])
    large = Head(
        b"1\0", b"n", channels={"messages": Channel(b"v", b"l", image=image), "n": Channel(b"v", b"i", b"12345")}
    )
    assert 6_000 < large.size_bytes() < 8_000


def test_threads_may_share_it_and_the_sum_stays_right() -> None:
    heads = Heads(5_000)

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for step in range(300):
            key = (f"t{rng.randrange(40)}", rng.choice(["", "ns"]))
            action = rng.randrange(3)
            if action == 0:
                heads.remember(key, head(b"%d\0" % step, rng.randrange(900)))
            elif action == 1:
                heads.get(key)
            else:
                heads.forget_thread(key[0])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert heads._bytes == sum(size for _, size in heads._heads.values()) <= 5_000
