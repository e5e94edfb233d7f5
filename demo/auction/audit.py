"""Whether the books are right: each check is a query for what must not exist."""

import time

import database

CHECKS = {
    "an item's highest bid and number of bids are those of its bids": """
        SELECT items.id FROM items LEFT JOIN (SELECT item, count(*) AS n, max(bid) AS highest FROM bids GROUP BY item) AS b
        ON b.item = items.id WHERE nb_of_bids <> coalesce(n, 0) OR max_bid <> coalesce(highest, 0)""",
    "each bid is higher than the one before": """
        SELECT id FROM (SELECT id, bid, lag(bid) OVER (PARTITION BY item ORDER BY id) AS earlier FROM bids) AS b
        WHERE earlier >= bid""",
    "what was offered is what is left and what was bought": """
        SELECT items.id FROM items LEFT JOIN (SELECT item, sum(qty) AS n FROM purchases GROUP BY item) AS p ON p.item = items.id
        WHERE quantity < 0 OR quantity + coalesce(n, 0) <> offered""",
    "an item of which none is left has ended": "SELECT id FROM items WHERE quantity = 0 AND end_date > ?",
    "bids reach the initial price, within the quantity and the time": """
        SELECT bids.id FROM bids JOIN items ON items.id = item WHERE bid < initial_price OR qty > offered OR date > end_date""",
    "purchases are at the buy-now price, and within the time": """
        SELECT purchases.id FROM purchases JOIN items ON items.id = item WHERE price <> buy_now OR date > end_date""",
    "nobody bids on or buys what is their own": """
        SELECT items.id FROM items JOIN bids ON bids.item = items.id WHERE bidder = seller
        UNION ALL SELECT items.id FROM items JOIN purchases ON purchases.item = items.id WHERE buyer = seller""",
    "an auction that has ended has one winner at most": """
        SELECT items.id FROM items JOIN bids ON bids.item = items.id AND bid = max_bid
        WHERE end_date <= ? GROUP BY items.id HAVING count(*) > 1""",
    "an auction that has ended with a bid has a highest bidder": """
        SELECT items.id FROM items LEFT JOIN bids ON bids.item = items.id AND bid = max_bid
        WHERE end_date <= ? AND nb_of_bids > 0 AND bids.id IS NULL""",
    "a user's rating is the sum of the comments": """
        SELECT users.id FROM users LEFT JOIN (SELECT subject, sum(rating) AS total FROM comments GROUP BY subject) AS c
        ON c.subject = users.id WHERE rating <> coalesce(total, 0)""",
    "a bid, purchase or comment belongs to an item and a user": """
        SELECT b.id FROM (SELECT id, item, bidder AS person FROM bids UNION ALL SELECT id, item, buyer FROM purchases
        UNION ALL SELECT id, item, author FROM comments) AS b
        LEFT JOIN items ON items.id = b.item LEFT JOIN users ON users.id = person WHERE items.id IS NULL OR users.id IS NULL""",
}
SUMS = {
    "users": "SELECT count(*) AS n, sum(rating) AS total FROM users",
    "items": "SELECT count(*) AS n, sum(quantity) AS total FROM items",
    "bids": "SELECT count(*) AS n, sum(bid) AS total FROM bids",
    "purchases": "SELECT count(*) AS n, sum(qty) AS total FROM purchases",
    "comments": "SELECT count(*) AS n, sum(rating) AS total FROM comments",
}


def audit(where):
    """The lines of the report, and how many checks failed."""
    lines, failed = [], 0
    with database.connect(where).reading() as db:
        now = int(time.time())
        for title, query in SUMS.items():
            row = db.one(query)
            lines.append(f"{title} {row['n']} sum {row['total'] or 0}")
        for what, query in CHECKS.items():
            wrong = db.all(f"{query} LIMIT 5", *[now] * query.count("?"))
            failed += bool(wrong)
            rows = ", ".join(str(row["id"]) for row in wrong)
            lines.append(f"WRONG: {what}: not so for {rows}" if wrong else f"right: {what}")
    return lines, failed
