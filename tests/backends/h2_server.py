#!/usr/bin/python3
"""An OpenAI-style server that speaks HTTP/2 only, on the independent package python3-h2.

    h2_server.py plain|tls TOKENS GAP_MS [MAX_STREAMS]

Prints its port, then serves until its standard input ends; then prints one line of JSON: connections,
streams reset by the client, the most streams open at once on one connection, requests, and for each
answered request, by stream, when (monotonic, ns) its events had been written. With a gap of
0 all events of a stream are written at once. With MAX_STREAMS it allows only so many on a connection.
"""
import asyncio
import json
import signal
import ssl
import sys
import time

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded, StreamReset
from h2.settings import SettingCodes

MODE, TOKENS, GAP = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) / 1000
MAX_STREAMS = int(sys.argv[4]) if len(sys.argv) > 4 else 0
seen = {"connections": 0, "resets": 0, "most_open": 0, "posts": 0, "body_bytes": 0}
written_ns = {}


class Server(asyncio.Protocol):
    def connection_made(self, transport):
        seen["connections"] += 1
        self.transport, self.paths, self.open = transport, {}, set()
        self.h2 = H2Connection(H2Configuration(client_side=False))
        if MAX_STREAMS:
            self.h2.local_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = MAX_STREAMS
        self.h2.initiate_connection()
        self.flush()

    def flush(self):
        self.transport.write(self.h2.data_to_send())

    def data_received(self, data):
        for ev in self.h2.receive_data(data):
            if isinstance(ev, RequestReceived):
                self.paths[ev.stream_id] = dict(ev.headers)[b":method"]
                self.open.add(ev.stream_id)
                seen["most_open"] = max(seen["most_open"], len(self.open))
            elif isinstance(ev, DataReceived):
                seen["body_bytes"] += len(ev.data)
                self.h2.acknowledge_received_data(ev.flow_controlled_length, ev.stream_id)
            elif isinstance(ev, StreamEnded):
                asyncio.ensure_future(self.answer(ev.stream_id))
            elif isinstance(ev, StreamReset):
                seen["resets"] += 1
                self.open.discard(ev.stream_id)
        self.flush()

    def send(self, sid, data, end=False):
        if sid in self.open:
            self.h2.send_data(sid, data, end_stream=end)
            self.flush()

    async def answer(self, sid):
        if self.paths[sid] == b"GET":
            self.h2.send_headers(sid, [(":status", "200"), ("content-type", "application/json")])
            self.send(sid, b'{"data":[{"id":"h2"}]}', True)
            self.open.discard(sid)
            return
        seen["posts"] += 1
        self.h2.send_headers(sid, [(":status", "200"), ("content-type", "text/event-stream")])
        self.flush()
        event = b'data: {"choices":[{"index":0,"text":"w","finish_reason":null}]}\n\n'
        for _ in range(TOKENS):
            if GAP:
                self.send(sid, event)
                written_ns.setdefault(sid, []).append(time.monotonic_ns())
                await asyncio.sleep(GAP)
            else:
                self.h2.send_data(sid, event)
        usage = b'data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":%d}}\n\n' % TOKENS
        self.send(sid, usage + b"data: [DONE]\n\n", True)
        self.open.discard(sid)


async def main():
    tls = None
    if MODE == "tls":
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain("tests/data/http/cert.pem", "tests/data/http/key.pem")
        tls.set_alpn_protocols(["h2"])
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Server, "127.0.0.1", 0, ssl=tls, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    print(json.dumps({**seen, "written_ns": [written_ns[sid] for sid in sorted(written_ns)]}), flush=True)


signal.signal(signal.SIGPIPE, signal.SIG_DFL)
try:
    asyncio.run(main())
except KeyboardInterrupt:
    pass
