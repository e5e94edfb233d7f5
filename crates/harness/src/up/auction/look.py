"""Whether AUCTION_DATABASE has an auction, for `gunicorn --check-config look`: it ends with the reason if not."""

import os
import sys

import database

try:
    with database.connect(os.environ["AUCTION_DATABASE"]).reading() as db:
        db.one("SELECT id FROM items LIMIT 1")
except (database.Unavailable, ImportError) as error:
    sys.exit(f"{error}")


def application(environ, start_response):
    """gunicorn wants one, and serves none here."""
