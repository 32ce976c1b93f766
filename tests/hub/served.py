"""A model hub on loopback: repositories in memory, and what a real one may do wrong."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from loopback import answering

TOKEN = "hf_of_a_reader"


@dataclass
class Repository:
    """Files by path, at one commit, and who may read them."""

    files: dict[str, bytes]
    gated: bool = False
    private: bool = False
    faults: dict[str, list[int]] = field(default_factory=dict)
    """Of a path, statuses that are answered before it is served; 0: the connection breaks halfway."""

    @property
    def commit(self) -> str:
        """By what the files are."""
        digest = hashlib.sha1()
        for path, content in sorted(self.files.items()):
            digest.update(path.encode() + content)
        return digest.hexdigest()

    @staticmethod
    def of(folder: Path, **options: Any) -> "Repository":
        """The files of a folder."""
        paths = [path for path in folder.rglob("*") if path.is_file()]
        return Repository({path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}, **options)


@dataclass
class Hub:
    """Repositories by kind and id: `models/owner/name`, `datasets/owner/name`."""

    repositories: dict[str, Repository]
    url: str = ""
    asked: Counter[str] = field(default_factory=Counter)
    """How often each path was read whole or in part."""


@contextmanager
def served(hub: Hub) -> Iterator[Hub]:
    """The hub, answering at its `url`."""
    with answering(type("Answers", (_Answers,), {"hub": hub})) as hub.url:
        yield hub


class _Answers(BaseHTTPRequestHandler):
    """The part of the hub's interface that its clients use to read."""

    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *arguments: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.answer()

    def do_HEAD(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        self.answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def answer(self, body: bytes = b"") -> None:
        url = urlsplit(self.path)
        parts = unquote(url.path).strip("/").split("/")
        api = parts[0] == "api"
        parts = parts[api:]
        kind = parts.pop(0) if parts[0] in ("models", "datasets") else "models"
        repository = self.hub.repositories.get(f"{kind}/{'/'.join(parts[:2])}")
        reader = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if repository is None or (repository.private and not reader):
            return self.refuse(401 if kind == "models" else 404, "RepoNotFound", "Repository not found")
        if repository.gated and not reader and not (api and len(parts) == 2):
            return self.refuse(401, "GatedRepo", "Access to this repository is restricted.")
        rest = parts[2:]
        if api:
            return self.describe(repository, kind, parts, {**parse_qs(url.query), "body": [body.decode()]})
        return self.file(repository, "/".join(rest[2:])) if rest[:1] == ["resolve"] else self.missing(repository)

    def describe(self, repository: Repository, kind: str, parts: list[str], query: dict[str, list[str]]) -> None:
        identity, what, place = "/".join(parts[:2]), parts[2:3], "/".join(parts[4:])
        if what == ["tree"]:
            inside = [path for path in repository.files if path.startswith(f"{place}/" if place else "")]
            folders = {path.rsplit("/", depth)[0] for path in inside for depth in range(1, path.count("/") + 1)}
            entries = [self.entry(repository, path) for path in inside]
            entries += [{"type": "directory", "path": folder, "oid": "0" * 40, "size": 0} for folder in folders]
            if query.get("recursive", ["false"])[0].lower() not in ("true", "1"):
                depth = place.count("/") + bool(place)
                entries = [entry for entry in entries if entry["path"].count("/") == depth]
            return self.json(entries, repository) if inside else self.missing(repository)
        if what == ["paths-info"]:
            asked = query["body"][0]
            paths = json.loads(asked)["paths"] if asked.startswith("{") else parse_qs(asked).get("paths", [])
            return self.json([self.entry(repository, path) for path in paths if path in repository.files], repository)
        siblings = [{"rfilename": path} for path in sorted(repository.files)]
        facts = {"private": repository.private, "gated": "auto" if repository.gated else False, "disabled": False}
        times = {"lastModified": "2024-01-01T00:00:00.000Z", "createdAt": "2024-01-01T00:00:00.000Z"}
        counts = {"downloads": 0, "likes": 0, "tags": []}
        told = {"_id": "1", "id": identity, "sha": repository.commit, "siblings": siblings, **facts, **times, **counts}
        return self.json(told, repository)

    @staticmethod
    def entry(repository: Repository, path: str) -> dict[str, Any]:
        content = repository.files[path]
        return {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}

    def file(self, repository: Repository, path: str) -> None:
        if path not in repository.files:
            return self.missing(repository)
        content = repository.files[path]
        headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": repository.commit}
        headers |= {"Accept-Ranges": "bytes"}
        if self.command == "GET":
            self.hub.asked[path] += 1
            if faults := repository.faults.get(path):
                fault = faults.pop(0)
                if fault:
                    return self.say(fault, b"", {"Retry-After": "0"})
                return self.say(200, content, headers, sent=len(content) // 2)
        first, _, last = (self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").partition("-")
        part = content[int(first) : int(last) + 1 if last else None]
        if "Range" in self.headers and self.command == "GET":
            headers["Content-Range"] = f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"
            return self.say(206, part, headers)
        return self.say(200, content, headers)

    def missing(self, repository: Repository) -> None:
        self.say(404, b"{}", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": repository.commit})

    def refuse(self, status: int, code: str, message: str) -> None:
        body = json.dumps({"error": message}).encode()
        self.say(status, body, {"X-Error-Code": code, "X-Error-Message": message, "Content-Type": "application/json"})

    def json(self, value: Any, repository: Repository) -> None:
        headers = {"Content-Type": "application/json", "X-Repo-Commit": repository.commit}
        self.say(200, json.dumps(value).encode(), headers)

    def say(self, status: int, body: bytes, headers: dict[str, str], sent: int | None = None) -> None:
        """All of the body, or its first bytes before the connection breaks."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:sent])
        self.close_connection = sent is not None
