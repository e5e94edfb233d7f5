"""The commands beside the server: `python3 demo/auction make-data`, `audit` and `digest`."""

import argparse
import os
import sys
import time

import audit
import make_data
from database import Unavailable, shown


def scale(text):
    value = float(text)
    if not 0.0001 <= value <= 10:
        raise argparse.ArgumentTypeError("must be from 0.0001 to 10")
    return value


def main():
    parser = argparse.ArgumentParser(prog="auction", description="The auction's data: see docs/auction.md.")
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make-data", help="make users, items, bids and comments from a seed")
    making.add_argument("--scale", type=scale, default=0.01, help="1 is RUBiS: 1,000,000 users, 532,667 items (default 0.01)")
    making.add_argument("--seed", type=int, default=1, help="the same seed gives the same data (default 1)")
    commands.add_parser("audit", help="check that bids, stock and ratings add up; exit with 1 if not")
    commands.add_parser("digest", help="print a hash of the data, the same in SQLite and PostgreSQL")
    for command in commands.choices.values():
        command.add_argument(
            "--database",
            default=os.environ.get("AUCTION_DATABASE") or "auction.db",
            help="a file, or postgres://user:password@host/name (default: AUCTION_DATABASE, or auction.db)",
        )
    options = parser.parse_args()
    try:
        if options.command == "make-data":
            make(options)
        elif options.command == "digest":
            print(make_data.digest(options.database))
        else:
            lines, failed = audit.audit(options.database)
            print("\n".join(lines))
            sys.exit(1 if failed else 0)
    except (Unavailable, OSError) as error:
        sys.exit(f"auction: {error}")


def make(options):
    begun, database = time.monotonic(), shown(options.database)
    is_terminal = sys.stderr.isatty()

    def progress(text):
        if is_terminal:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    make_data.make(options.database, options.scale, options.seed, progress)
    if is_terminal:
        print("\r\x1b[K", end="", file=sys.stderr)
    print(f"made {database} at scale {options.scale:g} from seed {options.seed} in {time.monotonic() - begun:.1f} s")


main()
