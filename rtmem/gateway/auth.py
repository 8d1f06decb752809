"""Who is asking: a bearer token leads to a principal, and nothing in the request can choose another one.

The token is read from `Authorization: Bearer ...`, from `x-api-key` (what the SDKs' `api_key` sends), or, for clients
that cannot set headers on a websocket (browsers, the JavaScript SDK), from the query parameter `token`. A URL ends up
in proxies' access logs and in browser histories: prefer a header where one can be set, put TLS in front, and give
browsers tokens that you can withdraw. Our own access log does not write the query.

The Python SDK sends its `api_key` with HTTP requests, but not with the websocket it opens beside them; it does send the
cookies that HTTP answers have set. So an authenticated HTTP answer sets a *ticket*: derived from the token (it survives
a restart and dies with the token), not the token itself, and good for websockets only. A browser is never given one
and never heard with one: a request with an `Origin` is not, so no other site can ride on it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qs

from rtmem.errors import UnauthorizedError

TICKET_COOKIE: Final = "rtmem_ticket"


class Tokens:
    """The tokens this gateway accepts."""

    def __init__(self, principals: Mapping[str, str]) -> None:
        self._principals = tuple((token.encode(), principal) for token, principal in principals.items())
        self._tickets = tuple((_ticket(token), principal) for token, principal in self._principals)

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
        found = _find(self._principals, given)
        if found is None:
            raise UnauthorizedError("this token is not known here: compare it with [gateway] tokens")
        return found

    def websocket_principal(self, headers: Mapping[str, str], query: str) -> str:
        """Like `principal`, and a ticket will do. Raises UnauthorizedError."""
        if not _token(headers, query) and "origin" not in headers and (ticket := _cookie(headers)):
            found = _find(self._tickets, ticket)
            if found is not None:
                return found
        return self.principal(headers, query)

    def ticket_cookie(self, headers: Mapping[str, str]) -> str | None:
        """The Set-Cookie value for the answer to an HTTP request whose headers carry a known token."""
        given = _token(headers, "")
        if not given or "origin" in headers or _find(self._principals, given) is None:
            return None
        return f"{TICKET_COOKIE}={_ticket(given.encode()).decode()}; Path=/; HttpOnly; SameSite=Strict"


def _ticket(token: bytes) -> bytes:
    return hmac.new(token, b"rtmem websocket ticket v1", hashlib.sha256).hexdigest().encode()


def _find(known: tuple[tuple[bytes, str], ...], given: str) -> str | None:
    # Every entry is compared, in constant time: neither how many characters fit nor which entry it was shows.
    found = None
    candidate = given.encode("utf-8", "replace")
    for secret, principal in known:
        if hmac.compare_digest(secret, candidate):
            found = principal
    return found


def _cookie(headers: Mapping[str, str]) -> str:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(TICKET_COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel is not None else ""


def _token(headers: Mapping[str, str], query: str) -> str:
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip()
    if key := headers.get("x-api-key"):
        return key.strip()
    return parse_qs(query).get("token", [""])[0]
