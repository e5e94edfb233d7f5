"""Passwords as they are stored: scrypt (RFC 7914) with a salt, as text that carries its own parameters."""

import hashlib
import hmac
import secrets

# For accounts that people open: n, r and p of interactive sign-ins (C. Percival, "Stronger key derivation via sequential
# memory-hard functions", 2009), 16 MiB and some 50 ms. make-data takes less for its many users.
SCRYPT = (1 << 14, 8, 1)


def hashed(password, parameters=SCRYPT, salt=None):
    """scrypt$n$r$p$salt$hash, which carries its own parameters."""
    n, r, p = parameters
    salt = salt or secrets.token_hex(8)
    digest = hashlib.scrypt(password.encode(), salt=salt.encode(), n=n, r=r, p=p, dklen=24)
    return f"scrypt${n}${r}${p}${salt}${digest.hex()}"


def matches(password, stored):
    _, n, r, p, salt, _ = stored.split("$")
    return hmac.compare_digest(hashed(password, (int(n), int(r), int(p)), salt), stored)
