"""A chat completion over HTTP, with patience for what passes and one sentence for what does not.

The key is in the request alone: never in an error, a reply, a log or a `repr`, also where the endpoint sends it back.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import math
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from specdec_trees.judge.replies import ReplyError, content
from specdec_trees.judge.secrets import printable, without

PATIENT = (408, 409, 425, 429, 500, 502, 503, 504, 529)
"""Statuses after which the same request may work."""
FINAL = {
    401: "JUDGE_API_KEY is missing or is not accepted",
    402: "the account behind JUDGE_API_KEY has nothing left",
    403: "JUDGE_API_KEY may not use this model",
    404: "JUDGE_BASE_URL or JUDGE_MODEL is wrong (the URL usually ends in /v1)",
}
"""Statuses that no other answer would change, and what to look at."""
_LARGEST, _LONGEST_WAIT, _SHOWN = 4_000_000, 120.0, 300


class JudgeError(Exception):
    """The endpoint cannot be used at all; the message says why and what to do."""


class NoReplyError(Exception):
    """One request got no reply that can be read; the message says why, `passing` whether another might get one."""

    def __init__(self, reason: str, *, passing: bool = False) -> None:
        super().__init__(reason)
        self.passing = passing


@dataclass(frozen=True)
class Endpoint:
    """Where a judge answers: `POST {base}/chat/completions`, at temperature 0."""

    base: str
    model: str
    key: str | None = field(default=None, repr=False)
    timeout_s: float = 120.0
    attempts: int = 5
    first_wait_s: float = 1.0
    sleep: Callable[[float], object] = field(default=time.sleep, repr=False)

    def __post_init__(self) -> None:
        """Refuse what is no endpoint, without repeating what may hold a secret."""
        try:
            parts = urlsplit(self.base)
            sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            sound = False
        sound = sound and printable(self.base)
        if not sound or parts.username or parts.password or parts.query or parts.fragment:
            raise JudgeError(
                "JUDGE_BASE_URL must be http(s)://host[:port][/path] and nothing more, such as http://localhost:8000/v1"
            )
        if not self.model.strip():
            raise JudgeError("JUDGE_MODEL is empty; give the name by which the endpoint knows the judge")
        if self.key is not None and (not self.key or not printable(self.key)):
            raise JudgeError("JUDGE_API_KEY must be printable ASCII without blanks; leave it out for a server without")

    def ask(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The judge's reply to a chat. NoReplyError if it has none for this one, JudgeError if it has for none."""
        for attempt in range(1, self.attempts + 1):
            try:
                return self._once(messages)
            except _PassingError as again:
                if attempt == self.attempts:
                    tries = f"after {attempt} tries" if attempt > 1 else "and no further try was allowed"
                    said = f"{again.reason} ({tries})"
                    raise (JudgeError(said) if again.nobody else NoReplyError(said, passing=True)) from None
                self.sleep(self._wait(attempt, again.wait_s))
        raise ValueError(f"attempts must be at least 1, not {self.attempts}")

    def hidden(self, text: str) -> str:
        """A text without the key."""
        return without(self.key, text) if self.key else text

    def _once(self, messages: Sequence[Mapping[str, str]]) -> str:
        deadline = time.monotonic() + self.timeout_s
        try:
            with _OPENER.open(self._request(messages), timeout=self.timeout_s) as response:
                return self.hidden(content(_read(response, deadline)))
        except ReplyError as error:
            raise _PassingError(self.hidden(str(error))) from None
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error, deadline) from None
        except TimeoutError:
            raise _PassingError(f"no reply within {self.timeout_s:g} s") from None
        except (UnicodeError, http.client.InvalidURL):
            raise JudgeError("JUDGE_BASE_URL is no address that can be reached; is its host right?") from None
        except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
            raise self._unreached(error) from None

    def _request(self, messages: Sequence[Mapping[str, str]]) -> urllib.request.Request:
        body = json.dumps({"model": self.model, "messages": list(messages), "temperature": 0}).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        headers |= {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return urllib.request.Request(f"{self.base.rstrip('/')}/chat/completions", body, headers)

    def _unreached(self, error: Exception) -> _PassingError:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, TimeoutError):
            return _PassingError(f"no reply within {self.timeout_s:g} s")
        words = self.hidden(str(reason) or type(reason).__name__)
        if isinstance(reason, ConnectionResetError | BrokenPipeError | http.client.HTTPException):
            return _PassingError(f"the connection broke off ({words})")
        return _PassingError(
            f"{self.hidden(self.base)} cannot be reached: {words}; is JUDGE_BASE_URL right?", nobody=True
        )

    def _refused(self, error: urllib.error.HTTPError, deadline: float) -> Exception:
        said, where = self._said(error, deadline), self.hidden(self.base)
        if error.code in FINAL:
            return JudgeError(f"{where} answers {error.code}: {FINAL[error.code]}{said}")
        if 300 <= error.code < 400:
            return JudgeError(f"{where} answers {error.code}, a redirection; give the final URL in JUDGE_BASE_URL")
        reason = f"the endpoint answers {error.code}{said}"
        if error.code in PATIENT or error.code >= 500:
            return _PassingError(reason, wait_s=_retry_after(error.headers.get("Retry-After")))
        return NoReplyError(reason)

    def _said(self, error: urllib.error.HTTPError, deadline: float) -> str:
        """What a refusal says of itself, in brackets; the key is taken out before the text is cut."""
        try:
            text = " ".join(_message(_read(error, deadline)).split())
        except (OSError, http.client.HTTPException, ReplyError):
            return ""
        hidden = self.hidden(text)
        return f" ({hidden[:_SHOWN]})" if hidden else ""

    def _wait(self, attempt: int, asked: float | None) -> float:
        """Seconds before the next try: what the endpoint asked for, else twice as long every time."""
        return min(self.first_wait_s * 2 ** (attempt - 1) if asked is None else asked, _LONGEST_WAIT)


class _PassingError(Exception):
    """What may pass; `nobody`: the endpoint is not there, for this or any other request."""

    def __init__(self, reason: str, *, wait_s: float | None = None, nobody: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.wait_s, self.nobody = reason, wait_s, nobody


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows nothing: the key is for one host, and a redirected POST would lose its body."""

    def redirect_request(self, *args: Any, **options: Any) -> None:
        """No request: the status is reported."""
        return


_OPENER = urllib.request.build_opener(_Stay)


def _read(response: Any, deadline: float) -> bytes:
    """A body, in time and of reasonable size. TimeoutError or ReplyError."""
    chunks: list[bytes] = []
    size = 0
    while chunk := response.read1(65536):
        size += len(chunk)
        chunks.append(chunk)
        if size > _LARGEST:
            raise ReplyError(f"a reply of more than {_LARGEST:,} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError
    return b"".join(chunks)


def _message(body: bytes) -> str:
    """The error in a body, by the usual schemas; else the body."""
    text = body.decode("utf-8", "replace")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    for key in ("error", "message", "detail"):
        found = found.get(key, found) if isinstance(found, dict) else found
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def _retry_after(value: str | None) -> float | None:
    """Seconds, from a number or a date; None where it is neither."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None
