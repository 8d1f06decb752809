"""What a user's words ask for, by rules, in English and in Russian. Pure: text in, phrases out.

The memory step and the rules model both read these. A rule must begin its clause: "Bob says I like tea" is about
Bob, and storing too little is repaired by saying it again, while a wrong fact is believed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Language: TypeAlias = Literal["en", "ru"]
Attribute: TypeAlias = Literal["name", "home", "work", "likes", "notes"]

ATTRIBUTES: Final[tuple[Attribute, ...]] = ("name", "home", "work", "likes", "notes")
MANY_VALUED: Final = frozenset({"likes", "notes"})

TEXT_CHARS_MAX: Final = 4_000  # what is read of a longer message
VALUE_CHARS_MAX: Final = 120


@dataclass(frozen=True, slots=True)
class Remember:
    attribute: Attribute
    value: str


@dataclass(frozen=True, slots=True)
class Forget:
    attribute: Attribute | None  # None: everything


@dataclass(frozen=True, slots=True)
class Recall:
    attribute: Attribute | None  # None: everything


@dataclass(frozen=True, slots=True)
class Calculate:
    expression: str


@dataclass(frozen=True, slots=True)
class AskTime:
    zone: str


@dataclass(frozen=True, slots=True)
class Send:
    recipient: str
    text: str


@dataclass(frozen=True, slots=True)
class Greet:
    pass


@dataclass(frozen=True, slots=True)
class Thank:
    pass


Phrase: TypeAlias = Remember | Forget | Recall | Calculate | AskTime | Send | Greet | Thank


def understand(text: str) -> tuple[Phrase, ...]:
    """The phrases of `text` that a rule knows, in order. Empty when none does."""
    found: list[Phrase] = []
    # A message to somebody else is not about the user: nothing inside it is read any further.
    text = text[:TEXT_CHARS_MAX]
    if send := _send(text.strip()):
        return (send,)
    pieces = _SENTENCE_END.split(text)
    for sentence, end in zip(pieces[::2], [*pieces[1::2], ""], strict=True):
        rest = sentence.strip()
        if greeting := _GREETING.match(rest):
            found.append(Greet())
            rest = rest[greeting.end() :]
        for part in _NEXT_CLAUSE.split(rest):
            clause = _FILLER.sub("", part.strip(_EDGES))
            phrase = _read(clause) if clause else None
            # "Remember our holidays?" and "I like tea?" tell nothing.
            if phrase and not ("?" in end and isinstance(phrase, Remember)):
                found.append(phrase)
    return tuple(dict.fromkeys(found))


def language_of(text: str) -> Language:
    """The script decides: Cyrillic letters are answered in Russian."""
    return "ru" if re.search("[а-яё]", text[:TEXT_CHARS_MAX], re.IGNORECASE) else "en"


_FLAGS: Final = re.IGNORECASE
_EDGES: Final = " \t\r,;:.!?…\"'«»“”"
_SENTENCE_END: Final = re.compile(r"([.!?…]+(?=\s|$)|[\n;]+)")
_NEXT_CLAUSE: Final = re.compile(
    r",?\s+(?:and|but)\s+(?=(?:i|i'm|my|please|what|forget)\b)|,\s*(?=(?:i|i'm|my)\s)"
    r"|,?\s+(?:и|а|но)\s+(?=(?:я|мне|меня|мо[йяёеи]|живу|люблю|работаю|забудь|сколько|как)\b)|,\s*(?=(?:я|мне|меня)\s)",
    _FLAGS,
)
_FILLER: Final = re.compile(
    r"^(?:(?:and|but|so|well|ok|okay|please|also|actually|by the way|could you|can you|will you"
    r"|ну|и|а|но|так|хорошо|ладно|пожалуйста|кстати|также)\b[\s,]*)+",
    _FLAGS,
)
_GREETING: Final = re.compile(
    r"^(?:hello|hi|hey|good (?:morning|day|evening)|привет|здравствуй(?:те)?|добр(?:ый день|ый вечер|ое утро))\b"
    r"(?:\s+there)?[\s,!]*",
    _FLAGS,
)


def _rules(*rules: tuple[Attribute, str]) -> tuple[tuple[Attribute, re.Pattern[str]], ...]:
    return tuple((attribute, re.compile(pattern, _FLAGS)) for attribute, pattern in rules)


_REMEMBER: Final = _rules(
    ("name", r"(?:my name is|my name's|i am called|i'm called)\s+(?P<value>.+)"),
    # "Call me later" asks for a call.
    ("name", r"call me\s+(?P<value>(?!(?:later|back|again|soon|today|tonight|tomorrow|now|at|in|on|if|after)\b).+)"),
    ("name", r"(?:меня зовут|мо[её] имя(?:\s*[-—:])?|зови(?:те)? меня)\s+(?P<value>(?!(?:потом|позже|завтра)\b).+)"),
    ("home", r"(?:i live|i'm living|i am living|i moved|i've moved) (?:in|to)\s+(?P<value>.+)"),
    ("home", r"я (?:сейчас )?(?:живу|переехала?) во?\s+(?P<value>.+)"),
    ("work", r"i work as (?:an? )?(?P<value>.+)"),
    ("work", r"я работаю\s+(?P<value>(?!в\b|на\b).+)"),
    ("likes", r"i (?:really |also |do )?(?:like|love|enjoy)\s+(?P<value>.+)"),
    ("likes", r"(?:я (?:очень |ещё |еще |также )?(?:люблю|обожаю)|мне (?:очень )?нравится)\s+(?P<value>.+)"),
    ("notes", r"(?:remember|note)(?: that)?:?\s+(?P<value>.+)"),
    ("notes", r"запомни(?:те)?(?:, что| что)?:?\s+(?P<value>.+)"),
)
# "I like it" says nothing that could be recalled; "my name is not important" is no name.
_EMPTY_VALUE: Final = re.compile(
    r"(?:it|that|this|them|him|her|you|me|not\b.*|when\b.*|how\b.*|это|его|её|ее|их|тебя|вас|не\b.*|как\b.*|когда\b.*)",
    _FLAGS,
)

_SUBJECTS: Final[tuple[tuple[Attribute, str], ...]] = (
    ("name", r"(?:my name|who i am|мо[её] имя|как меня зовут)"),
    ("home", r"(?:where i live|my (?:home|city|address|town)|где я живу|мой (?:город|адрес|дом))"),
    ("work", r"(?:my (?:work|job)|where i work|what i do|кем я работаю|мою работу|моя работа)"),
    ("likes", r"(?:what i (?:like|love|enjoy)|my likes|что (?:я люблю|мне нравится)|мои вкусы)"),
    ("notes", r"(?:my notes|мои (?:заметки|записи))"),
)
_FORGET: Final = re.compile(r"(?:forget|delete|erase|забудь(?:те)?|удали(?:те)?|сотри(?:те)?)\s+(?P<what>.+)", _FLAGS)
_FORGET_ALL: Final = re.compile(
    r"(?:everything|all|all about me|me|about me|everything .*"
    r"|вс[её]|вс[её] .*|меня|обо мне)",
    _FLAGS,
)
_RECALL_ALL: Final = re.compile(
    r"(?:what|tell me what)\s+do you (?:know|remember)(?: about me| of me)?"
    r"|what (?:have|did) you (?:learned|remember).*"
    r"|tell me (?:all |everything )?(?:you know )?about me(?: please)?"
    r"|что ты (?:обо мне )?(?:знаешь|помнишь|запомнила?)(?: обо мне)?|расскажи обо мне",
    _FLAGS,
)
_RECALL: Final = _rules(
    ("name", r"(?:what(?:'s| is) my name|who am i|(?:do you (?:know|remember)|tell me) my name)"),
    ("name", r"(?:как меня зовут|кто я|как мо[её] имя|ты (?:знаешь|помнишь),? как меня зовут)"),
    ("home", r"(?:where do i live|(?:do you (?:know|remember)|tell me) where i live)"),
    ("home", r"(?:где я живу|в каком городе я живу|ты (?:знаешь|помнишь),? где я живу)"),
    ("work", r"(?:what do i do|what(?:'s| is) my (?:job|work)|where do i work|кем я работаю)"),
    ("likes", r"(?:what do i (?:like|love|enjoy)|(?:do you (?:know|remember)|tell me) what i like)"),
    ("likes", r"(?:что (?:я люблю|мне нравится)|ты (?:знаешь|помнишь),? что (?:я люблю|мне нравится))"),
    ("notes", r"(?:what are my notes|какие у меня заметки)"),
)
_TIME: Final = re.compile(
    r"(?:what(?:'s| is) the (?:time|date)|what time is it|what day is it|what(?:'s| is) today(?:'s date)?"
    r"|который (?:сейчас )?час|сколько (?:сейчас )?времени|како[ей] сегодня (?:число|день|дата)|какая сегодня дата)"
    r"(?:\s+(?:today|now|сейчас))?(?:\s+(?:in|в)\s+(?P<zone>[A-Za-z_+-]+(?:/[A-Za-z_+-]+)*))?",
    _FLAGS,
)
_NUMBER_FIRST: Final = r"(?P<expression>[-+(]*\s*\d[\d\s.,()+*/%^×·÷−–-]*)"
_ARITHMETIC: Final = re.compile(
    r"(?:(?:calculate|compute|what(?:'s| is)|how much is|сколько будет|посчитай(?:те)?|вычисли(?:те)?)\s+)?"
    + _NUMBER_FIRST
    + r"\s*=?",
    _FLAGS,
)
_OPERATOR: Final = re.compile(r"\d\s*\)*\s*[-+*/%^×·÷−–]")
_SEND: Final = re.compile(
    r"(?:please\s+|пожалуйста,?\s+)?"
    r"(?:send (?:a |the )?message to (?P<a>[^:,]{1,60}?)"
    r"|send (?P<b>[^:,\s]{1,60}) (?:a |the )?message"
    r"|(?:отправь|пошли) (?:сообщение|письмо) (?P<c>[^:,]{1,60}?)"
    r"|напиши (?:сообщение )?(?P<d>[^:,]{1,60}?))"
    r"\s*(?::|,? saying|,? that|, что)\s*(?P<text>\S.*)",
    _FLAGS | re.DOTALL,
)
_THANKS: Final = re.compile(r"(?:thanks|thank you|спасибо|благодарю)\b.*", _FLAGS)


def _read(clause: str) -> Phrase | None:
    if (asked := _ARITHMETIC.fullmatch(clause)) and _OPERATOR.search(asked["expression"]):
        return Calculate(asked["expression"].strip())
    if asked := _TIME.fullmatch(clause):
        return AskTime(asked["zone"] or "UTC")
    if _RECALL_ALL.fullmatch(clause):
        return Recall(None)
    for attribute, question in _RECALL:
        if question.fullmatch(clause):
            return Recall(attribute)
    if asked := _FORGET.fullmatch(clause):
        return _forget(asked["what"].strip(_EDGES))
    if _THANKS.fullmatch(clause):
        return Thank()
    return _remember(clause)


def _remember(clause: str) -> Remember | None:
    for attribute, statement in _REMEMBER:
        if told := statement.fullmatch(clause):
            # Values end up in a prompt: one line each, so that no value can pretend to be another.
            value = " ".join(told["value"].strip(_EDGES).split())
            if value and len(value) <= VALUE_CHARS_MAX and not _EMPTY_VALUE.fullmatch(value):
                return Remember(attribute, value)
    return None


def _forget(what: str) -> Forget | None:
    if _FORGET_ALL.fullmatch(what):
        return Forget(None)
    for attribute, subject in _SUBJECTS:
        if re.fullmatch(subject, what, _FLAGS):
            return Forget(attribute)
    return None


def _send(text: str) -> Send | None:
    asked = _SEND.match(text)
    if asked is None:
        return None
    recipient = asked["a"] or asked["b"] or asked["c"] or asked["d"]
    return Send(recipient.strip(_EDGES), asked["text"].strip())
