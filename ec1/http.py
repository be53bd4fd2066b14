"""What every HTTP client of ours needs: whose certificates it trusts, and how it shows a key."""

import ssl


def trusted() -> ssl.SSLContext:
    """The system's certificates, where an organisation puts its own (`SSL_CERT_FILE` and `SSL_CERT_DIR` name others),
    and those that httpx brings, for a machine that has none: a client of httpx that looks at no proxy of the
    environment has the latter alone."""
    import httpx

    context = httpx.create_ssl_context(trust_env=False)
    context.load_default_certs()
    return context


def authorization(api_key: str | None) -> dict[str, str]:
    """The headers with which a server is asked that wants this key; none without one."""
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}
