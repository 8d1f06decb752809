"""Which answers must not be stored: errors, refusals, what was cut off, calls of tools, nothing at all.

A refusal is a model's own affair (its mood, its filter), an error passes, and the rest of a truncated answer is missing
for whoever gets it next. Models say most of it in metadata; refusals mostly in words, and then at their beginning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, Generation, GenerationChunk

Unwanted: TypeAlias = Literal["error", "refusal", "truncated", "tool_calls", "empty"]
UNWANTED: Final[tuple[str, ...]] = get_args(Unwanted)

_ENDINGS: Final = {
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens", "model_length", "incomplete"), "truncated"),
    **dict.fromkeys(("model_context_window_exceeded", "pause_turn"), "truncated"),
    **dict.fromkeys(("content_filter", "content_filtered", "guardrail_intervened", "safety"), "truncated"),
    **dict.fromkeys(("recitation", "blocklist", "prohibited_content", "spii"), "truncated"),
    **dict.fromkeys(("tool_calls", "tool_use", "function_call", "tool_call"), "tool_calls"),
    **dict.fromkeys(("error", "failed", "malformed_function_call"), "error"),
    "refusal": "refusal",
}
"""What a provider says of the end of an answer -> why it is not stored."""

_ENDING_NAMES: Final = ("finish_reason", "stop_reason", "stopReason", "done_reason", "status")
_CALLS: Final = frozenset(("tool_use", "tool_call", "tool_call_chunk", "function_call", "invalid_tool_call"))
_NO_ANSWERS: Final = frozenset(("text", "thinking", "redacted_thinking", "reasoning", "reasoning_content"))
_DEPTH_MAX: Final = 4
_GENERATIONS: Final[dict[str, Any]] = {
    kind.__name__: kind for kind in (Generation, GenerationChunk, ChatGeneration, ChatGenerationChunk)
}
_GENERATIONS_KEY: Final = "\x00rtmem.generations"
_BEGINNING: Final = 400  # characters in which a refusal says that it is one

_APOLOGY_EN: Final = (
    r"(?:i(?:'|’)?m\s+(?:(?:really|very|so)\s+)?(?:sorry|afraid)|i\s+am\s+(?:really\s+)?(?:sorry|afraid)|sorry"
    r"|(?:i\s+|my\s+)?apolog(?:i[sz]e|ies)|unfortunately|regrettably|oh\s+no"
    r"|(?:thank|i\s+(?:appreciate|understand|hear|see|know|would|wish))[^.!?\n]{0,80}?\bbut)"
)
_NOT: Final = r"(?:do\s+not|don(?:'|’)?t)"
_CANNOT_EN: Final = (
    r"i(?:\s+(?:just|simply|really))?\s*(?:\s+can(?:'|’)?t|\s+cannot|\s+can\s+not|\s+won(?:'|’)?t|\s+will\s+not"
    r"|(?:(?:'|’)?m|\s+am)\s+(?:not\s+(?:able|allowed|permitted|comfortable|going)|unable)(?:\s+to)?"
    rf"|\s+{_NOT}\s+feel\s+comfortable|(?:(?:'|’)?d|\s+would)\s+rather\s+not)"
    r"(?:\s+and\s+(?:will\s+not|won(?:'|’)?t))?(?:\s+be\s+able\s+to)?"
)
_DO_EN: Final = (
    r"(?:help|assist|answer|explain|provid|comply|fulfil|discuss|shar(?:e|ing)|generat|creat|writ(?:e|ing)|produc(?:e|ing)|give"
    r"|giving|offer|engag|support|participat|respond|continu|complet|do(?:ing)?\s+(?:that|this|so)|process\s+(?:this|that"
    r"|your)|talk(?:ing)?\s+about|access|brows|open|see\b|view|predict|disclos|reveal|tell\s+you|make\s+(?:that|this|any)"
    r"|verify|confirm|advis|diagnos|perform|say\W*$|recommend(?![^.!?\n]*\benough))"
)
_CANNOT_RU: Final = (
    r"(?:не\s+(?:могу|смогу|буду|стану|вправе|готова?|в\s+состоянии|имею\s+(?:права|возможности|доступа)|обладаю"
    r"|располагаю)|вынужден[аы]?\s+отказать|отказываюсь)"
)
_DO_RU: Final = (
    r"(?:помо[гч]|ответ|отвеч|предостав|выполн|обсужд|обсуд|сдела|делать|дать|дава|созда|написа|сгенерир|генерир|рассказ"
    r"|подсказ|поддерж|раскры|показ|продолж|говор|консульт|комментир|провер)"
)
_AI_RU: Final = r"как\s+(?:ии|искусственный\s+интеллект|(?:большая\s+)?языковая\s+модель|ассистент)\b[^.!?\n]{0,80}?"
_REFUSALS: Final = re.compile(
    "|".join(
        (
            rf"^\W*{_APOLOGY_EN}\b[^.!?\n]{{0,40}}?\b{_CANNOT_EN}\b",
            rf"^\W*(?:i\s+{_NOT}\s+think\s+i\s+can|{_CANNOT_EN}(?:\s+in\s+good\s+conscience)?)\s+{_DO_EN}",
            rf"^[^.!?:\n\"“]{{0,100}}?\bbut\s+{_CANNOT_EN}\s+{_DO_EN}",
            rf"^\W*(?:for|due\s+to|because\s+of)\s[^.!?\n]{{0,60}}?,\s*{_CANNOT_EN}\b",
            rf"^\W*{_APOLOGY_EN}\b[^.!?\n]{{0,20}}?\brequest\s+(?:violates|goes\s+against)\b",
            rf"^\W*as\s+an?\s+(?:ai|artificial|large\s+language|language)\b[^.!?\n]{{0,80}}?\b(?:{_CANNOT_EN}|i\s+{_NOT})\b",
            r"^\W*(?:i(?:'|’)m|i\s+am)\s+(?:declining|refusing)\b",
            r"^\W*i\s+(?:must|have\s+to|need\s+to)\s+(?:respectfully\s+|politely\s+)?(?:decline|refuse)\b",
            rf"^\W*i\s+{_NOT}\s+have\s+(?:access|permission|the\s+ability|real)",
            r"^\W*(?:that|this|it)(?:(?:'|’)s|\s+is)\s+(?:not\s+something\s+(?:that\s+)?i\b"
            rf"|something\s+(?:that\s+)?{_CANNOT_EN}\b)",
            r"^\W*(?:that|this|it)(?:(?:'|’)s|\s+is)\s+(?:against|outside|beyond)\s+(?:my\b|our\b|what\s+i\b)",
            r"^\W*my\s+(?:guidelines|policies|programming)\b",
            r"^\W*let(?:'|’)?s\s+(?:talk\s+about\s+something\s+else|change\s+the\s+(?:subject|topic))",
            r"^\W*(?:this|that|your)\s+(?:request|message|prompt)\s+(?:violates|goes\s+against|can(?:no|')t\s+be"
            r"|(?:was|has\s+been)\s+(?:flagged|blocked|declined|rejected))",
            # Russian: apology and inability, or inability to help, tell, do.
            r"^\W*(?:я\W+)?(?:извини(?:те)?|прости(?:те)?|к\s+сожалению|сожалею|мне\s+(?:очень\s+)?жаль|прошу\s+прощения"
            rf"|приношу\s+(?:свои\s+)?извинения|боюсь|увы)\b[^.!?\n]{{0,40}}?\b(?:{_CANNOT_RU}|у\s+меня\s+нет\s+(?:доступа|возможности|права?)\b)",
            rf"^\W*{_AI_RU}\bя\s+(?:{_CANNOT_RU}|не\s+имею\b)",
            rf"^\W*(?:я\s+)?{_CANNOT_RU}\s+(?:и\s+не\s+\w+\s+)?(?:(?:вам|тебе|вас|с\s+(?:этим|таким)|на\s+(?:это|такие)|это|этого|эту"
            rf"|медицинские|юридические|финансовые)\s+)*{_DO_RU}",
            r"^\W*(?:я\s+)?(?:вынужден[аы]?\s+отказать|отказываюсь\s)",
            r"^\W*мне\s+(?:запрещено|нельзя|не\s+(?:разрешено|позволено))\b",
            r"^\W*у\s+меня\s+нет\s+(?:доступа|возможности|права?|полномочий)\b",
            r"^\W*(?:этот|ваш|такой)\s+запрос\s+(?:нарушает|противоречит|не\s+может)",
            r"^\W*это\s+(?:нарушает|противоречит)\s+(?:мо|наш|политик|правил)",
            r"^\W*(?:давай(?:те)?\s+(?:сменим\s+тему|поговорим\s+о\s+ч[её]м[-\s]нибудь)|не\s+люблю\s+менять\s+тему)",
        )
    ),
    re.IGNORECASE,
)
_ERRORS: Final = re.compile(
    r"^\W*(?:traceback \(most recent call last\)|(?:http )?error(?: code)?:? ?[45]\d\d\b|internal server error\b"
    r"|(?:\d{3} )?(?:service unavailable|bad gateway|gateway time-?out|too many requests)\b"
    r"|rate limit (?:exceeded|reached)|(?:[a-z]+\.)*[a-z]*(?:error|exception): )",
    re.IGNORECASE,
)


def unwanted(answer: Any) -> Unwanted | None:
    """Why an answer must not be stored, or None.

    answer: a text, a message, a Generation or lists of them; anything else may hold messages (what a node returns).
    """
    if answer is None:
        return "empty"
    if isinstance(answer, BaseException):
        return "error"
    found = [reason for part in _parts(answer, 0) if (reason := _of_part(part))]
    return min(found, key=UNWANTED.index) if found else None


def portable(answer: Any) -> Any:
    """An answer as LangGraph's serialiser brings it back: of a Generation it would lose the kind of its message."""
    if isinstance(answer, list | tuple) and answer and all(type(each) in _GENERATIONS.values() for each in answer):
        rows = [
            [type(each).__name__, each.text, each.generation_info, getattr(each, "message", None)] for each in answer
        ]
        return {_GENERATIONS_KEY: rows}
    return answer


def restored(stored: Any) -> Any:
    """What `portable` was given."""
    if type(stored) is not dict or len(stored) != 1 or _GENERATIONS_KEY not in stored:
        return stored
    return [
        _GENERATIONS[name](generation_info=info, **({"text": text} if message is None else {"message": message}))
        for name, text, info, message in stored[_GENERATIONS_KEY]
    ]


def _parts(answer: Any, depth: int) -> Iterator[str | BaseMessage | Generation]:
    """All texts and messages that make up an answer. Texts inside of dictionaries are data, not what a model says."""
    if isinstance(answer, str | BaseMessage | Generation):
        if not (isinstance(answer, str) and depth):
            yield answer
    elif depth < _DEPTH_MAX:
        if isinstance(answer, Mapping):
            values: Any = answer.values()
        elif isinstance(answer, list | tuple):
            values = answer
        else:
            values = getattr(answer, "generations", ())
        for value in values:
            yield from _parts(value, depth + 1)


def _of_part(part: str | BaseMessage | Generation) -> Unwanted | None:
    if isinstance(part, str):
        return _of_text(part)
    if isinstance(part, Generation):
        message = getattr(part, "message", None)
        ending = _of_ending(part.generation_info)
        return ending or (_of_message(message) if isinstance(message, BaseMessage) else _of_text(part.text))
    return _of_message(part)


def _of_message(message: BaseMessage) -> Unwanted | None:
    if message.type == "tool" and getattr(message, "status", "") == "error":
        return "error"
    if message.type not in ("ai", "AIMessageChunk"):
        return None  # somebody else's words, which travel along
    extra = message.additional_kwargs
    if extra.get("refusal"):
        return "refusal"
    if (
        getattr(message, "tool_calls", None)
        or getattr(message, "invalid_tool_calls", None)
        or any(extra.get(name) for name in ("tool_calls", "function_call"))
    ):
        return "tool_calls"
    if ending := _of_ending(message.response_metadata):
        return ending
    content = message.content
    blocks = [] if isinstance(content, str) else [block for block in content if isinstance(block, dict)]
    if any(block.get("type") == "refusal" for block in blocks):
        return "refusal"
    if isinstance(content, str):
        return _of_text(content)
    texts = [block if isinstance(block, str) else block.get("text") for block in content]
    text = "".join(each for each in texts if isinstance(each, str))
    kinds = {block.get("type") for block in blocks}
    if kinds & _CALLS:
        return "tool_calls"
    # Images and the like are an answer without a text; what a model thought is none.
    return _of_text(text) if text.strip() or kinds <= _NO_ANSWERS else None


def _of_ending(metadata: Mapping[str, Any] | None) -> Unwanted | None:
    if not metadata:
        return None
    if metadata.get("error"):
        return "error"
    for name in _ENDING_NAMES:
        ending = metadata.get(name)
        if isinstance(ending, str) and (reason := _ENDINGS.get(ending.lower().rpartition(".")[2])):
            return reason  # type: ignore[return-value]
    return None


def _of_text(text: str) -> Unwanted | None:
    beginning = text[:_BEGINNING].strip()
    if not beginning and not text.strip():
        return "empty"
    if _ERRORS.match(beginning):
        return "error"
    return "refusal" if _REFUSALS.match(beginning) else None
