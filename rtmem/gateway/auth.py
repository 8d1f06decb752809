"""Who is asking: a bearer token leads to a principal, and nothing in the request can choose another one.

The token is read from `Authorization: Bearer ...`, from `x-api-key` (what the SDKs' `api_key` sends), or, for clients
that cannot set headers on a websocket (browsers, the JavaScript SDK), from the query parameter `token`. A URL ends up
in proxies' access logs and in browser histories: prefer a header where one can be set, put TLS in front, and give
browsers tokens that you can withdraw. Our own access log does not write the query.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from urllib.parse import parse_qs

from rtmem.errors import UnauthorizedError


class Tokens:
    """The tokens this gateway accepts."""

    def __init__(self, principals: Mapping[str, str]) -> None:
        self._principals = tuple((token.encode(), principal) for token, principal in principals.items())

    def principal(self, headers: Mapping[str, str], query: str) -> str:
        """The principal whose token came with a request.

        Raises:
            UnauthorizedError: no token, or one that is not known.
        """
        given = _token(headers, query)
        if not given:
            raise UnauthorizedError(
                "no token: send `Authorization: Bearer <token>` or `x-api-key: <token>`; `rtmem up` prints one"
            )
        # Every token is compared, in constant time: neither how many characters fit nor which entry it was shows.
        found = None
        candidate = given.encode("utf-8", "replace")
        for token, principal in self._principals:
            if hmac.compare_digest(token, candidate):
                found = principal
        if found is None:
            raise UnauthorizedError("this token is not known here: compare it with [gateway] tokens")
        return found


def _token(headers: Mapping[str, str], query: str) -> str:
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip()
    if key := headers.get("x-api-key"):
        return key.strip()
    return parse_qs(query).get("token", [""])[0]
