"""A server of W&B, as far as a run that is written needs one: who asks, runs by id, and their history."""

from __future__ import annotations

import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HISTORY = "wandb-history.jsonl"


class FakeWandb:
    """history: run id to its lines, as they were streamed. asked: names of queries, in order. received: all
    that came.
    """

    def __init__(self) -> None:
        self.history: dict[str, list[dict[str, Any]]] = {}
        self.runs: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.received: list[bytes] = []
        self.keys: set[str] = set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                server.keys.add(self.headers.get("Authorization", ""))
                server.received.append(body)
                try:
                    told = json.loads(body or b"{}")
                except ValueError:  # of what else it sends
                    server.asked.append(self.path)
                    told = {}
                answer = server._answer(self.path, told)
                text = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def do_GET(self) -> None:
                self.do_POST()

            def log_message(self, *given: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, path: str, told: dict[str, Any]) -> dict[str, Any]:
        if path.endswith("/file_stream"):
            run = path.split("/")[-2]
            lines = told.get("files", {}).get(HISTORY)
            if lines:
                kept = self.history.setdefault(run, [])
                del kept[lines["offset"] :]
                kept += map(json.loads, lines["content"])
            return {}
        query, given = told.get("query", ""), told.get("variables") or {}
        name = told.get("operationName") or query.split("(")[0].split("{")[0].strip()
        self.asked.append(name)
        return {"data": self._data(name, query, given)}

    def _data(self, name: str, query: str, given: dict[str, Any]) -> dict[str, Any]:
        if "upsertBucket" in query:
            run = given.get("name") or given.get("id")
            is_new = run not in self.runs
            self.runs.setdefault(run, {}).update({key: value for key, value in given.items() if value})
            return {"upsertBucket": {"bucket": self._bucket(run), "inserted": is_new}}
        if "RunResumeStatus" in name or "wandbConfig" in query:
            run = given.get("name")
            bucket = self._resumed(run) if run in self.runs else None
            model = {"id": "cA==", "name": given.get("project"), "entity": {"id": "ZQ==", "name": "me"}}
            return {"model": model | {"bucket": bucket}}
        return {
            "viewer": {"id": "dg==", "username": "me", "entity": "me", "email": "me@example.com",
                       "flags": "{}", "teams": {"edges": []}},
            "serverInfo": {"cliVersionInfo": {"max_cli_version": "99.0.0"}, "latestLocalVersionInfo": None,
                           "features": []},
            "createRunFiles": {"runID": "cg==", "uploadHeaders": [], "files": []},
        }  # fmt: skip

    def _bucket(self, run: str) -> dict[str, Any]:
        return {
            "id": "cg==", "name": run, "displayName": self.runs[run].get("displayName", run),
            "description": None, "config": "{}", "sweepName": None,
            "historyLineCount": len(self.history.get(run, [])),
            "project": {"id": "cA==", "name": self.runs[run].get("project", "p"),
                        "entity": {"id": "ZQ==", "name": "me"}},
        }  # fmt: skip

    def _resumed(self, run: str) -> dict[str, Any]:
        lines = self.history.get(run, [])
        last = lines[-1] if lines else {}
        return self._bucket(run) | {
            "logLineCount": 0, "eventsLineCount": 0, "eventsTail": "[]", "wandbConfig": '{"t": 1}',
            "historyTail": json.dumps([json.dumps(last)] if last else []),
            "summaryMetrics": json.dumps(last), "tags": [],
        }  # fmt: skip
