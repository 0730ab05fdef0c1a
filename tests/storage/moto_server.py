"""Serve moto's S3 on a port of the loopback interface: ``python moto_server.py PORT``.

moto checks a condition (If-Match, If-None-Match) and then stores the object, without a lock: of two writers
that create one object at the same time, both could succeed. S3 does not allow that, so this program handles
one request at a time once it has read its body. moto computes in Python, so that costs no throughput.

moto's own server finds the service of each request first, and lists its 170 services on disk for that, which
takes longer than the request itself. This program only serves S3.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple
from werkzeug.wsgi import get_input_stream

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


def one_at_a_time(application: WSGIApplication) -> WSGIApplication:
    """Return the application with requests that wait for each other, but not for a client's body."""
    lock = threading.Lock()

    def handle(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        body = get_input_stream(environ).read()
        environ["wsgi.input"] = io.BytesIO(body)
        environ["CONTENT_LENGTH"] = str(len(body))
        with lock:
            return list(application(environ, start_response))

    return handle


if __name__ == "__main__":
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    run_simple("127.0.0.1", int(sys.argv[1]), one_at_a_time(create_backend_app("s3")), threaded=True)
