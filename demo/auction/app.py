"""The auction as a WSGI application: `gunicorn --chdir demo/auction app:application`. PAGES.md describes its requests.

From the environment: AUCTION_DATABASE (a path or postgres://...; auction.db), AUCTION_SITE and AUCTION_SERVER (names for the footer).
Sessions live in signed cookies under a key in the database, so that any server answers any session.
"""

import base64
import functools
import hashlib
import hmac
import json
import os
import re
import secrets
import socket
import time
import traceback
import urllib.parse

import market
import pages
import passwords
from database import Unavailable, connect

HERE = os.path.dirname(os.path.abspath(__file__))
BODY_BYTES_MAX = 64 << 10
FIELDS_MAX = 32
SESSION_S = 12 * 3600
PASSWORD_MAX = 100
SERVER = os.environ.get("AUCTION_SERVER") or socket.gethostname()
SITE = os.environ.get("AUCTION_SITE") or "auction"
DATABASE = connect(os.environ.get("AUCTION_DATABASE") or "auction.db")
STATUSES = {
    200: "OK",
    303: "See Other",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    413: "Content Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
SECURITY = [
    (
        "Content-Security-Policy",
        "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "same-origin"),
]
ROUTES = []


class Stop(Exception):
    """Ends a request with a status and a text for people."""

    def __init__(self, status, text, **headers):
        super().__init__(text)
        self.status, self.headers = status, list(headers.items())


def route(methods, path):
    """A handler of requests; `path` has a number for each {}."""
    pattern = re.compile(path.replace("{}", "([1-9][0-9]{0,8})"))

    def add(handler):
        ROUTES.append((methods.split(), pattern, handler))
        return handler

    return add


class Site:
    """What the row `site` says: it is read once by each process."""

    @functools.cached_property
    def row(self):
        with DATABASE.reading() as db:
            return market.site(db)

    def sign(self, text):
        return hmac.new(self.row["secret"].encode(), text.encode(), hashlib.sha256).hexdigest()


class Request:
    """A request and its session."""

    server, site = SERVER, SITE

    def __init__(self, environ):
        self.method = environ["REQUEST_METHOD"]
        self.path = environ.get("PATH_INFO", "").encode("latin-1").decode("utf-8", "replace")
        self.environ = environ
        self.cookie = None
        self.user, self.nickname, self.nonce = 0, "", ""

    users = property(lambda self: DATA.row["users"])
    items = property(lambda self: DATA.row["items"])
    token = property(lambda self: DATA.sign(f"csrf {self.nonce}"))

    quoted = staticmethod(urllib.parse.quote_plus)

    def open_session(self):
        """The session of the cookie, or a new one of nobody."""
        for part in self.environ.get("HTTP_COOKIE", "").split(";"):
            name, _, value = part.strip().partition("=")
            text, _, signature = value.rpartition(".")
            if name == "session" and hmac.compare_digest(DATA.sign(text).encode(), signature.encode("utf-8", "replace")):
                user, nickname, expires, nonce = text.split(".")
                if int(expires) > time.time():
                    self.user, self.nickname, self.nonce = int(user), nickname, nonce
                    return
        self.begin_session(0, "")

    def begin_session(self, user, nickname):
        """A new session, with a new CSRF token: what was seen before the sign-in is worth nothing after it."""
        self.user, self.nickname, self.nonce = user, nickname, secrets.token_hex(12)
        text = f"{user}.{nickname}.{int(time.time()) + SESSION_S}.{self.nonce}"
        secure = "; Secure" if self.environ.get("wsgi.url_scheme") == "https" else ""
        self.cookie = f"session={text}.{DATA.sign(text)}; Path=/; HttpOnly; SameSite=Lax; Max-Age={SESSION_S}{secure}"

    @functools.cached_property
    def body(self):
        try:
            body = self.environ["wsgi.input"].read(BODY_BYTES_MAX + 1)
        except OSError as error:
            raise Stop(400, "The request was cut short.") from error
        if len(body) > BODY_BYTES_MAX:
            raise Stop(413, f"A request may have {BODY_BYTES_MAX} bytes at most.")
        # Of a visitor who leaves in mid-form gunicorn hands on what there is: "qty=1" of "qty=10".
        if len(body) < int(self.environ.get("CONTENT_LENGTH") or 0):
            raise Stop(400, "The request was cut short.")
        return body

    @functools.cached_property
    def query(self):
        return self.fields(self.environ.get("QUERY_STRING", ""))

    @functools.cached_property
    def form(self):
        return self.fields(self.body)

    @staticmethod
    def fields(text):
        try:
            text = text.decode("ascii") if isinstance(text, bytes) else text
            pairs = urllib.parse.parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
        except ValueError as error:
            raise Stop(400, "The form cannot be read.") from error
        return dict(pairs)

    def text(self, name, length_max):
        """A field of 1 to `length_max` characters."""
        text = self.form.get(name, "").replace("\r\n", "\n").strip()
        if not text or len(text) > length_max or "\0" in text:
            raise Stop(400, f"The field {name} must have 1 to {length_max} characters.")
        return text

    def number(self, name, least, most):
        return whole(self.form.get(name, ""), name, least, most)

    def once(self):
        return once(self.form.get("once", ""))

    def checked(self):
        """A POST must carry the token of its session."""
        if not hmac.compare_digest(self.form.get("csrf", "").encode(), self.token.encode()):
            raise Stop(403, "The form does not belong to this session. Open it again.")

    def signed_in(self, sign_in):
        """The user: by the nickname and password that a POST brings; a GET goes by the session, or to the form `sign_in`."""
        if self.method == "POST":
            self.checked()
            user, nickname = authenticated(self.form.get("nickname", ""), self.form.get("password", ""))
            self.begin_session(user, nickname)
        elif not self.user:
            raise Stop(303, "Sign in first.", Location=sign_in)
        return self.user

    def acting(self):
        """The user of a form that changes something."""
        self.checked()
        if not self.user:
            raise Stop(401, "Sign in first.")
        return self.user


DATA = Site()


def whole(text, name, least, most):
    if re.fullmatch("[0-9]{1,9}", text) and least <= int(text) <= most:
        return int(text)
    raise Stop(400, f"The field {name} must be a whole number from {least} to {most}.")


def once(text):
    if not re.fullmatch("[A-Za-z0-9_-]{8,64}", text):
        raise Stop(400, "The field once must have 8 to 64 letters and digits, new ones for each form.")
    return text


def authenticated(nickname, password):
    # PostgreSQL takes no NUL in a text, and HMAC takes a key for the same with NULs at its end.
    if "\0" in nickname + password or len(password) > PASSWORD_MAX:
        raise Stop(401, "There is no such nickname and password.")
    with DATABASE.reading() as db:
        account = market.account(db, nickname)
    if not account or not passwords.matches(password, account["password"]):
        raise Stop(401, "There is no such nickname and password.")
    return account["id"], nickname


@route("GET", "/")
def home(request):
    return pages.home(request)


@route("GET", "/register")
def register_form(request):
    with DATABASE.reading() as db:
        return pages.register(request, market.regions(db))


@route("POST", "/register")
def register(request):
    request.checked()
    nickname, password = request.text("nickname", 20), request.form.get("password", "")
    if not re.fullmatch("[A-Za-z0-9_-]{3,20}", nickname):
        raise Stop(400, "A nickname has 3 to 20 letters, digits, _ or -.")
    if not 8 <= len(password) <= PASSWORD_MAX or "\0" in password:
        raise Stop(400, f"A password has 8 to {PASSWORD_MAX} characters.")
    user = market.register(
        DATABASE,
        firstname=request.text("firstname", 20),
        lastname=request.text("lastname", 20),
        nickname=nickname,
        password=passwords.hashed(password),
        email=request.text("email", 50),
        region_id=request.number("region", 1, 10**9),
    )
    request.begin_session(user, nickname)
    return pages.stored(
        request, "RegisterUser", f"Welcome, {nickname}", "Your account is open, and you are signed in.",
        ("/browse", "Browse the auctions"), (f"/users/{user}", "How others see you"),
    )  # fmt: skip


@route("GET", "/browse")
def browse(request):
    return pages.browse(request)


@route("GET", "/categories")
def categories(request):
    with DATABASE.reading() as db:
        return pages.categories(request, "BrowseCategories", "Categories", market.categories(db), "/categories/C/items")


@route("GET", "/regions")
def regions(request):
    with DATABASE.reading() as db:
        return pages.regions(request, market.regions(db))


@route("GET", "/regions/{}/categories")
def categories_in_region(request, region):
    with DATABASE.reading() as db:
        title = f"Categories in {market.region(db, region)['name'].replace('--', ' · ')}"
        rows = market.categories(db)
    return pages.categories(request, "BrowseCategoriesInRegion", title, rows, f"/regions/{region}/categories/C/items")


@route("GET", "/items")
def search_all(request):
    return search(request, "SearchItems", None, None)


@route("GET", "/categories/{}/items")
def search_in_category(request, category):
    return search(request, "SearchItemsInCategory", category, None)


@route("GET", "/regions/{}/categories/{}/items")
def search_in_region(request, region, category):
    return search(request, "SearchItemsInRegion", category, region)


def search_terms(request):
    words = request.query.get("q", "").replace("\0", "").strip()[:100]
    return words, whole(request.query.get("page", "1"), "page", 1, market.PAGES_MAX)


def search(request, interaction, category, region):
    words, number = search_terms(request)
    with DATABASE.reading() as db:
        title = market.category(db, category)["name"] if category else "All auctions"
        if region:
            title += f" in {market.region(db, region)['name'].replace('--', ' · ')}"
        items, more = market.search(db, category, region, words, number)
    return pages.search(request, interaction, title, items, request.path, words, number, more)


@route("GET", "/items/{}")
def view_item(request, number):
    with DATABASE.reading() as db:
        item = market.item(db, number)
        winner = market.winner(db, item)
    return pages.item(request, item, winner)


@route("GET", "/users/{}")
def view_user(request, number):
    with DATABASE.reading() as db:
        return pages.user(request, market.user(db, number), market.comments(db, number))


@route("GET", "/items/{}/bids")
def view_bids(request, number):
    with DATABASE.reading() as db:
        return pages.history(request, market.item(db, number), market.bids(db, number))


@route("GET", "/items/{}/(buy|bid|comment)/sign-in")
def sign_in_for_item(request, number, act):
    interaction, title = {
        "buy": ("BuyNowAuth", "Sign in to buy"),
        "bid": ("PutBidAuth", "Sign in to bid"),
        "comment": ("PutCommentAuth", "Sign in to comment"),
    }[act]
    return pages.sign_in(request, interaction, title, f"/items/{number}/{act}")


@route("GET POST", "/items/{}/(buy|bid|comment)")
def form_of_item(request, number, act):
    user = request.signed_in(f"/items/{number}/{act}/sign-in")
    with DATABASE.reading() as db:
        item = market.item(db, number)
    if act != "comment" and (why := market.why_not(item, user, 1)):
        raise market.Refused(why)
    if act == "buy" and not item["buy_now"]:
        raise market.Refused("This item has no buy-now price.")
    return {"buy": pages.buy, "bid": pages.bid, "comment": pages.comment}[act](request, item, secrets.token_hex(12))


@route("POST", "/items/{}/purchases")
def store_purchase(request, number):
    qty = request.number("qty", 1, market.QUANTITY_MAX)
    row = market.buy(DATABASE, request.acting(), number, qty=qty, once=request.once())
    text = f"You have bought {row['qty']} for {pages.money(row['qty'] * row['price'])}."
    return pages.stored(request, "StoreBuyNow", "It is yours", text, (f"/items/{number}", "The item"), ("/me", "Your page"))


@route("POST", "/items/{}/bids")
def store_bid(request, number):
    bid = request.number("bid", 1, market.DOLLARS_MAX)
    qty = request.number("qty", 1, market.QUANTITY_MAX)
    row = market.bid(DATABASE, request.acting(), number, bid=bid, qty=qty, once=request.once())
    text = f"Your bid of {pages.money(row['bid'])} is stored."
    return pages.stored(request, "StoreBid", "You have bid", text, (f"/items/{number}", "The item"), ("/me", "Your page"))


@route("POST", "/items/{}/comments")
def store_comment(request, number):
    rating = request.form.get("rating", "")
    if rating not in map(str, pages.RATINGS):
        raise Stop(400, "The field rating must be one of -5, -3, 0, 3, 5.")
    text = request.text("comment", 2048)
    row = market.comment(DATABASE, request.acting(), number, rating=int(rating), comment=text, once=request.once())
    seller = (f"/users/{row['subject']}", "The seller")
    return pages.stored(request, "StoreComment", "Thank you", "Your comment is published.", seller, (f"/items/{number}", "The item"))


@route("GET", "/sell")
def sell(request):
    return pages.sign_in(request, "Sell", "Sell something", "/sell/categories")


@route("GET POST", "/sell/categories")
def sell_categories(request):
    request.signed_in("/sell")
    with DATABASE.reading() as db:
        rows = market.categories(db)
    return pages.categories(request, "SelectCategoryToSellItem", "What do you sell?", rows, "/sell/categories/C")


@route("GET", "/sell/categories/{}")
def sell_form(request, number):
    with DATABASE.reading() as db:
        return pages.sell(request, market.category(db, number), secrets.token_hex(12))


@route("POST", "/items")
def store_item(request):
    number = market.sell(
        DATABASE,
        request.acting(),
        name=request.text("name", 100),
        description=request.text("description", 8192),
        category_id=request.number("category", 1, 10**9),
        initial_price=request.number("initial_price", 1, market.DOLLARS_MAX),
        reserve_price=request.number("reserve_price", 0, market.DOLLARS_MAX),
        buy_now=request.number("buy_now", 0, market.DOLLARS_MAX),
        quantity=request.number("quantity", 1, market.QUANTITY_MAX),
        days=request.number("duration", 1, 7),
        once=request.once(),
    )
    return pages.stored(request, "RegisterItem", "The auction is open", "Good luck.", (f"/items/{number}", "The item"), ("/me", "Your page"))


@route("GET", "/me/sign-in")
def sign_in(request):
    return pages.sign_in(request, "AboutMeAuth", "Sign in", "/me")


@route("GET POST", "/me")
def about_me(request):
    user = request.signed_in("/me/sign-in")
    with DATABASE.reading() as db:
        return pages.about(request, market.user(db, user), market.about(db, user), market.comments(db, user))


@route("POST", "/sign-out")
def sign_out(request):
    request.checked()
    request.begin_session(0, "")
    raise Stop(303, "Signed out.", Location="/")


@route("GET", "/health")
def health(request):
    with DATABASE.reading() as db:
        market.site(db)
    return "ok\n"


@route("GET", "/style.css")
def style(request):
    with open(os.path.join(HERE, "style.css"), encoding="utf-8") as file:
        return file.read()


@route("GET", "/api/(categories|regions)")
def api_names(request, which):
    with DATABASE.reading() as db:
        return {"categories": market.categories, "regions": market.regions}[which](db)


@route("GET", "/api/items")
def api_search(request):
    words, number = search_terms(request)
    within = {name: whole(request.query[name], name, 1, 10**9) for name in ("category", "region") if name in request.query}
    with DATABASE.reading() as db:
        items, more = market.search(db, words=words, page=number, **within)
    following = urllib.parse.urlencode(dict(within, page=number + 1, **({"q": words} if words else {})))
    return {"items": items, "next": f"/api/items?{following}" if more else None}


@route("GET", "/api/items/{}")
def api_item(request, number):
    with DATABASE.reading() as db:
        item = market.item(db, number)
    # The reserve price is the seller's secret.
    return {key: item[key] for key in item if key not in ("once", "reserve_price")} | {"state": market.state(item)}


@route("GET", "/api/items/{}/bids")
def api_bids(request, number):
    with DATABASE.reading() as db:
        market.item(db, number)
        return market.bids(db, number)


@route("POST", "/api/items/{}/bids")
def api_store_bid(request, number):
    try:
        scheme, _, code = request.environ.get("HTTP_AUTHORIZATION", "").partition(" ")
        nickname, _, password = base64.b64decode(code, validate=True).decode().partition(":")
        fields = json.loads(request.body)
        bid, qty, mark = str(fields["bid"]), str(fields.get("qty", 1)), str(fields["once"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Stop(400, 'Send {"bid": ..., "qty": ..., "once": "..."} with HTTP Basic authentication.') from error
    if scheme.lower() != "basic":
        raise Stop(401, "Use HTTP Basic authentication.", **{"WWW-Authenticate": 'Basic realm="auction"'})
    user, _ = authenticated(nickname, password)
    row = market.bid(
        DATABASE,
        user,
        number,
        bid=whole(bid, "bid", 1, market.DOLLARS_MAX),
        qty=whole(qty, "qty", 1, market.QUANTITY_MAX),
        once=once(mark),
    )
    return {key: row[key] for key in ("id", "item", "bidder", "bid", "qty", "date")}


def handled(request):
    """The answer of the route that fits."""
    allowed = []
    for methods, pattern, handler in ROUTES:
        if match := pattern.fullmatch(request.path):
            if ("GET" if request.method == "HEAD" else request.method) in methods:
                if not isinstance(request, Program) and request.path not in ("/health", "/style.css"):
                    request.open_session()
                return handler(request, *(int(part) if part.isdigit() else part for part in match.groups()))
            allowed += methods
    if allowed:
        raise Stop(405, "This page does not take such a request.", Allow=", ".join(sorted(set(allowed))))
    raise Stop(404, "There is no such page.")


class Program(Request):
    """A request of a program: no session, and JSON."""


def application(environ, start_response):
    """The WSGI entry."""
    request = (Program if environ.get("PATH_INFO", "").startswith("/api/") else Request)(environ)
    headers, status, failure = [], 200, None
    try:
        answer = handled(request)
    except Stop as stop:
        status, failure, headers = stop.status, str(stop), stop.headers
    except market.Missing as missing:
        status, failure = 404, str(missing)
    except market.Refused as refused:
        status, failure = 409, str(refused)
    except Unavailable as error:
        print(f"auction: {error}", file=environ["wsgi.errors"])
        status, failure, headers = 503, "The auction cannot answer now. Try again in a moment.", [("Retry-After", "1")]
    except Exception:
        print(traceback.format_exc(), file=environ["wsgi.errors"])
        status, failure = 500, "This is a defect of the auction."
    if failure is None:
        body = json.dumps(answer) if isinstance(request, Program) else answer
    elif isinstance(request, Program):
        body = json.dumps({"error": failure})
    elif status in (303, 503):
        # Without the database there is no session to draw a page for.
        body = f"{failure}\n"
    else:
        body = error_page(request, status, failure)
    kind = "application/json" if isinstance(request, Program) else "text/html" if body.startswith("<!doctype") else "text/plain"
    if request.path == "/style.css":
        kind, caching = "text/css", "public, max-age=300"
    else:
        caching = "no-store"
    body = body.encode()
    headers += [("Content-Type", f"{kind}; charset=utf-8"), ("Content-Length", str(len(body))), ("Cache-Control", caching)]
    headers += [("X-Served-By", SERVER), *SECURITY]
    if request.cookie:
        headers.append(("Set-Cookie", request.cookie))
    start_response(f"{status} {STATUSES[status]}", headers)
    return [] if request.method == "HEAD" else [body]


def error_page(request, status, text):
    try:
        if not request.nonce:
            request.open_session()
        return pages.error(request, STATUSES[status], text)
    except Exception:
        return f"{text}\n"
