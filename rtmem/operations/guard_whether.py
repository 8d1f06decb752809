"""Does a text ask for a yes or a no? "Is coffee safe?" does, "why is coffee safe?" takes the yes for granted."""

from __future__ import annotations

import re
from typing import Final

_AUXILIARIES: Final = "is|are|was|were|am|do|does|did|has|have|had|can|could|should|shall|will|would|may|might|must"
# A sentence begins with an auxiliary; in Russian something says so. A bare "Телефон греется?" is often a complaint.
_WHETHER: Final = re.compile(
    rf"(?:^|[.?!;]\s+)(?:(?:hi|hello|hey|so|and|but|please|ok)\W+)*(?:{_AUXILIARIES})(?:n['’]?t)?\s"
    r"|\bли\b|^(?:можно|нужно|нужн[аы]|нужен|надо|стоит|разве|неужели|правда)\s"
)
# "Could you tell me" asks for no yes, and "where" may stand far from where a question word stands.
_REQUEST: Final = re.compile(
    r"\b(?:could|would|will) (?:you|anyone|someone|somebody)\b"
    r"|\b(?:tell|explain|help|show|give|know|say|reason|when|where|why)\b"
    r"|\b(?:когда|где|куда|откуда|почему|зачем|скаж|подска|объясн|помо|знае|причин)"
)


def asks_whether(text: str) -> bool:
    folded = text.casefold()
    return _WHETHER.search(folded) is not None and _REQUEST.search(folded) is None
