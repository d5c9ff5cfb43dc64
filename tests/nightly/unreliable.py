"""An object store behind a network that is slow, breaks off, and loses and cuts answers."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

FAULTS = ("late", "busy", "reset", "lost", "cut", "short")
SECONDS = 0.05  # of one that is late
BUSY = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
BETWEEN = ("connection", "date", "server", "transfer-encoding")  # headers of one connection


class Unreliable(ThreadingHTTPServer):
    """A server on this machine that hands requests on, and may harm each as a seed has it.

    *late* answers late, *busy* with 503; *reset* ends the connection before the request is handed
    on, *lost* before the answer is; *cut* ends it within the answer, and *short* leaves out the end
    of an answer as if it were whole.
    """

    daemon_threads = True

    def __init__(self, address: str) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.store = urlsplit(address).netloc
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.seed, self.share, self.asked = 0, 0.0, Counter[str]()

    def harm(self, seed: int, share: float) -> None:
        """Harm this share of the requests from now on."""
        self.seed, self.share, self.asked = seed, share, Counter()

    def fault(self, request: str) -> str | None:
        """What happens to a request: the same, whichever thread asks first."""
        self.asked[request] += 1
        rng = random.Random(f"{self.seed} {request} {self.asked[request]}")
        return rng.choice(FAULTS) if rng.random() < self.share else None

    def handle_error(self, *_: Any) -> None:
        """Say nothing of connections that end."""


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Unreliable

    def handle_one(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.server.fault(f"{self.command} {self.path}")
        if fault == "late":
            time.sleep(SECONDS)
        if fault == "reset":
            return self.end()
        if fault == "busy":
            return self.answer(503, {"Content-Type": "application/xml"}, BUSY)
        store = HTTPConnection(self.server.store, timeout=30)
        with contextlib.closing(store):
            store.request(self.command, self.path, body, dict(self.headers))
            answer: HTTPResponse = store.getresponse()
            content = answer.read()
        if fault == "lost":
            return self.end()
        kept = {k: v for k, v in answer.getheaders() if k.lower() not in BETWEEN}
        half = content[: len(content) // 2]
        if fault == "short" and half:
            return self.answer(answer.status, kept | {"Content-Length": str(len(half))}, half)
        if fault == "cut" and half:
            self.answer(answer.status, kept, half)
            return self.end()
        self.answer(answer.status, kept, content)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_one  # noqa: N815

    def answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        if self.command != "HEAD":
            headers = {"Content-Length": str(len(content))} | headers
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def end(self) -> None:
        """Reset the connection."""
        self.close_connection = True
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def unreliable(address: str) -> Iterator[Unreliable]:
    """Serve the object store at an address, at another."""
    with Unreliable(address) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
