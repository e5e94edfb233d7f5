"""SQLite or PostgreSQL behind the same few words: statements of the SQL that both understand, with ? for each value.

    with database.reading() as db:      # one consistent snapshot
        item = db.one("SELECT name FROM items WHERE id = ?", 17)
    with database.writing() as db:      # all or nothing; committed when the block ends
        db.one("UPDATE items SET quantity = 0 WHERE id = ? RETURNING id", 17)

A database that is away, locked or full raises `Unavailable`. A unique value that exists already raises `Conflict`.
"""

import contextlib
import os
import re
import sqlite3
import threading
import urllib.parse

LOCK_WAIT_S = 2
CONNECT_WAIT_S = 5
CONNECTIONS_MAX = 8
HERE = os.path.dirname(os.path.abspath(__file__))


class Unavailable(Exception):
    """The database cannot answer now. If this ends `writing`, its commit may or may not have happened."""


class Conflict(Exception):
    """Another transaction has stored this unique value."""


def connect(where):
    """The database at `where`: a URL `postgres://...`, or the path of an SQLite file."""
    return PostgreSQL(where) if where.startswith(("postgres://", "postgresql://")) else SQLite(where)


def shown(where):
    """`where` without a password."""
    return re.sub("(://[^:/@]*):[^@]*@", r"\1@", where)


def schema():
    """The statements that make the tables, and those that make the indexes."""
    with open(os.path.join(HERE, "schema.sql"), encoding="utf-8") as file:
        tables, mark, indexes = file.read().partition("-- Indexes")
    return tables, mark + indexes


class SQLite:
    """One file with a write-ahead log: readers do not wait for the writer. Each thread has a connection."""

    # Result codes, sqlite.org/rescode.html: busy, locked, read-only, I/O error, full, cannot open, not a database.
    AWAY = {5, 6, 8, 10, 13, 14, 26}

    def __init__(self, path):
        self.path = path
        self.local = threading.local()

    def connection(self):
        # A connection must not cross a fork.
        if getattr(self.local, "pid", None) != os.getpid():
            # The mode rw makes no file where there is none.
            uri = f"file:{urllib.parse.quote(self.path)}?mode=rw"
            connection = sqlite3.connect(uri, uri=True, timeout=LOCK_WAIT_S, isolation_level=None)
            connection.row_factory = lambda cursor, row: dict(zip((c[0] for c in cursor.description), row))
            try:
                # FULL: what has been committed survives a loss of power.
                for pragma in ("synchronous = FULL", "foreign_keys = ON"):
                    connection.execute(f"PRAGMA {pragma}")
            except sqlite3.Error:
                connection.close()
                raise
            self.local.connection, self.local.pid = connection, os.getpid()
        return self.local.connection

    @contextlib.contextmanager
    def _transaction(self, begin):
        try:
            connection = self.connection()
            connection.execute(begin)
            try:
                yield Statements(connection.execute)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.IntegrityError as error:
            if error.sqlite_errorname not in ("SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY"):
                raise
            raise Conflict(str(error)) from error
        except sqlite3.DatabaseError as error:
            if str(error).startswith("no such table") or getattr(error, "sqlite_errorname", "") == "SQLITE_CANTOPEN":
                raise Unavailable(f"no auction in {self.path} ({error}): make one with make-data") from error
            if getattr(error, "sqlite_errorcode", 0) & 0xFF not in self.AWAY:
                raise
            raise Unavailable(f"SQLite {self.path}: {error}") from error

    def reading(self):
        return self._transaction("BEGIN")

    def writing(self):
        # IMMEDIATE takes the one writer's place now, so that what is read here is still true at the commit.
        return self._transaction("BEGIN IMMEDIATE")

    def create(self):
        """Begins a new file, which has its name from `finish` on."""
        if os.path.exists(self.path):
            raise FileExistsError(f"{self.path} exists: remove it, or name another file")
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.path + ".new")
        self.loading = sqlite3.connect(self.path + ".new", isolation_level=None)
        self.loading.execute("PRAGMA journal_mode = OFF")
        self.loading.execute("PRAGMA synchronous = OFF")
        self.loading.executescript(schema()[0])
        self.loading.execute("BEGIN")

    def load(self, table, columns, rows):
        """Adds many rows, after `create` and before `finish`."""
        places = ", ".join("?" * len(columns))
        self.loading.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", rows)

    def finish(self):
        """Makes the indexes, and gives the file its name."""
        self.loading.execute("COMMIT")
        self.loading.executescript(schema()[1] + "ANALYZE; PRAGMA synchronous = FULL; PRAGMA journal_mode = WAL;")
        self.loading.close()
        os.rename(self.path + ".new", self.path)


class PostgreSQL:
    """A server, through a pool of connections in each process."""

    def __init__(self, url):
        self.url = url
        self.lock = threading.Lock()
        self.pools = {}

    def pool(self):
        import psycopg.rows
        import psycopg_pool

        # A pool must not cross a fork.
        with self.lock:
            if os.getpid() not in self.pools:
                self.pools = {
                    os.getpid(): psycopg_pool.ConnectionPool(
                        self.url,
                        min_size=1,
                        max_size=CONNECTIONS_MAX,
                        timeout=CONNECT_WAIT_S,
                        # A server that is back is found again within about a second.
                        reconnect_timeout=1,
                        kwargs={
                            "autocommit": True,
                            "row_factory": psycopg.rows.dict_row,
                            "connect_timeout": CONNECT_WAIT_S,
                            "options": f"-c lock_timeout={LOCK_WAIT_S}s -c statement_timeout={10 * LOCK_WAIT_S}s",
                        },
                    )
                }
            return self.pools[os.getpid()]

    @contextlib.contextmanager
    def _transaction(self, begin):
        import psycopg
        import psycopg_pool

        try:
            pool = self.pool()
            connection = self._begun(pool, begin)
            try:
                yield Statements(lambda sql, values: connection.execute(sql.replace("?", "%s"), values))
                connection.execute("COMMIT")
            except BaseException:
                if not connection.closed and not connection.broken:
                    connection.execute("ROLLBACK")
                raise
            finally:
                pool.putconn(connection)
        except psycopg.errors.UniqueViolation as error:
            raise Conflict(str(error)) from error
        except psycopg.errors.UndefinedTable as error:
            raise Unavailable("no auction in the PostgreSQL database: make one with make-data") from error
        except (psycopg.OperationalError, psycopg_pool.PoolTimeout, psycopg.errors.InternalError_) as error:
            raise Unavailable(f"PostgreSQL: {error}") from error

    def _begun(self, pool, begin):
        """A connection in a new transaction. One that died while it lay in the pool is thrown away here."""
        import psycopg

        for attempt in range(CONNECTIONS_MAX + 1):
            connection = pool.getconn()
            try:
                connection.execute(begin)
                return connection
            except psycopg.OperationalError:
                pool.putconn(connection)
                if attempt == CONNECTIONS_MAX:
                    raise

    def reading(self):
        return self._transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def writing(self):
        return self._transaction("BEGIN ISOLATION LEVEL READ COMMITTED")

    def create(self):
        """The tables, in a database that has none."""
        import psycopg

        numbered = "id INTEGER GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"
        self.loading = psycopg.connect(self.url)
        try:
            self.loading.execute(schema()[0].replace("id INTEGER PRIMARY KEY", numbered))
        except psycopg.errors.DuplicateTable as error:
            raise FileExistsError(f"the database has an auction already ({error}): name another database") from error

    def load(self, table, columns, rows):
        """Adds many rows, after `create` and before `finish`."""
        with self.loading.cursor() as cursor:
            with cursor.copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)

    def finish(self):
        """Makes the indexes, and commits what was loaded."""
        self.loading.execute(schema()[1])
        for table in ("users", "items", "bids", "purchases", "comments"):
            self.loading.execute(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id)) FROM {table}")
        self.loading.commit()
        self.loading.autocommit = True
        self.loading.execute("ANALYZE")
        self.loading.close()


class Statements:
    """What can be done within a transaction."""

    def __init__(self, execute):
        self.execute = execute

    def all(self, sql, *values):
        return self.execute(sql, values).fetchall()

    def one(self, sql, *values):
        rows = self.all(sql, *values)
        return rows[0] if rows else None
