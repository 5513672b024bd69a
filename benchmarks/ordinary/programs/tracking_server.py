"""A tracking server as far away as the next region: it answers every request after 15 ms."""

import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(0.015)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()
