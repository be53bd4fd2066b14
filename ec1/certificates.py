"""Whose certificates are trusted where an address is https: the system's, where an organisation puts its own."""

import ssl

import httpx


def trusted() -> ssl.SSLContext:
    """The system's certificates (`SSL_CERT_FILE` and `SSL_CERT_DIR` name others), and those that httpx brings, for a
    machine that has none: a client of httpx that looks at no proxy of the environment has the latter alone."""
    context = httpx.create_ssl_context(trust_env=False)
    context.load_default_certs()
    return context
