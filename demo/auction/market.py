"""What people do at the auction, in the words of the database: searches, and the transactions in which bids, stock and ratings change.

The rules. A bid is higher than the one before it, is at least the initial price, is for no more than is left, and comes before the
auction ends and not from the seller. Buying at the buy-now price takes from the quantity; the auction ends when none is left. When an
auction ends, its highest bid wins what is left of the quantity that it asked for, if it reaches the reserve price.

A row that a form stores carries the form's `once`. A second form with the same one finds the row, and stores nothing.
"""

import time

from database import Conflict

PAGE_ITEMS = 20
PAGES_MAX = 10_000
DOLLARS_MAX = 10_000_000
QUANTITY_MAX = 1_000
DAY_S = 86_400
HISTORY_S = 30 * DAY_S
LIST_MAX = 100

ITEM = """SELECT items.*, categories.name AS category_name, users.nickname AS seller_name, users.rating AS seller_rating
    FROM items JOIN users ON users.id = items.seller JOIN categories ON categories.id = items.category WHERE items.id = ?"""
# What a list of items shows of each.
LISTED = """items.id, items.name, items.category, items.initial_price, items.max_bid, items.nb_of_bids, items.buy_now,
    items.quantity, items.end_date"""


class Refused(Exception):
    """The rules of the auction forbid it. Nothing has changed."""


class Missing(Exception):
    """There is no such thing."""


def found(row, what):
    if row is None:
        raise Missing(f"There is no such {what}.")
    return row


def least_bid(item):
    """The least that the next bid must offer."""
    return max(item["max_bid"] + 1, item["initial_price"])


def state(item):
    """open; or ended: sold, unsold (no bid, or the reserve price was not met), gone (all bought at the buy-now price)."""
    if item["quantity"] == 0:
        return "gone"
    if item["end_date"] > time.time():
        return "open"
    return "sold" if item["nb_of_bids"] and item["max_bid"] >= item["reserve_price"] else "unsold"


def site(db):
    return db.one("SELECT made, secret, users, items FROM site")


def categories(db):
    return db.all("SELECT id, name FROM categories ORDER BY id")


def regions(db):
    return db.all("SELECT id, name FROM regions ORDER BY name")


def category(db, number):
    return found(db.one("SELECT id, name FROM categories WHERE id = ?", number), "category")


def region(db, number):
    return found(db.one("SELECT id, name FROM regions WHERE id = ?", number), "region")


def search(db, category=None, region=None, words="", page=1):
    """A page of the open auctions, those that end soonest first, and whether there is another page."""
    where, values = "WHERE items.end_date > ?", [int(time.time())]
    if category is not None:
        where, values = where + " AND items.category = ?", values + [category]
    if region is not None:
        where, values = f"JOIN users ON users.id = items.seller {where} AND users.region = ?", values + [region]
    for word in words.lower().split()[:5]:
        escaped = word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        where, values = where + " AND lower(items.name) LIKE ? ESCAPE '\\'", values + [f"%{escaped}%"]
    values += [PAGE_ITEMS + 1, (page - 1) * PAGE_ITEMS]
    rows = db.all(f"SELECT {LISTED} FROM items {where} ORDER BY items.end_date, items.id LIMIT ? OFFSET ?", *values)
    return rows[:PAGE_ITEMS], len(rows) > PAGE_ITEMS


def item(db, number):
    return found(db.one(ITEM, number), "item")


def winner(db, item):
    """The winning bid of an auction that has ended, and the quantity that it gets; None if nobody has won."""
    if state(item) != "sold":
        return None
    bid = db.one(
        "SELECT bids.*, nickname FROM bids JOIN users ON users.id = bidder WHERE item = ? AND bid = ?",
        item["id"],
        item["max_bid"],
    )
    return dict(bid, qty=min(bid["qty"], item["quantity"]))


def bids(db, number):
    """An item's bids, the highest first."""
    return db.all(
        """SELECT bids.id, bid, qty, date, bidder, nickname FROM bids JOIN users ON users.id = bidder
        WHERE item = ? ORDER BY bid DESC LIMIT ?""",
        number,
        LIST_MAX,
    )


def user(db, number):
    return found(
        db.one(
            """SELECT users.id, firstname, lastname, nickname, rating, created, regions.name AS region_name
            FROM users JOIN regions ON regions.id = region WHERE users.id = ?""",
            number,
        ),
        "user",
    )


def comments(db, subject):
    return db.all(
        """SELECT comments.rating, date, comment, author, nickname, item, items.name AS item_name FROM comments
        JOIN users ON users.id = author JOIN items ON items.id = item WHERE subject = ? ORDER BY comments.id DESC LIMIT ?""",
        subject,
        LIST_MAX,
    )


def account(db, nickname):
    return db.one("SELECT id, password FROM users WHERE nickname = ?", nickname)


def about(db, user):
    """The user's own business: lists of items, by heading."""
    now = int(time.time())
    since = now - HISTORY_S
    mine = "JOIN (SELECT item, max(bid) AS mine FROM bids WHERE bidder = ? GROUP BY item) AS own ON own.item = items.id"
    limit = f"LIMIT {LIST_MAX}"
    return {
        "Bidding on": db.all(
            f"SELECT {LISTED}, mine FROM items {mine} WHERE end_date > ? ORDER BY end_date {limit}", user, now
        ),
        "Won in the last 30 days": db.all(
            f"""SELECT {LISTED}, mine FROM items {mine} WHERE end_date <= ? AND end_date > ? AND mine = max_bid
            AND max_bid >= reserve_price AND quantity > 0 ORDER BY end_date DESC {limit}""",
            user,
            now,
            since,
        ),
        "Bought in the last 30 days": db.all(
            f"""SELECT {LISTED}, price AS mine FROM items JOIN purchases ON purchases.item = items.id
            WHERE buyer = ? AND date > ? ORDER BY date DESC {limit}""",
            user,
            since,
        ),
        "Selling": db.all(
            f"SELECT {LISTED} FROM items WHERE seller = ? AND end_date > ? ORDER BY end_date {limit}", user, now
        ),
        "Sold in the last 30 days": db.all(
            f"""SELECT {LISTED} FROM items WHERE seller = ? AND end_date <= ? AND end_date > ?
            AND (quantity < offered OR nb_of_bids > 0 AND max_bid >= reserve_price) ORDER BY end_date DESC {limit}""",
            user,
            now,
            since,
        ),
    }


def repeatable(store):
    """Runs `store` once more if another transaction has stored the same unique value meanwhile: it finds it then."""

    def stored(*arguments, **fields):
        try:
            return store(*arguments, **fields)
        except Conflict:
            return store(*arguments, **fields)

    return stored


@repeatable
def register(database, *, firstname, lastname, nickname, password, email, region_id):
    """A new user's id. The nickname must be new."""
    with database.writing() as db:
        region(db, region_id)
        if account(db, nickname):
            raise Refused(f"The nickname {nickname} is taken.")
        return db.one(
            """INSERT INTO users (firstname, lastname, nickname, password, email, created, region)
            VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id""",
            *(firstname, lastname, nickname, password, email, int(time.time()), region_id),
        )["id"]


def done(db, table, person, user, item, once):
    """The row that the same form has stored before, or None."""
    row = db.one(f"SELECT * FROM {table} WHERE once = ?", once)
    if row and (row[person], row["item"]) != (user, item):
        raise Refused("This form belongs to something else. Open it again.")
    return row


def why_not(item, user, qty):
    """Why neither a bid nor a purchase is possible, or None."""
    if item["end_date"] <= time.time():
        return "The auction has ended."
    if item["seller"] == user:
        return "This is your own item."
    if item["quantity"] < qty:
        return f"There are only {item['quantity']} left."
    return None


@repeatable
def bid(database, user, number, *, bid, qty, once):
    """Stores a bid, and returns it."""
    with database.writing() as db:
        if earlier := done(db, "bids", "bidder", user, number, once):
            return earlier
        now = int(time.time())
        # One statement checks and changes, and its row lock puts the bids on an item in order.
        taken = db.one(
            """UPDATE items SET nb_of_bids = nb_of_bids + 1, max_bid = ?
            WHERE id = ? AND max_bid < ? AND initial_price <= ? AND quantity >= ? AND end_date > ? AND seller <> ? RETURNING id""",
            *(bid, number, bid, bid, qty, now, user),
        )
        if not taken:
            # Whoever sent the same form at the same time may have stored it meanwhile.
            if earlier := done(db, "bids", "bidder", user, number, once):
                return earlier
            row = item(db, number)
            raise Refused(why_not(row, user, qty) or f"The next bid must be ${least_bid(row):,} or more.")
        return db.one(
            "INSERT INTO bids (item, bidder, bid, qty, date, once) VALUES (?, ?, ?, ?, ?, ?) RETURNING *",
            *(number, user, bid, qty, now, once),
        )


@repeatable
def buy(database, user, number, *, qty, once):
    """Buys at the buy-now price, and returns the purchase."""
    with database.writing() as db:
        if earlier := done(db, "purchases", "buyer", user, number, once):
            return earlier
        now = int(time.time())
        sold = db.one(
            """UPDATE items SET quantity = quantity - ?, end_date = CASE WHEN quantity = ? THEN ? ELSE end_date END
            WHERE id = ? AND buy_now > 0 AND quantity >= ? AND end_date > ? AND seller <> ? RETURNING buy_now""",
            *(qty, qty, now, number, qty, now, user),
        )
        if not sold:
            if earlier := done(db, "purchases", "buyer", user, number, once):
                return earlier
            row = item(db, number)
            raise Refused(why_not(row, user, qty) or "This item has no buy-now price.")
        return db.one(
            "INSERT INTO purchases (item, buyer, qty, price, date, once) VALUES (?, ?, ?, ?, ?, ?) RETURNING *",
            *(number, user, qty, sold["buy_now"], now, once),
        )


@repeatable
def comment(database, user, number, *, rating, comment, once):
    """Stores a comment on the item's seller, and adds its rating to the seller's."""
    with database.writing() as db:
        if earlier := done(db, "comments", "author", user, number, once):
            return earlier
        row = item(db, number)
        if row["seller"] == user:
            raise Refused("This is your own item.")
        db.one("UPDATE users SET rating = rating + ? WHERE id = ? RETURNING id", rating, row["seller"])
        return db.one(
            """INSERT INTO comments (item, author, subject, rating, date, comment, once)
            VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING *""",
            *(number, user, row["seller"], rating, int(time.time()), comment, once),
        )


@repeatable
def sell(database, user, *, name, description, category_id, initial_price, reserve_price, buy_now, quantity, days, once):
    """Opens an auction, and returns the item's id."""
    with database.writing() as db:
        if earlier := db.one("SELECT id, seller FROM items WHERE once = ?", once):
            if earlier["seller"] != user:
                raise Refused("This form belongs to something else. Open it again.")
            return earlier["id"]
        category(db, category_id)
        now = int(time.time())
        return db.one(
            """INSERT INTO items (name, description, category, seller, initial_price, reserve_price, buy_now, offered, quantity,
            start_date, end_date, once) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id""",
            *(name, description, category_id, user, initial_price, reserve_price, buy_now, quantity, quantity),
            *(now, now + days * DAY_S, once),
        )["id"]
