"""A model hub on loopback: repositories in memory, and what a real one may do wrong."""

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from loopback import answering

ROOT = Path(__file__).parents[2]
TOKEN = "hf_of_a_reader"


@dataclass
class Repository:
    """Files by path, at one commit, and who may read them."""

    files: dict[str, bytes] = field(repr=False)
    branches: dict[str, dict[str, bytes]] = field(default_factory=dict, repr=False)
    """Files of other branches than `main`, and of commits that `main` was once, by name."""
    gated: bool = False
    private: bool = False
    faults: dict[str, list[int]] = field(default_factory=dict)
    """Of a path, statuses that are answered before it is served; 0: the connection breaks halfway."""

    @property
    def commit(self) -> str:
        """Of `main`."""
        return commit_of(self.files)

    def at(self, revision: str) -> dict[str, bytes] | None:
        """The files at a branch or a commit, if there is one of that name."""
        commits = {commit_of(files): files for files in (self.files, *self.branches.values())}
        return {"main": self.files, **commits, **self.branches}.get(revision)

    def move(self, files: dict[str, bytes]) -> None:
        """Give `main` a new commit, with these files in place of those of the same names."""
        self.branches[self.commit] = self.files
        self.files = self.files | files

    @staticmethod
    def of(folder: Path, **options: Any) -> "Repository":
        """The files of a folder."""
        paths = [path for path in folder.rglob("*") if path.is_file()]
        return Repository({path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}, **options)


def commit_of(files: dict[str, bytes]) -> str:
    """By what the files are."""
    digest = hashlib.sha1()
    for path, content in sorted(files.items()):
        digest.update(f"{path} {sha1(content)}\n".encode())
    return digest.hexdigest()


@cache
def sha1(content: bytes) -> str:
    """In hexadecimal digits."""
    return hashlib.sha1(content).hexdigest()


@dataclass
class Hub:
    """Repositories by kind and id: `models/owner/name`, `datasets/owner/name`."""

    repositories: dict[str, Repository]
    url: str = ""
    asked: Counter[str] = field(default_factory=Counter)
    """How often each path was read whole or in part."""
    questions: Counter[str] = field(default_factory=Counter)
    """How often each part of the interface was asked beside files: `revision`, `tree`, `commits`, ..."""


@contextmanager
def served(hub: Hub) -> Iterator[Hub]:
    """The hub, answering at its `url`."""
    with answering(type("Answers", (_Answers,), {"hub": hub})) as hub.url:
        yield hub


def environment(hub: Hub, home: Path, **more: str) -> dict[str, str]:
    """Of a machine that has nothing yet."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    paths = [ROOT, ROOT / "tests", *filter(None, [os.environ.get("PYTHONPATH")])]
    told = {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "OMP_NUM_THREADS": "1"}
    told |= {"PYTHONPATH": os.pathsep.join(map(str, paths)), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    return plain | told | more


def client(hub: Hub, home: Path, *words: str, **more: str) -> dict[str, Any]:
    """What `client.py` says to these words, with `more` in its environment."""
    command = [sys.executable, str(Path(__file__).with_name("client.py")), *words]
    done = subprocess.run(command, env=environment(hub, home, **more), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


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
        parts = [unquote(part) for part in url.path.strip("/").split("/")]  # a branch may have slashes in its name
        api = parts[0] == "api"
        parts = parts[api:]
        kind = parts.pop(0) if parts[0] in ("models", "datasets") else "models"
        repository = self.hub.repositories.get(f"{kind}/{'/'.join(parts[:2])}")
        reader = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if repository is None or (repository.private and not reader):
            return self.refuse(401 if kind == "models" else 404, "RepoNotFound", "Repository not found")
        if repository.gated and not reader and not (api and len(parts) == 2):
            return self.refuse(401, "GatedRepo", "Access to this repository is restricted.")
        identity, (what, revision, *place) = "/".join(parts[:2]), [*parts[2:], "", ""][: max(2, len(parts) - 2)]
        files = repository.at(revision or "main")
        if files is None:
            return self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if not api:
            faults = repository.faults.get("/".join(place), [])
            return self.file(files, "/".join(place), faults) if what == "resolve" else self.missing(files)
        self.hub.questions[what] += 1
        if what == "tree":
            return self.tree(files, "/".join(place), parse_qs(url.query))
        if what == "paths-info":
            asked = body.decode()
            paths = json.loads(asked)["paths"] if asked.startswith("{") else parse_qs(asked).get("paths", [])
            return self.json([self.entry(files, path) for path in paths if path in files], files)
        return self.describe(repository, identity, files)

    def tree(self, files: dict[str, bytes], place: str, query: dict[str, list[str]]) -> None:
        inside = [path for path in files if path.startswith(f"{place}/" if place else "")]
        folders = {path.rsplit("/", depth)[0] for path in inside for depth in range(1, path.count("/") + 1)}
        entries = [self.entry(files, path) for path in inside]
        entries += [{"type": "directory", "path": folder, "oid": "0" * 40, "size": 0} for folder in folders]
        if query.get("recursive", ["false"])[0].lower() not in ("true", "1"):
            depth = place.count("/") + bool(place)
            entries = [entry for entry in entries if entry["path"].count("/") == depth]
        return self.json(entries, files) if inside else self.missing(files)

    def describe(self, repository: Repository, identity: str, files: dict[str, bytes]) -> None:
        siblings = [{"rfilename": path} for path in sorted(files)]
        facts = {"private": repository.private, "gated": "auto" if repository.gated else False, "disabled": False}
        times = {"lastModified": "2024-01-01T00:00:00.000Z", "createdAt": "2024-01-01T00:00:00.000Z"}
        counts = {"downloads": 0, "likes": 0, "tags": []}
        told = {"_id": "1", "id": identity, "sha": commit_of(files), "siblings": siblings, **facts, **times, **counts}
        return self.json(told, files)

    @staticmethod
    def entry(files: dict[str, bytes], path: str) -> dict[str, Any]:
        content = files[path]
        return {"type": "file", "path": path, "size": len(content), "oid": sha1(content)}

    def file(self, files: dict[str, bytes], path: str, faults: list[int]) -> None:
        if path not in files:
            return self.missing(files)
        content = files[path]
        headers = {"ETag": f'"{sha1(content)}"', "X-Repo-Commit": commit_of(files)}
        headers |= {"Accept-Ranges": "bytes"}
        if self.command == "GET":
            self.hub.asked[path] += 1
            if faults:
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

    def missing(self, files: dict[str, bytes]) -> None:
        self.say(404, b"{}", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit_of(files)})

    def refuse(self, status: int, code: str, message: str) -> None:
        body = json.dumps({"error": message}).encode()
        self.say(status, body, {"X-Error-Code": code, "X-Error-Message": message, "Content-Type": "application/json"})

    def json(self, value: Any, files: dict[str, bytes]) -> None:
        headers = {"Content-Type": "application/json", "X-Repo-Commit": commit_of(files)}
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
