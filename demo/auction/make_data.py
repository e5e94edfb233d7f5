"""Users, items, bids and comments by the public parameters of RUBiS, from a seed.

At scale 1: 1,000,000 users, 32,667 open auctions in 20 categories and 500,000 that have ended, 0 to 19 bids and a comment on each item.
Where RUBiS opens all auctions at one moment, these have been open for a random part of their 1 to 7 days, so that some end while one
looks. The highest bid is what was bid, where RUBiS adds as much again.
"""

import csv
import hashlib
import os
import random
import secrets
import time

import database
import market
import passwords

USERS = 1_000_000
OLD_ITEMS = 500_000
UNIQUE = 0.8
RESERVE = 0.4
BUY_NOW = 0.1
QUANTITY = 10
DESCRIPTION = 8192
PRICE = 5000
EXTRA = 1000
DAYS = 7
BIDS = 20
RAISE = 10
COMMENT = 2048
# How long ago an ended auction may have ended.
PAST_DAYS = 90
# user1 to userN have passwords that all may know, so their hashes may be cheap: 20 us each.
CHEAP_SCRYPT = (16, 1, 1)

FIRST = "Ada Alan Barbara Carl Dana Edsger Frances Grace Hedy Ivan Jean John Ken Kurt Leslie Margaret Niklaus Radia Tony Whitfield".split()
LAST = "Adams Baker Carter Dixon Evans Fischer Garcia Hughes Ivanova Jensen Klein Lopez Moreau Novak Okafor Perez Rossi Sato".split()
LOOKS = "Rare,Vintage,Signed,Restored,Small,Large,Early,Hand-made,Boxed,Curious,Fine,Worn,Original,Miniature".split(",")
SENTENCES = """Bought at a country sale and kept in a dry room ever since.
There is some wear at the edges, as one would expect of its age.
The photographs do not do it justice.
It comes from a house without smokers and with one well-behaved cat.
Please ask before bidding if anything is unclear.
All parts are original except for one screw.
My grandfather used it every day and would not hear a word against it.
It will be packed with care and sent within two days.
I have seen only three of these in twenty years.
There is a small mark on the underside that cannot be seen when it stands.
It has been cleaned with nothing but a soft cloth.
The maker's stamp is still clear under a glass.
I am selling because we are moving to a smaller place.
A certificate goes with it, though the ink has faded.
It would look splendid on a shelf, and nearly as good in a box.""".split("\n")
REMARKS = """Arrived quickly and just as described. Well packed, and a kind note was in the parcel.
It took a while, but the seller answered every question. I would buy here again.
Not quite what I expected from the description. The seller offered to take it back.
A pleasure from beginning to end. Recommended without a second thought.""".split("\n")


def make(where, scale, seed, progress):
    """Makes the auction at `where`. The same scale and seed give the same rows, with times counted from now."""
    maker = Maker(scale, seed)
    target = database.connect(where)
    target.create()
    for table, columns, rows in maker.tables():
        target.load(table, columns, counted(rows, table, progress))
    progress("indexes")
    target.finish()


def counted(rows, table, progress):
    number = 0
    for number, row in enumerate(rows, 1):
        yield row
        if number % 10_000 == 0:
            progress(f"{number:,} {table}")
    progress(f"{number:,} {table}")


class Maker:
    """The rows, table by table. Items come first, since bids and comments follow from them, and ratings from comments."""

    def __init__(self, scale, seed):
        self.random = random.Random(seed)
        self.now = int(time.time())
        self.users = max(2, round(USERS * scale))
        here = os.path.dirname(os.path.abspath(__file__))
        with open(os.path.join(here, "regions.csv"), encoding="utf-8") as file:
            self.regions = [(int(row["id"]), row["name"]) for row in csv.DictReader(file)]
        with open(os.path.join(here, "categories.csv"), encoding="utf-8") as file:
            self.categories = list(csv.DictReader(file))
        self.open = [max(1, round(int(row["active_items"]) * scale)) for row in self.categories]
        self.ended = round(OLD_ITEMS * scale)
        self.ratings = [0] * (self.users + 1)
        chosen = [self.random.choice(SENTENCES) for _ in range(2000)]
        paragraphs = [" ".join(chosen[begin : begin + 4]) for begin in range(0, len(chosen), 4)]
        self.prose = "\n\n".join(paragraphs)
        # Where a text may begin: with a paragraph that has enough behind it.
        ends = [index for index in range(len(self.prose) - DESCRIPTION) if self.prose.startswith("\n\n", index)]
        self.begins = [0] + [index + 2 for index in ends if index + 2 + DESCRIPTION <= len(self.prose)]
        self.bids, self.comments = [], []

    def upto(self, number):
        """A whole number from 0, less than `number`."""
        return int(self.random.random() * number)

    def tables(self):
        items = list(self.items())
        site = (self.now, secrets.token_hex(32), self.users, len(items))
        yield "site", ("made", "secret", "users", "items"), [site]
        yield "regions", ("id", "name"), self.regions
        yield "categories", ("id", "name"), [(int(row["id"]), row["name"]) for row in self.categories]
        columns = "id firstname lastname nickname password email rating created region"
        yield "users", columns.split(), self.people()
        columns = "id name description category seller initial_price reserve_price buy_now offered quantity nb_of_bids max_bid"
        yield "items", f"{columns} start_date end_date".split(), (self.described(item) for item in items)
        yield "bids", "id item bidder bid qty date".split(), self.bids
        yield "comments", "id item author subject rating date comment".split(), self.comments

    def people(self):
        for number in range(1, self.users + 1):
            salt = f"{self.upto(1 << 64):016x}"
            password = passwords.hashed(f"password{number}", CHEAP_SCRYPT, salt)
            names = FIRST[self.upto(len(FIRST))], LAST[self.upto(len(LAST))]
            nickname = f"user{number}"
            created = self.now - (PAST_DAYS + DAYS + self.upto(1000)) * market.DAY_S
            region = self.regions[number % len(self.regions)][0]
            yield number, *names, nickname, password, f"{nickname}@example.org", self.ratings[number], created, region

    def items(self):
        weights = [int(row["active_items"]) for row in self.categories]
        kinds = [index for index, count in enumerate(self.open) for _ in range(count)]
        active = len(kinds)
        kinds += self.random.choices(range(len(self.categories)), weights, k=self.ended)
        for number, kind in enumerate(kinds, 1):
            yield self.item(number, kind, number <= active)

    def item(self, number, kind, is_open):
        """An item without its description; its bids and its comment go to their lists."""
        chance, upto = self.random.random, self.upto
        things = self.categories[kind]["things"].split("|")
        name = f"{LOOKS[upto(len(LOOKS))]} {things[upto(len(things))]} no. {number}"
        duration = (1 + upto(DAYS)) * market.DAY_S
        end = self.now + 1 + upto(duration) if is_open else self.now - upto(PAST_DAYS * market.DAY_S)
        start = end - duration
        until = min(end, self.now)
        seller = 1 + upto(self.users)
        initial = 1 + upto(PRICE)
        quantity = 1 if chance() < UNIQUE else 1 + upto(QUANTITY)
        reserve = initial + upto(EXTRA) if chance() < RESERVE else 0
        buy_now = initial + reserve + upto(EXTRA) if chance() < BUY_NOW else 0
        count, highest = upto(BIDS), 0
        for index in range(count):
            highest = highest + 1 + upto(RAISE) if highest else initial + upto(RAISE)
            date = start + (until - start) * (index + 1) // (count + 1)
            bid = (len(self.bids) + 1, number, self.other_than(seller), highest, 1 + upto(quantity), date)
            self.bids.append(bid)
        rating = (-5, -3, 0, 3, 5)[upto(5)]
        self.ratings[seller] += rating
        remark = (REMARKS[upto(len(REMARKS))] + "\n" + self.slice(COMMENT))[:COMMENT]
        self.comments.append((number, number, self.other_than(seller), seller, rating, until, remark))
        prices = initial, reserve, buy_now, quantity, quantity
        return number, name, kind + 1, seller, *prices, count, highest, start, end

    def described(self, item):
        number, name, *rest = item
        return number, name, self.slice(DESCRIPTION), *rest

    def slice(self, length_max):
        """Uniform 1 to `length_max` characters of prose."""
        begin = self.begins[self.upto(len(self.begins))]
        return self.prose[begin : begin + 1 + self.upto(length_max)]

    def other_than(self, user):
        other = 1 + self.upto(self.users - 1)
        return other + (other >= user)


def digest(where):
    """A hash of all rows, with times counted from when the data were made, and without the key of the sessions."""
    times = {"created", "start_date", "end_date", "date"}
    sha = hashlib.sha256()
    with database.connect(where).reading() as db:
        made = market.site(db)["made"]
        for table in ("regions", "categories", "users", "items", "bids", "purchases", "comments"):
            last = 0
            while rows := db.all(f"SELECT * FROM {table} WHERE id > ? ORDER BY id LIMIT 5000", last):
                for row in rows:
                    values = [row[key] - made if key in times else row[key] for key in sorted(row)]
                    sha.update(repr((table, values)).encode())
                last = rows[-1]["id"]
    return sha.hexdigest()
