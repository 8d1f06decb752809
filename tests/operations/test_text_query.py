"""Words find their other forms, and no text is anything but words to the server."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, example, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from rtmem.operations.text_query import WORD_CHARACTERS_MAX, TextQuery, query, stem, stemmed, stems
from rtmem.operations.words import STOP_WORDS

QUERIES = int(os.environ.get("RTMEM_FUZZ_QUERIES", "800"))
few = examples(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # no promise is about speed

SCOPE = "@ns:{$ns}"

# Whatever anybody has found to mean something to RediSearch, its parser, Redis or Python.
PIECES = [
    *("will such cat", "a the and", "AND OR NOT", "(", ")", "((", "|", "-", "~", "*", "%", "%%x%%", "@s:", "@ns:{b}"),
    *("@ns:{*}", "{$ns}", "$ns", "$w0", "=>{$weight:1}", "=>[KNN 10 @vector $v]", "[0 +inf]", "inf", "-inf", "nan"),
    *(
        '"',
        "'",
        "\\",
        "\\\\",
        "`",
        "$",
        "&",
        ";",
        ":",
        "//",
        "<b>",
        "]",
        "}",
        "\x00",
        "\n",
        "\r\n",
        "\t",
        "\x1f",
        "\x7f",
    ),
    *("w'*'", 'w"foo"', "c++ (foo)", "1e309", "0x1F", "-1", "+1", "1.5", "2023", "ismissing(@s)", "isempty(@s)", "as"),
    *("PARAMS", "DIALECT 1", "LIMIT 0 100000", "Ёлка", "ё", "й", "за\u0301мок", "İstanbul", "ﬁne", "ẞ", "ǅ", "Ꭰꭰ"),
    *(
        "東京に",
        "한국어",
        "हिन्दी",
        "ไทย",
        "עברית",
        "العربية",
        "🙂",
        "👩‍👩‍👧",
        "\u200b",
        "\ufeff",
        "\u202e",
        "\ud800",
        "\udfff",
    ),
    *("don't", "he’ll", "''''", "a'b'c", "’s", "x" * 500, "й" * 300, "\u0301" * 50, "१२३", "¼", "Ⅷ", "ª"),
]


def hostile(random: Random) -> str:
    """A text of pieces, random characters and plain stop words."""
    parts = [random.choice(PIECES) for _ in range(random.randrange(1, 6))]
    parts += random.sample(sorted(STOP_WORDS), random.randrange(4))
    parts += ["".join(chr(random.randrange(0x110000)) for _ in range(random.randrange(4)))]
    random.shuffle(parts)
    return random.choice(["", " "]).join(parts)


@pytest.fixture
def index(redis_client: redis.Redis) -> Iterator[redis.Redis]:
    """A client of a server with an index as rtmem makes it."""
    schema = ("ns", "TAG", "SEPARATOR", "\x1f", "CASESENSITIVE", "s", "TEXT", "NOSTEM")
    redis_client.execute_command("FT.CREATE", "words", "PREFIX", 1, "w:", "STOPWORDS", 0, "SCHEMA", *schema)
    yield redis_client
    redis_client.execute_command("FT.DROPINDEX", "words")


def put(client: Any, key: str, text: str, scopes: str = "a") -> None:
    client.hset(f"w:{key}", mapping={"ns": scopes, "s": stemmed(text)})


def command(asked: TextQuery, scope: str = "a", rows_max: int = 10) -> list[Any]:
    params = [part for pair in (("ns", scope), *asked.params) for part in pair]
    how = ("SCORER", "BM25STD", "NOCONTENT", "VERBATIM", "LIMIT", 0, rows_max)
    return ["FT.SEARCH", "words", asked.query, *how, "PARAMS", len(params), *params, "DIALECT", 2]


def ids(reply: Any) -> list[str]:
    rows = [row[b"id"] for row in reply[b"results"]] if isinstance(reply, dict) else reply[1:]
    return [row.decode().removeprefix("w:") for row in rows]


def found(client: redis.Redis, text: str) -> list[str]:
    asked = query(text, SCOPE)
    assert asked is not None
    return ids(client.execute_command(*command(asked)))


def test_whatever_is_stored_is_found_by_its_own_words_and_no_text_is_an_error(index: redis.Redis) -> None:
    seed = int.from_bytes(os.urandom(4))
    random = Random(seed)
    texts = PIECES + [hostile(random) for _ in range(QUERIES)]
    pipeline = index.pipeline(transaction=False)
    for number, text in enumerate(texts):
        # In the scope of all and in one of its own, in which it must be the one that is found.
        put(pipeline, str(number), text, f"a\x1fonly {number}")
    pipeline.execute()
    asked = [(str(number), query(text, SCOPE)) for number, text in enumerate(texts)]
    worded = [(number, one) for number, one in asked if one is not None]
    assert len(worded) > len(texts) / 2
    for number, one in worded:
        pipeline.execute_command(*command(one))
        pipeline.execute_command(*command(one, scope=f"only {number}"))
    replies = pipeline.execute(raise_on_error=False)
    for at, (number, one) in enumerate(worded):
        ranked, own = replies[2 * at : 2 * at + 2]
        told = f"seed {seed}: {texts[int(number)]!r} asked as {one}"
        assert not isinstance(ranked, Exception), told
        assert ids(ranked), told
        assert ids(own) == [number], told
    assert index.ping()


@few
@given(st.text(max_size=200))
def test_no_character_of_a_text_stands_in_the_query(text: str) -> None:
    asked = query(text, SCOPE)
    if asked is None:
        assert stemmed(text) == ""
        return
    count = len(asked.params)
    group = "|".join(f"$w{number}" for number in range(count))
    optional = " ".join(f"~@s:$w{number}" for number in range(count)) if count > 1 else "~@s:$w0 ~@s:$w0"
    assert asked.query == f"({SCOPE}) @s:({group}) ({optional})=>{{$weight:1000000}}"
    assert set(asked.words) <= set(stemmed(text).split())


@few
@given(st.text(max_size=200))
def test_a_text_of_the_server_is_only_words_and_spaces(text: str) -> None:
    words = stemmed(text).split(" ")
    assert all(len(word) <= 3 * WORD_CHARACTERS_MAX for word in words)
    assert not set(stemmed(text)) & set(",.<>{}[]\"':;!@#$%^&*()-+=~|\\/`?\x00\n\r\t")


@pytest.mark.parametrize(
    "forms",
    [
        "adopt adopts adopted adopting",
        "go goes went gone going",
        "buy buys bought",
        "child children child's children's",
        "agency agencies",
        "swim swam swum swimming",
        "café cafe CAFÉ Cafe\u0301",
        "собака собаки собаку собакой собаками",
        "переехал переехала переехать переедет",
        "любит любил любила люблю",
        "Москва Москве Москву Москвой",
        "ребёнок ребенок дети детей детям",
        "друг друга друзья друзей",
        "год года лет",
        "ёлка елка Ёлки ёлку",
        "за\u0301мок замок",
        "йод ЙОД и\u0306од",
        "ﬁne fine ＦＩＮＥ",
    ],
)
def test_forms_of_one_word_have_one_stem(forms: str) -> None:
    assert len({stemmed(form) for form in forms.split()}) == 1, [stemmed(form) for form in forms.split()]


@pytest.mark.parametrize("words", ["Rome Oslo", "кот код", "война вино", "мойка майка", "1.5 15", "2023 2024"])
def test_different_words_stay_different(words: str) -> None:
    one, other = words.split()
    assert stemmed(one) != stemmed(other)


def test_a_russian_question_finds_other_forms_at_the_server(index: redis.Redis) -> None:
    put(index, "moved", "Мой брат переехал в Москву в прошлом году")
    put(index, "dog", "У Анны две собаки")
    put(index, "english", "She went camping with the children")
    assert found(index, "Когда братья переедут?") == ["moved"]
    assert found(index, "как зовут собаку") == ["dog"]
    assert found(index, "Did a child go to the camp?") == ["english"]


def test_a_document_with_more_of_the_words_comes_first(index: redis.Redis) -> None:
    put(index, "one", "the charity")
    put(index, "three", "a long story about how she ran in the race for charity and was glad that it rained")
    put(index, "two", "the charity race, and what happened then with all the others who were there")
    for number in range(20):
        put(index, f"other-{number}", f"nothing of interest {number}")
    assert found(index, "When did she run a charity race?") == ["three", "two", "one"]


@pytest.mark.parametrize("question", ["red", "red boats", "red boats and green houses"])
def test_the_score_is_the_sum_of_the_words_and_the_scope_adds_nothing(index: redis.Redis, question: str) -> None:
    texts = ["a red boat", "red red houses " * 5, "green boats " * 9 + "red", "blue", "house boat", "nothing"]
    for number in range(300):
        put(index, f"other-{number}", f"red boats of others, {number} " * (number % 4), "others")
    for number, text in enumerate(texts):
        put(index, str(number), text, "a")
    asked = query(question, SCOPE)
    assert asked is not None
    args = command(asked)
    args.remove("NOCONTENT")
    reply = index.execute_command(*args, "WITHSCORES")
    rows = (
        [(row[b"id"], float(row[b"score"])) for row in reply[b"results"]]
        if isinstance(reply, dict)
        else list(zip(reply[1::3], map(float, reply[2::3]), strict=True))
    )
    everything = [stemmed(index.hget(key, "s").decode()).split() for key in index.scan_iter(match="w:*")]
    for key, score in rows:
        words = index.hget(key, "s").decode().split()
        assert asked.bm25(score) == pytest.approx(bm25(asked.words, words, everything), rel=1e-3)
    assert [key for key, _ in rows] == sorted(
        (key for key, _ in rows),
        key=lambda key: -bm25(asked.words, index.hget(key, "s").decode().split(), everything),
    )


def bm25(asked: tuple[str, ...], words: list[str], everything: list[list[str]]) -> float:
    """As RediSearch has it: k1 1.2, b 0.5."""
    mean = sum(map(len, everything)) / len(everything)
    total = 0.0
    for word in asked:
        having, count = sum(word in each for each in everything), words.count(word)
        rarity = math.log(1 + (len(everything) - having + 0.5) / (having + 0.5))
        total += rarity * count * 2.2 / (count + 1.2 * (0.5 + 0.5 * len(words) / mean))
    return total


def test_threads_that_stem_at_once_get_the_stems_that_one_gets() -> None:
    words = [f"{'abdefg'[number % 6] * (number % 9 + 1)}ingnesses" for number in range(300)]
    words += [f"{'бвгдж'[number % 5] * (number % 9 + 1)}ованность" for number in range(300)]
    alone = [stem.__wrapped__(word) for word in words]  # what is remembered would hide what is read
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            beside = list(threads.map(lambda _: [stem.__wrapped__(word) for word in words], range(8)))
    finally:
        sys.setswitchinterval(interval_s)
    assert all(found == alone for found in beside)


def test_words_that_say_nothing_are_asked_for_only_if_there_are_no_others() -> None:
    assert stems("What did you do in May with Will?", 32) == ["may", "will"]
    assert stems("Who am I?", 32) == ["who", "am", "i"]
    assert stems("I'll go where he'll go", 32) == ["go"]
    assert stems("hell and shell", 32) == ["hell", "shell"]
    assert stems("Что ты о нём знаешь?", 32) == ["знаеш"]


@pytest.mark.parametrize("text", ["", " ", "?!", "🙂", "\x00", "\ud800", "\u0301"])
def test_a_text_without_a_word_is_no_query(text: str) -> None:
    assert stemmed(text) == ""
    assert query(text, SCOPE) is None


def test_a_long_message_is_asked_for_by_its_end() -> None:
    text = " ".join(f"word{number}" for number in range(500)) + " and where is Oslo?"
    assert stems(text, 3) == ["word498", "word499", "oslo"]
    asked = query(text, SCOPE, words_max=3)
    assert asked is not None
    assert asked.words == ("word498", "word499", "oslo")


def test_a_query_without_a_scope_is_refused() -> None:
    with pytest.raises(ValueError, match="everybody"):
        query("anything", "")


def test_a_word_of_a_megabyte_costs_no_more_than_its_beginning() -> None:
    assert stemmed("ab" * 500_000) == stemmed("ab" * WORD_CHARACTERS_MAX)


@few
@example("it`s")
@given(st.text(st.characters(max_codepoint=127), max_size=120))
def test_an_english_text_has_the_same_words_beside_another_language(text: str) -> None:
    assert stemmed(f"{text} я") == f"{stemmed(text)} я".lstrip()
