"""A client of the server: asks again and again over one connection, until it is ended."""

from __future__ import annotations

import http.client
import time

while True:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", 30000, timeout=5)
        while True:
            connection.request("GET", "/v1/models")
            connection.getresponse().read()
            time.sleep(0.3)
    except OSError:
        time.sleep(0.3)
    except http.client.HTTPException:
        time.sleep(0.3)
