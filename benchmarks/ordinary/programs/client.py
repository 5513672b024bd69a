"""Sends one picture after the other to the server, with 4 ms between an answer and the next request."""

import http.client
import json
import os
import sys
import time


def main() -> None:
    port, count = int(sys.argv[1]), int(sys.argv[2])
    connection = http.client.HTTPConnection("127.0.0.1", port)
    body = json.dumps({"pixels": os.urandom(96 * 96 * 3).hex()})
    for _ in range(count):
        connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
        connection.getresponse().read()
        time.sleep(0.004)
    connection.request("POST", "/done", "")
    connection.getresponse().read()


if __name__ == "__main__":
    main()
