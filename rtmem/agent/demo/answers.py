"""The sentences of the rules model, in English and in Russian."""

from __future__ import annotations

from typing import Final

from rtmem.agent.demo.phrases import ATTRIBUTES, Attribute, Language
from rtmem.agent.demo.prompt import Facts, MemoryStep

_REMEMBERED: Final[dict[Language, dict[str, str]]] = {
    "en": {
        "name": "Nice to meet you, {}. I will remember your name.",
        "home": "Noted: you live in {}.",
        "work": "Noted: you work as {}.",
        "likes": "Noted: you like {}.",
        "notes": "Noted: {}.",
    },
    "ru": {
        "name": "Приятно познакомиться, {}. Я запомню ваше имя.",
        "home": "Запомнил: вы живёте в {}.",
        "work": "Запомнил: вы работаете {}.",
        "likes": "Запомнил: вам нравится {}.",
        "notes": "Запомнил: {}.",
    },
}
_KNOWN: Final[dict[Language, dict[str, str]]] = {
    "en": {
        "name": "Your name is {}.",
        "home": "You live in {}.",
        "work": "You work as {}.",
        "likes": "You like {}.",
        "notes": "You asked me to remember: {}.",
    },
    "ru": {
        "name": "Вас зовут {}.",
        "home": "Вы живёте в {}.",
        "work": "Вы работаете {}.",
        "likes": "Вам нравится {}.",
        "notes": "Вы просили запомнить: {}.",
    },
}
_NAMED: Final[dict[Language, dict[str, str]]] = {
    "en": {
        "name": "your name",
        "home": "where you live",
        "work": "your work",
        "likes": "what you like",
        "notes": "your notes",
    },
    "ru": {
        "name": "ваше имя",
        "home": "где вы живёте",
        "work": "кем вы работаете",
        "likes": "что вам нравится",
        "notes": "ваши заметки",
    },
}
_LINES: Final[dict[Language, dict[str, str]]] = {
    "en": {
        "nothing": "I know nothing about you yet. Tell me, for example: my name is Ann.",
        "unknown": "I do not know {} yet: you have not told me.",
        "forgotten": "I have forgotten {}.",
        "not_known": "There was nothing to forget: I do not know {}.",
        "wiped": (
            "Done. I have forgotten every fact and this conversation so far. "
            "Earlier checkpoints of the thread stay until the thread is deleted."
        ),
        "kept": "As you wish: I have kept everything.",
        "result": "{} = {}.",
        "no_result": "I cannot calculate that: {}.",
        "time": "It is {}.",
        "sent": "The message to {} is in the outbox. (The demo delivers nothing outside.)",
        "declined": "I have not sent it: you declined.",
        "greeting": "Hello, {}!",
        "greeting_stranger": "Hello!",
        "offer": "Ask me what I can do, or tell me your name.",
        "thread_only": "(Only this conversation knows that for now: long-term memory cannot be used.)",
        "welcome": "You are welcome.",
        "fallback": (
            "I am the demo agent: I follow rules and am no language model, so I cannot discuss that. I can remember "
            "(my name is ..., I live in ..., I like ...), tell you what I know about you, forget it, calculate "
            "(17 * 23), tell the time, and send a message once you approve "
            "(send a message to Bob: hi). A real model answers here when RTMEM_MODEL=provider:name is set."
        ),
    },
    "ru": {
        "nothing": "Я пока ничего о вас не знаю. Скажите, например: меня зовут Анна.",
        "unknown": "Этого я пока не знаю ({}): вы не говорили.",
        "forgotten": "Забыл: {}.",
        "not_known": "Забывать было нечего, этого я не знаю: {}.",
        "wiped": (
            "Готово. Я забыл все факты и весь разговор до этого места. "
            "Прежние снимки беседы хранятся, пока беседа не удалена."
        ),
        "kept": "Как скажете: всё осталось на месте.",
        "result": "{} = {}.",
        "no_result": "Не могу это посчитать: {}.",
        "time": "Сейчас {}.",
        "sent": "Сообщение в исходящих: {}. (Наружу демо ничего не отправляет.)",
        "declined": "Не отправил: вы отказались.",
        "greeting": "Здравствуйте, {}!",
        "greeting_stranger": "Здравствуйте!",
        "offer": "Спросите, что я умею, или скажите, как вас зовут.",
        "thread_only": "(Пока это знает только эта беседа: долговременная память недоступна.)",
        "welcome": "Пожалуйста.",
        "fallback": (
            "Я демонстрационный агент: работаю по правилам, без языковой модели, и обсудить это не могу. Я умею "
            "запоминать (меня зовут ..., я живу в ..., я люблю ...), рассказать, что о вас знаю, забыть это, считать "
            "(17 * 23), сказать время и отправить сообщение с вашего согласия "
            "(напиши Бобу: привет). С RTMEM_MODEL=провайдер:имя здесь ответит настоящая модель."
        ),
    },
}


def line(name: str, language: Language, *values: str) -> str:
    """The sentence called `name`."""
    return _LINES[language][name].format(*values)


def known(facts: Facts, attribute: Attribute | None, language: Language) -> str:
    """What the facts say about one attribute, or about all."""
    asked = ATTRIBUTES if attribute is None else (attribute,)
    sentences = [_KNOWN[language][name].format("; ".join(facts[name])) for name in asked if facts.get(name)]
    if sentences:
        return " ".join(sentences)
    return line("nothing", language) if attribute is None else line("unknown", language, _NAMED[language][attribute])


def memory_report(step: MemoryStep, language: Language) -> list[str]:
    """What the memory step did, a sentence each."""
    sentences = [_REMEMBERED[language][attribute].format(value) for attribute, value in step.get("remembered", [])]
    for outcome, attributes in (("forgotten", step.get("forgotten")), ("not_known", step.get("not_known"))):
        if attributes:
            sentences.append(line(outcome, language, ", ".join(_NAMED[language][each] for each in attributes)))
    if decision := step.get("everything"):
        sentences.append(line("wiped" if decision == "forgotten" else "kept", language))
    if sentences and step.get("trouble"):
        sentences.append(line("thread_only", language))
    return sentences
