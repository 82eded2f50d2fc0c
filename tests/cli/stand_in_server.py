"""A program in the place of the model server: no model, the same manners, or bad ones on purpose.

Usage: ``python stand_in_server.py MANNERS FILE``. It writes its process id to FILE.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

manners, pid_file = sys.argv[1], Path(sys.argv[2])
asked = {"/health": 0, "/slots": 0}


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    offered = False

    def do_GET(self) -> None:
        asked[self.path] += 1
        if manners == "loading" and asked["/health"] < 3:
            self._send(503, {"error": {"code": 503}})
        elif self.path == "/health":
            self._send(200, {"status": "ok"})
        elif manners == "no-slots":
            self._send(501, {"error": {"code": 501}})
        else:
            busy = manners == "busy" and asked["/slots"] < 3
            self._send(200, [{"id": 0, "is_processing": busy}, {"id": 1, "is_processing": False}])

    def do_POST(self) -> None:
        """Offer to keep the connection, and close it under the next request."""
        self.rfile.read(int(self.headers["content-length"]))
        self.close_connection, self.offered = self.offered, True
        if self.close_connection:
            return
        delta = {"content": "Hello"}
        choice = {"index": 0, "delta": delta, "finish_reason": "stop"}
        self._send_as("text/event-stream", f"data: {json.dumps({'choices': [choice]})}\n\n")

    def _send(self, status: int, body: object) -> None:
        self._send_as("application/json", json.dumps(body), status)

    def _send_as(self, kind: str, text: str, status: int = 200) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


signal.signal(signal.SIGINT, signal.SIG_IGN)
if manners == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
partial = pid_file.with_suffix(".part")
partial.write_text(str(os.getpid()))
partial.rename(pid_file)
if manners == "broken":
    sys.exit("cannot open the model\nno such tensor")
if manners != "silent":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    sys.stdout.write(f"http://127.0.0.1:{server.server_port}\n")
    sys.stdout.flush()
    if manners == "leaving":
        sys.exit("changed my mind")
    threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.buffer.read()
while manners == "stubborn":
    signal.pause()
