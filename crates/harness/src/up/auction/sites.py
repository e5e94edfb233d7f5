"""The sites of `sidelong up --demo auction` in one server, which knows them by the Host header: so a node can move between them.

`files` are static, from the directory AUCTION_FILES. All else is the auction, with `api` for its JSON.
"""

import os
import re
from wsgiref.util import FileWrapper

import app

FILES = os.environ["AUCTION_FILES"]
FILE = re.compile("/o/([0-9]{1,9})/([0-9]{1,9})")


def application(environ, start_response):
    if environ.get("HTTP_HOST", "").partition(".")[0] == "files":
        return files(environ, start_response)
    return app.application(environ, start_response)


def files(environ, start_response):
    found = FILE.fullmatch(environ.get("PATH_INFO", ""))
    try:
        file = open(os.path.join(FILES, "-".join(found.groups())) if found else "", "rb")
    except FileNotFoundError:
        start_response("404 Not Found", [("Content-Type", "text/plain"), ("Content-Length", "0")])
        return []
    length = str(os.fstat(file.fileno()).st_size)
    headers = [("Content-Type", "text/plain"), ("Content-Length", length), ("X-Served-By", app.SERVER)]
    start_response("200 OK", headers)
    return environ.get("wsgi.file_wrapper", FileWrapper)(file)
