"""The client against a server on this machine: replies, patience, refusals, and a key that is never seen."""

import email.utils
import html
import json
import socket
import threading
import time
from urllib.parse import quote

import pytest
from judge_server import refuses, says, serving

from specdec_trees.judge.client import Endpoint, JudgeError, NoReplyError

CHAT = [{"role": "user", "content": "Grade this: naïve"}]


def slashed(key):
    """As some write JSON."""
    return key.replace("/", "\\/")


KEY = "sk-very/secret+key=1234567890"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def endpoint(server, waits=None, **given):
    return Endpoint(server.base, "judge", **{"sleep": [].append if waits is None else waits.append} | given)


def test_a_reply_is_the_text_of_the_first_choice():
    with serving(says("Fine.\nScore: 7")) as server:
        assert endpoint(server, key=KEY).ask(CHAT) == "Fine.\nScore: 7"
    assert server.requests == [{"model": "judge", "messages": CHAT, "temperature": 0}]
    assert server.paths == ["/v1/chat/completions"]
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


def test_without_a_key_there_is_no_header_and_a_slash_at_the_end_is_none():
    with serving(says("Score: 1")) as server:
        Endpoint(f"{server.base}/", "judge").ask(CHAT)
    assert "Authorization" not in server.headers[0]
    assert server.paths == ["/v1/chat/completions"]


def test_429_waits_as_long_as_it_says():
    waits: list[float] = []
    with serving([refuses(429, "slow down", Retry_After="7"), refuses(429, Retry_After="9999"), says("ok")]) as server:
        assert endpoint(server, waits).ask(CHAT) == "ok"
    assert waits == [7, 120], "no longer than two minutes"


def test_retry_after_may_be_a_date_or_nonsense():
    waits: list[float] = []
    later = email.utils.formatdate(time.time() + 30, usegmt=True)
    with serving([refuses(503, Retry_After=later), refuses(503, Retry_After="soon"), says("ok")]) as server:
        assert endpoint(server, waits).ask(CHAT) == "ok"
    assert waits[0] == pytest.approx(30, abs=3)
    assert waits[1] == 2, "the second wait of its own"


@pytest.mark.parametrize("status", [500, 502, 503, 529, 408])
def test_what_passes_is_tried_again_with_longer_waits(status):
    waits: list[float] = []
    with serving([refuses(status), refuses(status), says("ok")]) as server:
        assert endpoint(server, waits).ask(CHAT) == "ok"
    assert waits == [1, 2]


def test_tries_are_limited():
    waits: list[float] = []
    with serving(refuses(500, "overloaded")) as server:
        with pytest.raises(NoReplyError, match=r"the endpoint answers 500 \(overloaded\) \(after 3 tries\)"):
            endpoint(server, waits, attempts=3).ask(CHAT)
        assert len(server.requests) == 3
    assert waits == [1, 2]


def test_a_slow_reply_is_a_time_out_and_is_tried_again():
    with serving(says("ok"), delay=lambda number: 3.0 if number == 0 else 0.0) as server:
        assert endpoint(server, timeout_s=1.0).ask(CHAT) == "ok"
        server.delay = lambda number: 1.5
        with pytest.raises(NoReplyError, match=r"no reply within 0.3 s"):
            endpoint(server, timeout_s=0.3, attempts=1).ask(CHAT)


def test_a_reply_that_drips_in_is_a_time_out_too():
    """Every piece in time, the whole not."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(5)

    def drip():
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            for _ in range(600):
                time.sleep(0.05)
                try:
                    connection.sendall(b" ")
                except OSError:
                    return

    thread = threading.Thread(target=drip)
    thread.start()
    began = time.monotonic()
    with listener, pytest.raises(NoReplyError, match="no reply within"):
        Endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}", "judge", timeout_s=0.3, attempts=1).ask(CHAT)
    assert time.monotonic() - began < 15, "half of what the whole would take"
    thread.join()


@pytest.mark.long
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"choices": [', "the reply is not JSON"),
        (b"\xff\xfe", "the reply is not JSON"),
        (b"<html>busy</html>", "the reply is not JSON"),
        (b"{}", "no chat completion: it has no 'choices'"),
        (b'{"choices": []}', "it has no 0"),
        (b'{"choices": [{"message": {"content": null}}]}', "its content is no text"),
        (b"[1]", "it has no 'choices'"),
    ],
)
def test_what_is_no_chat_completion_is_tried_again_and_then_told(body, words):
    with serving([(200, {}, body), says("ok")]) as server:
        assert endpoint(server).ask(CHAT) == "ok"
    with serving((200, {}, body)) as server, pytest.raises(NoReplyError, match=words):
        endpoint(server, attempts=2).ask(CHAT)


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "JUDGE_API_KEY is missing"), (403, "may not use"), (404, "JUDGE_BASE_URL or JUDGE_MODEL")],
)
def test_what_no_answer_would_change_stops_at_once(status, words):
    with serving(refuses(status, "no")) as server:
        with pytest.raises(JudgeError, match=rf"answers {status}: .*{words}"):
            endpoint(server).ask(CHAT)
        assert len(server.requests) == 1


def test_a_request_that_is_wrong_in_itself_is_not_tried_again():
    with serving(refuses(400, "context length exceeded")) as server:
        with pytest.raises(NoReplyError, match=r"400 \(context length exceeded\)"):
            endpoint(server).ask(CHAT)
        assert len(server.requests) == 1


def test_a_redirection_is_not_followed():
    """Else the key would go to another host."""
    with serving(says("stolen")) as other:
        there = (302, {"Location": f"{other.base}/chat/completions"}, b"")
        with serving(there) as server, pytest.raises(JudgeError, match="302, a redirection"):
            endpoint(server, key=KEY).ask(CHAT)
        assert other.requests == []


def test_an_endpoint_that_is_not_there_stops_everything():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    waits: list[float] = []
    with pytest.raises(JudgeError, match=r"cannot be reached: .*is JUDGE_BASE_URL right\? \(after 2 tries\)"):
        Endpoint(f"http://127.0.0.1:{port}/v1", "judge", attempts=2, sleep=waits.append).ask(CHAT)
    assert waits == [1]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500])
def test_the_key_is_in_no_error(status):
    """Also where the endpoint sends it back, and where the text is cut in the middle of it."""
    for text in (f"bad key {KEY}!", "x" * 290 + KEY, KEY):
        with serving(refuses(status, text)) as server, pytest.raises((JudgeError, NoReplyError)) as caught:
            endpoint(server, key=KEY, attempts=1).ask(CHAT)
        said = f"{caught.value!r} {caught.value} {caught.value.__context__!r} {caught.value.__cause__!r}"
        assert KEY not in said
        assert KEY[:8] not in said
        assert "[key]" in said


def test_the_key_is_in_no_reply_and_in_no_repr():
    with serving(says(f"Your key is {KEY}.\nScore: 3")) as server:
        asked = endpoint(server, key=KEY)
        assert asked.ask(CHAT) == "Your key is [key].\nScore: 3"
    assert KEY not in repr(asked)


@pytest.mark.parametrize(
    "base",
    ["localhost:8000/v1", "ftp://host/v1", "http://", "http://user:pw@host/v1", "https://host/v1?key=secret",
     "http://host:99999/v1", "http://[half/v1"],
)  # fmt: skip
def test_what_is_no_endpoint_is_refused_without_repeating_it(base):
    with pytest.raises(JudgeError, match="JUDGE_BASE_URL must be") as caught:
        Endpoint(base, "judge")
    assert "secret" not in str(caught.value)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("key", ["", "two words", "line\nbreak", "schlüssel"])
def test_a_key_that_no_header_can_hold_is_refused_without_repeating_it(key):
    with pytest.raises(JudgeError, match="JUDGE_API_KEY must be printable ASCII") as caught:
        Endpoint("http://host/v1", "judge", key)
    assert not key or key not in str(caught.value)


def test_a_judge_has_a_name():
    with pytest.raises(JudgeError, match="JUDGE_MODEL is empty"):
        Endpoint("http://host/v1", " ")


@pytest.mark.long
@pytest.mark.parametrize("key", ['sk-ab"cd\\ef-SECRET', "sk/ab+cd=SECRET", "sk-<ab>&cd-SECRET"])
@pytest.mark.parametrize("encoded", [json.dumps, quote, html.escape, lambda key: quote(key, safe=""), slashed, str])
def test_the_key_is_in_no_error_however_it_is_encoded(key, encoded):
    said = f"refused: {encoded(key)} is wrong".encode()
    with serving((400, {}, said)) as server, pytest.raises(NoReplyError) as refusal:
        endpoint(server, key=key).ask(CHAT)
    assert "SECRET" not in str(refusal.value)
    assert "[key]" in str(refusal.value)


def test_a_placeholder_is_no_secret():
    with serving(says("Score: 10")) as server:
        assert endpoint(server, key="1").ask(CHAT) == "Score: 10"


@pytest.mark.parametrize("base", ["http://127.0.0.1:9/v\u00e9", "http://127.0.0.1:9/v 1", "http://a..b/v1"])
def test_a_base_that_is_no_address_is_refused_at_once(base):
    with pytest.raises(JudgeError, match="JUDGE_BASE_URL"):
        Endpoint(base, "judge", sleep=lambda seconds: pytest.fail("tried again")).ask(CHAT)
