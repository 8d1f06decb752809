"""Keys and scope tags of long-term memory: as they lie in servers, whatever is remembered of them here."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from rtmem.keys import Keys, escape, place_of, scope_tag, scope_tags

texts = st.text(max_size=8) | st.sampled_from(["", "/", "a/b", "%2F", "é", "\ud800", "x" * 600])


@given(principal=texts, namespace=st.lists(texts, max_size=4), key=texts)
def test_an_item_keeps_its_key_and_its_tags(principal: str, namespace: list[str], key: str) -> None:
    labels = [escape(principal), *map(escape, namespace)]
    path = "/".join((str(len(namespace)), *labels, escape(key)))
    for _ in range(2):  # the second time it is remembered
        assert Keys("m").memory(principal, namespace, key) == f"m:m:{{{sha256(path.encode()).hexdigest()[:32]}}}"
        tags = [sha256("/".join(labels[:end]).encode()).hexdigest()[:32] for end in range(1, len(labels) + 1)]
        assert list(scope_tags(principal, namespace)) == tags
        assert scope_tag(principal, namespace) == tags[-1]
        assert place_of(principal, tuple(namespace)).path == "/".join(labels)
