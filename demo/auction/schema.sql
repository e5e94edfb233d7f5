-- The tables of the auction, in the words that SQLite and PostgreSQL share. Times are seconds since 1970, amounts whole dollars.
-- database.py adds how PostgreSQL numbers rows.
CREATE TABLE site (made BIGINT NOT NULL, secret TEXT NOT NULL, users INTEGER NOT NULL, items INTEGER NOT NULL);
CREATE TABLE regions (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE categories (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE users (
    id INTEGER PRIMARY KEY,
    firstname TEXT NOT NULL,
    lastname TEXT NOT NULL,
    nickname TEXT NOT NULL UNIQUE,
    password TEXT NOT NULL, -- scrypt$n$r$p$salt$hash
    email TEXT NOT NULL,
    rating INTEGER NOT NULL DEFAULT 0, -- the sum of the comments on the user
    created BIGINT NOT NULL,
    region INTEGER NOT NULL REFERENCES regions
);
-- An auction is open until end_date. offered = quantity + what was bought at the buy-now price.
CREATE TABLE items (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    category INTEGER NOT NULL REFERENCES categories,
    seller INTEGER NOT NULL REFERENCES users,
    initial_price INTEGER NOT NULL CHECK (initial_price > 0),
    reserve_price INTEGER NOT NULL,
    buy_now INTEGER NOT NULL,
    offered INTEGER NOT NULL CHECK (offered > 0),
    quantity INTEGER NOT NULL CHECK (quantity BETWEEN 0 AND offered),
    nb_of_bids INTEGER NOT NULL DEFAULT 0,
    max_bid INTEGER NOT NULL DEFAULT 0,
    start_date BIGINT NOT NULL,
    end_date BIGINT NOT NULL,
    once TEXT
);
-- Two bids on an item are never equal, so the highest has one bidder.
CREATE TABLE bids (
    id INTEGER PRIMARY KEY,
    item INTEGER NOT NULL REFERENCES items,
    bidder INTEGER NOT NULL REFERENCES users,
    bid INTEGER NOT NULL,
    qty INTEGER NOT NULL CHECK (qty > 0),
    date BIGINT NOT NULL,
    once TEXT
);
CREATE TABLE purchases (
    id INTEGER PRIMARY KEY,
    item INTEGER NOT NULL REFERENCES items,
    buyer INTEGER NOT NULL REFERENCES users,
    qty INTEGER NOT NULL CHECK (qty > 0),
    price INTEGER NOT NULL CHECK (price > 0),
    date BIGINT NOT NULL,
    once TEXT
);
CREATE TABLE comments (
    id INTEGER PRIMARY KEY,
    item INTEGER NOT NULL REFERENCES items,
    author INTEGER NOT NULL REFERENCES users,
    subject INTEGER NOT NULL REFERENCES users,
    rating INTEGER NOT NULL CHECK (rating BETWEEN -5 AND 5),
    date BIGINT NOT NULL,
    comment TEXT NOT NULL,
    once TEXT
);

-- Indexes, made after the data.
CREATE INDEX items_of_category ON items (category, end_date);
CREATE INDEX items_by_end ON items (end_date);
CREATE INDEX items_of_seller ON items (seller);
CREATE UNIQUE INDEX bids_of_item ON bids (item, bid);
CREATE INDEX bids_of_bidder ON bids (bidder);
CREATE INDEX purchases_of_item ON purchases (item);
CREATE INDEX purchases_of_buyer ON purchases (buyer);
CREATE INDEX comments_on_user ON comments (subject);
-- A form that arrives twice is stored once.
CREATE UNIQUE INDEX item_once ON items (once) WHERE once IS NOT NULL;
CREATE UNIQUE INDEX bid_once ON bids (once) WHERE once IS NOT NULL;
CREATE UNIQUE INDEX purchase_once ON purchases (once) WHERE once IS NOT NULL;
CREATE UNIQUE INDEX comment_once ON comments (once) WHERE once IS NOT NULL;
