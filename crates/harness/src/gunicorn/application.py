"""What `sidelong up --servers gunicorn` serves: /o/NAME/BYTES, each request for the service time of its node."""

import os
import random
import time

SERVICE = os.environ["SIDELONG_SERVICE"]
MEAN_S = float(os.environ["SIDELONG_SERVICE_MS"]) / 1000
BYTES_MAX = 1 << 24


def serve():
    """Holds the worker as the built-in origin would."""
    if SERVICE == "fixed":
        time.sleep(MEAN_S)
    elif SERVICE == "exponential":
        time.sleep(random.expovariate(1 / MEAN_S))
    elif SERVICE == "burn":
        end = time.thread_time() + random.expovariate(1 / MEAN_S)
        while time.thread_time() < end:
            pass


def application(environ, start_response):
    digits = environ["PATH_INFO"].rpartition("/")[2]
    body = bytes(min(int(digits), BYTES_MAX)) if digits.isdigit() else b"ok\n"
    serve()
    start_response("200 OK", [("Content-Type", "application/octet-stream"), ("Content-Length", str(len(body)))])
    return [body]
