"""Servers, and clients that ask them through Sidelong while its parts are replaced.

python3 traffic.py serve PORT
python3 traffic.py ask URL DIR KIND...   until DIR/stop exists. Then DIR/failed has a line for each request that failed, and DIR/asked says
                                         what was asked. A kind is a method of Clients.
"""

import http.client
import http.server
import os
import socket
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

HOST = "app.example"
UPLOAD = b"x" * 65536


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Of the last bytes of an answer none waits for an acknowledgement.
    disable_nagle_algorithm = True

    def do_GET(self):
        if "upgrade" in self.headers.get("connection", "").lower():
            return self.echo()
        pause = 0.05 if self.path == "/slow" else 0
        self.send_response(200)
        self.send_header("content-length", "10")
        self.end_headers()
        for _ in range(10):
            time.sleep(pause)
            self.wfile.write(b"x")

    def do_POST(self):
        length = int(self.headers["content-length"])
        got = b"%d" % len(self.rfile.read(length))
        self.send_response(200)
        self.send_header("content-length", str(len(got)))
        self.end_headers()
        self.wfile.write(got)

    def echo(self):
        self.send_response(101)
        self.send_header("connection", "upgrade")
        self.send_header("upgrade", "websocket")
        self.end_headers()
        self.close_connection = True
        while said := self.connection.recv(4096):
            self.connection.sendall(said)

    def log_message(self, *_):
        pass


class Clients:
    def __init__(self, url, directory):
        self.url, self.directory = url, directory
        address = urlsplit(url)
        self.place = (address.hostname, address.port or 80)
        self.lock = threading.Lock()
        self.asked, self.failed, self.waits = {}, [], []

    def connection(self):
        return http.client.HTTPConnection(*self.place, timeout=60)

    def kept(self):
        """A connection until an answer says that it is the last there, as those of browsers and other proxies."""
        connection = self.connection()
        while True:
            yield self.get(connection, "/")
            time.sleep(0.005)

    def fresh(self):
        while True:
            began = time.monotonic()
            done = self.get(self.connection(), "/")
            self.waits.append(time.monotonic() - began)
            yield done
            time.sleep(0.005)

    def slow(self):
        while True:
            yield self.get(self.connection(), "/slow")

    def get(self, connection, path):
        connection.request("GET", path, headers={"host": HOST})
        answer = connection.getresponse()
        return answer.status == 200 and answer.read() == b"x" * 10

    def upload(self):
        def body():
            for _ in range(8):
                time.sleep(0.02)
                yield UPLOAD

        while True:
            connection = self.connection()
            length = str(8 * len(UPLOAD))
            connection.request("POST", "/", body=body(), headers={"host": HOST, "content-length": length})
            answer = connection.getresponse()
            yield answer.status == 200 and answer.read().decode() == length

    def tunnel(self):
        """What a WebSocket is to a proxy."""
        head = f"GET / HTTP/1.1\r\nhost: {HOST}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
        while True:
            with socket.create_connection(self.place, timeout=60) as connection:
                connection.sendall(head.encode())
                answer = b""
                while b"\r\n\r\n" not in answer:
                    if not (more := connection.recv(1)):
                        break
                    answer += more
                done = answer.startswith(b"HTTP/1.1 101")
                for number in range(20):
                    said = b"%08d" % number
                    connection.sendall(said)
                    done = done and connection.recv(8, socket.MSG_WAITALL) == said
                    time.sleep(0.02)
                yield done

    def http2(self):
        """Requests that follow each other on one connection, by curl."""
        names = ["--silent", "--show-error", "--fail", "--fail-early", "--insecure", "--http2", "--max-time", "60", "--rate", "50/s"]
        while True:
            command = ["curl", *names, "--header", f"host: {HOST}", *[self.url, "--output", "/dev/null"] * 25]
            yield subprocess.run(command, check=False).returncode == 0

    def run(self, kind):
        while not os.path.exists(f"{self.directory}/stop"):
            try:
                for done in kind():
                    with self.lock:
                        self.asked[kind.__name__] = self.asked.get(kind.__name__, 0) + 1
                    if not done:
                        raise OSError("another answer than expected")
                    if os.path.exists(f"{self.directory}/stop"):
                        break
            except Exception as error:  # none ends a client unseen
                with self.lock:
                    self.failed.append(f"{time.strftime('%T')} {kind.__name__}: {error!r}")

    def all(self, kinds):
        threads = [threading.Thread(target=self.run, args=(kind,)) for kind in kinds for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        waits = sorted(self.waits)
        with open(f"{self.directory}/asked", "w", encoding="utf-8") as out:
            print(", ".join(f"{count} {kind}" for kind, count in self.asked.items()), file=out)
            if waits:
                at = lambda share: f"{waits[int((len(waits) - 1) * share)] * 1000:.1f} ms"
                print(f"fresh connections: median {at(0.5)}, p99 {at(0.99)}, worst {at(1)}", file=out)
        with open(f"{self.directory}/failed", "w", encoding="utf-8") as out:
            out.writelines(line + "\n" for line in self.failed)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", port]:
            http.server.ThreadingHTTPServer.request_queue_size = 128
            http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Server).serve_forever()
        case ["ask", url, directory, *kinds]:
            clients = Clients(url, directory)
            clients.all([getattr(clients, kind) for kind in kinds])
        case _:
            sys.exit(__doc__)
