"""The pages, as HTML. PAGES.md says what clients may rely on in them. Nothing here asks the database."""

import html
import time

import market

RATINGS = {5: "Excellent", 3: "Good", 0: "Neutral", -3: "Poor", -5: "Dreadful"}


class Html(str):
    """Text that is HTML already. All other text is escaped on its way into a page."""


def markup(value):
    if isinstance(value, Html):
        return value
    if isinstance(value, (list, tuple)):
        return Html("".join(markup(part) for part in value))
    return Html(html.escape(str(value)))


def h(template, **values):
    """The template with each {name} replaced by its value, escaped."""
    return Html(template.format(**{name: markup(value) for name, value in values.items()}))


def money(dollars):
    return f"${dollars:,}"


def when(seconds):
    """A point in time: how far away it is, and exactly when on a closer look."""
    away = int(abs(seconds - time.time()))
    if away < 3600:
        text = f"{away // 60} min {away % 60} s"
    elif away < market.DAY_S:
        text = f"{away // 3600} h {away % 3600 // 60} min"
    else:
        text = f"{away // market.DAY_S} d {away % market.DAY_S // 3600} h"
    exact = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    text = f"in {text}" if seconds > time.time() else f"{text} ago"
    return h('<time datetime="{exact}" title="{exact}">{text}</time>', exact=exact, text=text)


def page(view, interaction, title, *body):
    """A whole page: `view` is the request's side of it (who looks, which server answers)."""
    if view.user:
        session = h(
            '<a href="/me">{name}</a><form method="post" action="/sign-out">{csrf}<button class="link">Sign out</button></form>',
            name=view.nickname,
            csrf=csrf(view),
        )
    else:
        session = Html('<a href="/me/sign-in">Sign in</a><a href="/register">Register</a>')
    return h(
        """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="csrf-token" content="{token}">
<title>{title} · Sidelong Auction</title>
<link rel="stylesheet" href="/style.css">
</head>
<body data-interaction="{interaction}" data-site="{site}" data-server="{server}" data-users="{users}" data-items="{items}">
<header><nav>
<a class="brand" href="/">Sidelong <b>Auction</b></a>
<form class="search" action="/items"><input type="search" name="q" placeholder="Search all auctions" aria-label="Search"></form>
<a href="/browse">Browse</a><a href="/{sell}">Sell</a>{session}
</nav></header>
<main>
<h1>{title}</h1>
{body}
</main>
<footer>Answered by <b>{server}</b> for the site <b>{site}</b>. A demonstration: nothing here is for sale.</footer>
</body>
</html>
""",
        token=view.token,
        title=title,
        interaction=interaction,
        site=view.site,
        server=view.server,
        users=view.users,
        items=view.items,
        sell="sell/categories" if view.user else "sell",
        session=session,
        body=body,
    )


def csrf(view):
    return h('<input type="hidden" name="csrf" value="{token}">', token=view.token)


def form(view, action, button, *fields, once=None):
    hidden = [csrf(view)]
    if once:
        hidden.append(h('<input type="hidden" name="once" value="{once}">', once=once))
    return h(
        '<form class="card" method="post" action="{action}">{hidden}{fields}<button>{button}</button></form>',
        action=action,
        hidden=hidden,
        fields=fields,
        button=button,
    )


def field(label, name, kind="text", **attributes):
    extra = [h(' {key}="{value}"', key=key, value=value) for key, value in attributes.items()]
    return h(
        '<label>{label}<input name="{name}" type="{kind}" required{extra}></label>',
        label=label,
        name=name,
        kind=kind,
        extra=extra,
    )


def choice(label, name, options, chosen=None):
    rows = [
        h('<option value="{key}"{mark}>{text}</option>', key=key, text=text, mark=Html(" selected" if key == chosen else ""))
        for key, text in options
    ]
    return h('<label>{label}<select name="{name}">{rows}</select></label>', label=label, name=name, rows=rows)


def tile(item):
    """In place of a picture: the item's initial on its category's colour."""
    return h('<span class="tile c{n}">{letter}</span>', n=item["category"] % 10, letter=item["name"][:1].upper())


def price(item):
    if item["nb_of_bids"]:
        plural = "" if item["nb_of_bids"] == 1 else "s"
        return h("<b>{bid}</b> {n} bid{s}", bid=money(item["max_bid"]), n=item["nb_of_bids"], s=plural)
    return h("<b>{initial}</b> no bid yet", initial=money(item["initial_price"]))


def bid_link(view, number):
    """Who is signed in need not sign in again."""
    return f"/items/{number}/bid" if view.user else f"/items/{number}/bid/sign-in"


def listing(view, items):
    """A list of items, each with a link to bid while its auction is open."""
    rows = []
    for item in items:
        now = time.time()
        notes = []
        if "mine" in item:
            notes.append(h(" · you: <b>{mine}</b>", mine=money(item["mine"])))
        if item["buy_now"] and item["end_date"] > now:
            notes.append(h(" · buy now {price}", price=money(item["buy_now"])))
        act = h('<a class="button" href="{path}">Bid</a>', path=bid_link(view, item["id"])) if item["end_date"] > now else ""
        rows.append(
            h(
                """<li>{tile}<div class="what"><a href="/items/{id}">{name}</a><span class="quiet">{ends} {when}{notes}</span></div>
<span class="price">{price}</span>{act}</li>""",
                tile=tile(item),
                id=item["id"],
                name=item["name"],
                ends="ends" if item["end_date"] > now else "ended",
                when=when(item["end_date"]),
                notes=notes,
                price=price(item),
                act=act,
            )
        )
    return h('<ul class="items">{rows}</ul>', rows=rows) if rows else Html('<p class="quiet">None.</p>')


def cards(links):
    return h('<div class="cards">{links}</div>', links=[h('<a class="card" href="{to}">{text}</a>', to=to, text=text) for to, text in links])


def home(view):
    return page(
        view,
        "Home",
        "Everything goes to the highest bid",
        h(
            '<p class="lead">{items} items and {users} bidders, on servers that change places while you look.</p>',
            items=f"{view.items:,}",
            users=f"{view.users:,}",
        ),
        cards(
            [
                ("/browse", "Browse the auctions"),
                ("/sell", "Sell something"),
                ("/me/sign-in", "Your bids and sales"),
                ("/register", "Open an account"),
            ]
        ),
        Html('<p class="quiet">To try it, sign in as <b>user1</b> with the password <b>password1</b>, or any other number.</p>'),
    )


def browse(view):
    links = [("/categories", "All categories"), ("/regions", "By region of the seller")]
    return page(view, "Browse", "Browse", cards(links))


def categories(view, interaction, title, rows, path):
    """Links to each category; `path` has C for its number."""
    return page(view, interaction, title, cards([(path.replace("C", str(row["id"])), row["name"]) for row in rows]))


def regions(view, rows):
    return page(view, "BrowseRegions", "Regions", cards([(f"/regions/{row['id']}/categories", row["name"].replace("--", " · ")) for row in rows]))


def search(view, interaction, title, items, path, words, number, more):
    def link(rel, number):
        query = h("&amp;q={q}", q=view.quoted(words)) if words else ""
        return h('<a rel="{rel}" href="{path}?page={n}{query}">{rel} page</a>', rel=rel, path=path, n=number, query=query)

    return page(
        view,
        interaction,
        title,
        h(
            '<form class="filter" action="{path}"><input type="search" name="q" value="{words}" aria-label="Words of the name">'
            "<button>Search here</button></form>",
            path=path,
            words=words,
        ),
        listing(view, items),
        h(
            '<p class="pages">{prev}<span class="quiet">Page {n}</span>{next}</p>',
            prev=link("prev", number - 1) if number > 1 else "",
            n=number,
            next=link("next", number + 1) if more else "",
        ),
    )


def item(view, row, winner):
    number, state = row["id"], market.state(row)
    sign_in = "" if view.user else "/sign-in"
    buttons = []
    if state == "open":
        buttons.append(h('<a class="button" href="/items/{id}/bid{sign_in}">Bid</a>', id=number, sign_in=sign_in))
        if row["buy_now"]:
            text = f"Buy now for {money(row['buy_now'])}"
            buttons.append(h('<a class="button second" href="/items/{id}/buy{sign_in}">{text}</a>', id=number, sign_in=sign_in, text=text))
        verdict = h("Ends {when}", when=when(row["end_date"]))
    elif winner:
        verdict = h(
            '<b class="won">Sold</b> to <a href="/users/{bidder}">{nickname}</a> for {bid}{each}, {when}',
            bidder=winner["bidder"],
            nickname=winner["nickname"],
            bid=money(winner["bid"]),
            each=f" each, {winner['qty']} of them" if winner["qty"] > 1 else "",
            when=when(row["end_date"]),
        )
    else:
        text = "Sold out at the buy-now price" if state == "gone" else "Ended without a sale"
        verdict = h('<b class="won">{text}</b>, {when}', text=text, when=when(row["end_date"]))
    reserve = "none" if not row["reserve_price"] else "met" if row["max_bid"] >= row["reserve_price"] else "not met yet"
    return page(
        view,
        "ViewItem",
        row["name"],
        h(
            """<div class="item">{tile}<div class="card">
<p class="bid">{price} <a href="/items/{id}/bids">history</a></p>
<p class="verdict">{verdict}</p>
<p>{buttons}</p>
<dl><dt>Quantity</dt><dd>{quantity} of {offered} left</dd><dt>Reserve price</dt><dd>{reserve}</dd>
<dt>Category</dt><dd><a href="/categories/{category}/items">{category_name}</a></dd>
<dt>Seller</dt><dd><a href="/users/{seller}">{seller_name}</a> (rating {rating}) ·
<a href="/items/{id}/comment{sign_in}">comment on the seller</a></dd></dl>
</div></div><h2>Description</h2><p class="text">{description}</p>""",
            tile=tile(row),
            price=price(row),
            id=number,
            verdict=verdict,
            buttons=buttons,
            quantity=row["quantity"],
            offered=row["offered"],
            reserve=reserve,
            category=row["category"],
            category_name=row["category_name"],
            seller=row["seller"],
            seller_name=row["seller_name"],
            rating=row["seller_rating"],
            sign_in=sign_in,
            description=row["description"],
        ),
    )


def history(view, row, bids):
    rows = [
        h(
            '<tr><td><a href="/users/{bidder}">{nickname}</a><td class="n">{bid}<td class="n">{qty}<td>{when}</tr>',
            bidder=bid["bidder"],
            nickname=bid["nickname"],
            bid=money(bid["bid"]),
            qty=bid["qty"],
            when=when(bid["date"]),
        )
        for bid in bids
    ]
    return page(
        view,
        "ViewBidHistory",
        "Bids",
        h('<p>For <a href="/items/{id}">{name}</a>, the highest first.</p>', id=row["id"], name=row["name"]),
        h('<table class="card"><tr><th>Bidder<th class="n">Bid<th class="n">Quantity<th>Time</tr>{rows}</table>', rows=rows)
        if rows
        else Html('<p class="quiet">No bid yet.</p>'),
    )


def comments(rows):
    return [
        h(
            """<div class="card comment"><p><b class="rating">{rating}</b> <a href="/users/{author}">{nickname}</a>
<span class="quiet">on <a href="/items/{item}">{item_name}</a>, {when}</span></p><p class="text">{comment}</p></div>""",
            **dict(row, rating=RATINGS.get(row["rating"], row["rating"]), when=when(row["date"])),
        )
        for row in rows
    ] or Html('<p class="quiet">None.</p>')


def user(view, row, remarks):
    return page(
        view,
        "ViewUserInfo",
        row["nickname"],
        h(
            '<p>{name}, from {region}. Here since {when}. Rating: <b>{rating}</b>.</p><h2>Comments</h2>{comments}',
            name=f"{row['firstname']} {row['lastname']}",
            region=row["region_name"].replace("--", " · "),
            when=when(row["created"]),
            rating=row["rating"],
            comments=comments(remarks),
        ),
    )


def sign_in(view, interaction, title, action):
    return page(
        view,
        interaction,
        title,
        Html("<p>Please sign in to go on.</p>"),
        form(
            view,
            action,
            "Sign in",
            field("Nickname", "nickname", autocomplete="username", maxlength=20),
            field("Password", "password", "password", autocomplete="current-password", maxlength=100),
        ),
        Html('<p class="quiet">No account yet? <a href="/register">Register</a>.</p>'),
    )


def register(view, rows):
    return page(
        view,
        "Register",
        "Open an account",
        form(
            view,
            "/register",
            "Register",
            field("First name", "firstname", maxlength=20),
            field("Last name", "lastname", maxlength=20),
            field("Nickname", "nickname", autocomplete="username", pattern="[A-Za-z0-9_\\-]{3,20}", maxlength=20),
            field("Password", "password", "password", autocomplete="new-password", minlength=8, maxlength=100),
            field("E-mail", "email", "email", maxlength=50),
            choice("Region", "region", [(row["id"], row["name"].replace("--", " · ")) for row in rows]),
        ),
    )


def of_item(view, interaction, title, row, *body):
    """A page of something to be done about an item."""
    about = h(
        """<p>{tile} <a href="/items/{id}">{name}</a> from <a href="/users/{seller}">{seller_name}</a>:
{price} <a href="/items/{id}/bids">history</a></p>""",
        **dict(row, tile=tile(row), price=price(row)),
    )
    return page(view, interaction, title, about, *body)


def buy(view, row, once):
    return of_item(
        view,
        "BuyNow",
        "Buy now",
        row,
        form(
            view,
            f"/items/{row['id']}/purchases",
            f"Buy for {money(row['buy_now'])} each",
            field("Quantity", "qty", "number", min=1, max=row["quantity"], value=1),
            once=once,
        ),
    )


def bid(view, row, once):
    least = market.least_bid(row)
    return of_item(
        view,
        "PutBid",
        "Place a bid",
        row,
        form(
            view,
            f"/items/{row['id']}/bids",
            "Bid",
            field("Your bid, in dollars", "bid", "number", min=least, max=market.DOLLARS_MAX, value=least),
            field("Quantity", "qty", "number", min=1, max=row["quantity"], value=1),
            once=once,
        ),
    )


def comment(view, row, once):
    return of_item(
        view,
        "PutComment",
        f"Comment on {row['seller_name']}",
        row,
        form(
            view,
            f"/items/{row['id']}/comments",
            "Publish",
            choice("Rating", "rating", RATINGS.items(), 0),
            Html('<label>Comment<textarea name="comment" rows="5" maxlength="2048" required></textarea></label>'),
            once=once,
        ),
    )


def sell(view, category, once):
    return page(
        view,
        "SellItemForm",
        f"Sell in {category['name']}",
        form(
            view,
            "/items",
            "Open the auction",
            h('<input type="hidden" name="category" value="{id}">', id=category["id"]),
            field("Name", "name", maxlength=100),
            Html('<label>Description<textarea name="description" rows="6" maxlength="8192" required></textarea></label>'),
            field("Initial price", "initial_price", "number", min=1, max=market.DOLLARS_MAX, value=1),
            field("Reserve price (0: none)", "reserve_price", "number", min=0, max=market.DOLLARS_MAX, value=0),
            field("Buy-now price (0: none)", "buy_now", "number", min=0, max=market.DOLLARS_MAX, value=0),
            field("Quantity", "quantity", "number", min=1, max=market.QUANTITY_MAX, value=1),
            field("Duration in days", "duration", "number", min=1, max=7, value=7),
            once=once,
        ),
    )


def stored(view, interaction, title, text, *links):
    """What a form has done."""
    return page(view, interaction, title, h('<p class="lead">{text}</p>', text=text), cards(links))


def about(view, row, lists, remarks):
    return page(
        view,
        "AboutMe",
        row["nickname"],
        h("<p>{first} {last}, rating <b>{rating}</b>.</p>", first=row["firstname"], last=row["lastname"], rating=row["rating"]),
        [h("<h2>{heading}</h2>{items}", heading=heading, items=listing(view, items)) for heading, items in lists.items()],
        h("<h2>Comments on you</h2>{comments}", comments=comments(remarks)),
    )


def error(view, title, text):
    return page(view, "Error", title, h('<p class="lead">{text}</p><p><a href="/">Home</a></p>', text=text))
