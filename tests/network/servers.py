"""The servers of a network of a test's own: names, HTTP with and without TLS, HTTP/2, git.

The argument is a directory: it has `zone.json`, `leaf.pem`, `leaf.key`, and below `www` a directory for each host; what was asked is noted in `asked`; a host with a
file below `behind`, in which a port stands, is a server of the test's

Each listens at every address. It says `ready` on its standard output, and ends with its standard input.
"""

import base64
import collections
import http.client
import http.server
import json
import os
import re
import socket
import socketserver
import ssl
import struct
import subprocess
import sys
import threading
import urllib.parse

ROOT = sys.argv[1]
# The value of a credential that is exchanged.
REAL = "the-real-value-of-a-credential"
# Of each name and type: answers in turn, the last for ever. An answer is a list of addresses, or the name that it is an alias of.
ZONE = json.load(open(f"{ROOT}/zone.json"))
ASKED = collections.Counter()
TYPES = {1: "A", 28: "AAAA"}
# What a datagram without EDNS has room for (RFC 1035, 4.2.1).
MOST_OF_DATAGRAM = 512


def encoded(name):
    return b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0"


def records(name, kind):
    """The records for a question, with those of its aliases."""
    turns = ZONE.get(name, {}).get(kind, [[]])
    turn = ASKED[name, kind]
    ASKED[name, kind] += 1
    found = turns[min(turn, len(turns) - 1)]
    if isinstance(found, str):
        return [(name, 5, encoded(found))] + records(found, kind)
    family, number = (socket.AF_INET, 1) if kind == "A" else (socket.AF_INET6, 28)
    return [(name, number, socket.inet_pton(family, address)) for address in found]


def answer(message, most):
    parts, at = [], 12
    while message[at]:
        parts.append(message[at + 1 : at + 1 + message[at]].decode().lower())
        at += 1 + message[at]
    question, name = message[12 : at + 5], ".".join(parts)
    kind = TYPES.get(struct.unpack(">H", message[at + 1 : at + 3])[0])
    found = records(name, kind) if kind and name in ZONE else []
    code = 0 if name in ZONE else 3
    body = b"".join(encoded(n) + struct.pack(">HHIH", k, 1, 0, len(d)) + d for n, k, d in found)
    cut = 12 + len(question) + len(body) > most
    if cut:
        ASKED[name, kind] -= 1
        found, body = [], b""
    flags = 0x8180 | code | (0x0200 if cut else 0)
    return message[:2] + struct.pack(">HHHHH", flags, 1, len(found), 0, 0) + question + body


class Names(socketserver.BaseRequestHandler):
    def handle(self):
        message, to = self.request
        to.sendto(answer(message, MOST_OF_DATAGRAM), self.client_address)


class NamesByStream(socketserver.StreamRequestHandler):
    def handle(self):
        # Whoever asks may hang up when it has read enough.
        while length := self.rfile.read(2):
            said = answer(self.rfile.read(struct.unpack(">H", length)[0]), 65535)
            self.wfile.write(struct.pack(">H", len(said)) + said)


class Web(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def setup(self):
        super().setup()
        if isinstance(self.request, ssl.SSLSocket) and self.request.selected_alpn_protocol() == "h2":
            self.handle = self.http2

    def host(self):
        return self.headers.get("Host", "").split(":")[0]

    def translate_path(self, path):
        return f"{ROOT}/www/{os.path.basename(self.host())}/" + super().translate_path(path)[len(os.getcwd()) :]

    def say(self, text, code=200, **headers):
        self.send_response(code)
        for name, value in {"Content-Length": str(len(text)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def note(self):
        """Notes in `asked` whether the request has the value that no jail has."""
        said = " ".join(value for name, value in self.headers.items() if name.lower() in ("authorization", "x-api-key", "x-goog-api-key"))
        kind, _, token = said.partition(" ")
        if kind.lower() == "basic":
            said = base64.b64decode(token).decode()
        had = "the value" if REAL in said else "a placeholder" if "placeholder" in said else "nothing"
        with open(f"{ROOT}/asked", "a") as file:
            file.write(f"{self.host()} {self.path} {had}\n")

    def behind(self, port):
        """Passes the request on to a server of the test's, on a port of its own, as a front of TLS does."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        server = http.client.HTTPConnection("127.0.0.1", port)
        server.request(self.command, self.path, body, dict(self.headers))
        answer = server.getresponse()
        self.say(answer.read(), answer.status, **{"Content-Type": answer.getheader("Content-Type", "text/plain")})

    def do_GET(self):
        self.note()
        behind = f"{ROOT}/behind/{os.path.basename(self.host())}"
        if os.path.exists(behind):
            return self.behind(int(open(behind).read()))
        target = urllib.parse.urlsplit(self.path)
        if target.path == "/to":
            return self.say(b"elsewhere\n", 302, Location=target.query)
        if target.path.startswith("/git/"):
            return self.git(target)
        if os.path.isdir(f"{ROOT}/www/{os.path.basename(self.host())}"):
            return super().do_GET()
        at = self.request.getsockname()[0].removeprefix("::ffff:")
        self.say(f"served {self.host()} at {at}\n".encode())

    do_HEAD = do_POST = do_GET

    def git(self, target):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        environment = dict(
            os.environ, GIT_PROJECT_ROOT=f"{ROOT}/git", GIT_HTTP_EXPORT_ALL="1", PATH_INFO=target.path[4:],
            QUERY_STRING=target.query, REQUEST_METHOD=self.command, REMOTE_USER="test", REMOTE_ADDR="203.0.113.1",
            CONTENT_TYPE=self.headers.get("Content-Type", ""), CONTENT_LENGTH=str(len(body)),
            HTTP_CONTENT_ENCODING=self.headers.get("Content-Encoding", ""), GIT_PROTOCOL=self.headers.get("Git-Protocol", ""))
        said = subprocess.run(["git", "http-backend"], input=body, stdout=subprocess.PIPE, env=environment).stdout
        head, text = said.split(b"\r\n\r\n", 1)
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.say(text, int(headers.pop("Status", "200").split()[0]), **headers)

    def http2(self):
        """One answer to each request, whatever it asks for (RFC 9113)."""
        frame = lambda kind, flags, stream, body: self.wfile.write(
            struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body)
        self.rfile.read(24)
        frame(4, 0, 0, b"")
        while len(head := self.rfile.read(9)) == 9:
            body = self.rfile.read(int.from_bytes(head[:3], "big"))
            stream = struct.unpack(">I", head[5:])[0]
            if head[3] == 4 and not head[4] & 1:
                frame(4, 1, 0, b"")
            if head[3] == 1:
                # `:status: 200` in the static table (RFC 7541, A).
                frame(1, 4, stream, b"\x88")
                frame(0, 1, stream, b"served by HTTP/2\n")
            del body


class Dual(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
    request_queue_size = 1024


def start(server):
    threading.Thread(target=server.serve_forever, daemon=True).start()


def main():
    socketserver.ThreadingTCPServer.allow_reuse_address = True
    socketserver.BaseServer.handle_error = lambda *_: None
    start(socketserver.ThreadingUDPServer(("127.0.0.1", 53), Names))
    start(socketserver.ThreadingTCPServer(("127.0.0.1", 53), NamesByStream))
    # Also what a session must not reach on this host: ports that it may have elsewhere.
    for port in (80, 8000, 25, 465, 587):
        start(Dual(("::", port), Web))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{ROOT}/leaf.pem", f"{ROOT}/leaf.key")
    with_http2 = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with_http2.load_cert_chain(f"{ROOT}/leaf.pem", f"{ROOT}/leaf.key")
    with_http2.set_alpn_protocols(["h2", "http/1.1"])

    def choose(socket, name, _):
        if re.match(r"h2\.", name or ""):
            socket.context = with_http2

    context.sni_callback = choose

    class Tls(Web):
        def setup(self):
            self.request = context.wrap_socket(self.request, server_side=True)
            super().setup()

    start(Dual(("::", 443), Tls))
    print("ready", flush=True)
    sys.stdin.read()


main()
