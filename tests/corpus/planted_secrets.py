"""Secrets of many kinds, made up for each seed and assembled from parts, so that no scanner finds one here."""

import base64
import hashlib
import json
import random
import string
from collections.abc import Callable

ALNUM = string.ascii_letters + string.digits
URL_SAFE = ALNUM + "-_"
BASE64 = ALNUM + "+/"
HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + string.digits


def _text(rng: random.Random, alphabet: str, length: int) -> str:
    return "".join(rng.choice(alphabet) for _ in range(length - 2)) + rng.choice(string.digits) + rng.choice("abcdef")


def _base64(rng: random.Random, size: int) -> str:
    return base64.b64encode(rng.randbytes(size)).decode()


def _jwt(rng: random.Random) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part({'sub': _text(rng, ALNUM, 12)})}.{_text(rng, URL_SAFE, 43)}"


def key_lines(rng: random.Random, lines: int = 12) -> list[str]:
    return [_text(rng, BASE64, 64) for _ in range(lines)]


# What a token is called, and how one is made. Each secret stands on its own: nothing around it says what it is.
TOKENS: dict[str, Callable[[random.Random], str]] = {
    "openai project": lambda rng: "sk-" + "proj-" + _text(rng, URL_SAFE, 48),
    "openai": lambda rng: "sk-" + _text(rng, ALNUM, 20) + "T3Blbk" + "FJ" + _text(rng, ALNUM, 20),
    "anthropic": lambda rng: "sk-" + "ant-api03-" + _text(rng, URL_SAFE, 60),
    "hugging face": lambda rng: "hf" + "_" + _text(rng, string.ascii_letters, 34),
    "github classic": lambda rng: "gh" + "p_" + _text(rng, ALNUM, 36),
    "github user": lambda rng: "gh" + "u_" + _text(rng, ALNUM, 36),
    "github fine-grained": lambda rng: "github" + "_pat_" + _text(rng, ALNUM + "_", 60),
    "gitlab": lambda rng: "gl" + "pat-" + _text(rng, URL_SAFE, 20),
    "slack bot": lambda rng: "xo" + "xb-" + _text(rng, string.digits, 12) + "-" + _text(rng, ALNUM, 24),
    "slack app": lambda rng: "xa" + "pp-1-A" + _text(rng, UPPER, 10) + "-" + _text(rng, HEX, 64),
    "aws key": lambda rng: "AK" + "IA" + "".join(rng.choice(UPPER) for _ in range(16)),
    "aws session": lambda rng: "AS" + "IA" + "".join(rng.choice(UPPER) for _ in range(16)),
    "google api": lambda rng: "AI" + "za" + _text(rng, URL_SAFE, 35),
    "google oauth": lambda rng: "ya" + "29." + _text(rng, URL_SAFE, 60),
    "google client": lambda rng: "GOC" + "SPX-" + _text(rng, URL_SAFE, 28),
    "jwt": _jwt,
    "stripe": lambda rng: "sk" + "_live_" + _text(rng, ALNUM, 24),
    "stripe restricted": lambda rng: "rk" + "_test_" + _text(rng, ALNUM, 24),
    "webhook": lambda rng: "wh" + "sec_" + _text(rng, ALNUM, 32),
    "npm": lambda rng: "np" + "m_" + _text(rng, ALNUM, 36),
    "pypi": lambda rng: "py" + "pi-AgEIcHlwaS5vcmc" + _text(rng, URL_SAFE, 80),
    "sendgrid": lambda rng: "S" + "G." + _text(rng, URL_SAFE, 22) + "." + _text(rng, URL_SAFE, 43),
    "mailgun": lambda rng: "ke" + "y-" + _text(rng, HEX, 32),
    "mailchimp": lambda rng: _text(rng, HEX, 32) + "-us" + "12",
    "twilio": lambda rng: "S" + "K" + _text(rng, HEX, 32),
    "telegram": lambda rng: f"{rng.randrange(10**9, 10**10)}:" + _text(rng, URL_SAFE, 35),
    "discord": lambda rng: "M" + _text(rng, ALNUM, 24) + "." + _text(rng, ALNUM, 6) + "." + _text(rng, URL_SAFE, 27),
    "square": lambda rng: "sq0" + "csp-" + _text(rng, ALNUM, 43),
    "digitalocean": lambda rng: "dop" + "_v1_" + _text(rng, HEX, 64),
    "shopify": lambda rng: "shp" + "at_" + _text(rng, HEX, 32),
    "databricks": lambda rng: "da" + "pi" + _text(rng, HEX, 32),
    "vault": lambda rng: "hv" + "s." + _text(rng, URL_SAFE, 24),
    "linear": lambda rng: "lin" + "_api_" + _text(rng, ALNUM, 40),
    "notion": lambda rng: "nt" + "n_" + _text(rng, ALNUM, 46),
    "atlassian": lambda rng: "ATA" + "TT3x" + _text(rng, URL_SAFE, 100),
    "grafana": lambda rng: "gl" + "sa_" + _text(rng, ALNUM, 32) + "_" + _text(rng, HEX, 8),
    "groq": lambda rng: "gs" + "k_" + _text(rng, ALNUM, 52),
    "terraform": lambda rng: _text(rng, ALNUM, 14) + ".atlas" + "v1." + _text(rng, ALNUM, 67),
    "age": lambda rng: "AGE-SECRET" + "-KEY-1" + "".join(rng.choice(UPPER) for _ in range(58)),
    "bcrypt": lambda rng: "$2" + "b$12$" + _text(rng, ALNUM + "./", 53),
    "azure storage": lambda rng: "Account" + "Key=" + _base64(rng, 64),
    "slack webhook": lambda rng: (
        "https://hooks.slack"
        + ".com/services/T"
        + _text(rng, UPPER, 8)
        + "/B"
        + _text(rng, UPPER, 8)
        + "/"
        + _text(rng, ALNUM, 24)
    ),
    "login in a url": lambda rng: "postgres://" + "app:" + _text(rng, ALNUM, 14) + "@db.fern.example:5432/main",
    "token in a url": lambda rng: "https://" + _text(rng, ALNUM, 40) + "@github.com/acme/app.git",
}


def assignments(rng: random.Random) -> dict[str, tuple[str, str]]:
    """Secrets that only their surroundings betray: name -> (a line, the secret in it)."""
    word, hexadecimal, random64 = _text(rng, ALNUM, 14), _text(rng, HEX, 40), _base64(rng, 32)
    aws = _text(rng, BASE64, 40)
    basic = base64.b64encode(f"admin:{word}".encode()).decode()
    return {
        "python": (f'db_password = "{word}"', word),
        "json": (f'  "api_key": "{hexadecimal}",', hexadecimal),
        "json in json": (f'{{"body": "{{\\"client_secret\\": \\"{word}\\"}}"}}', word),
        "environment": (f"export STRIPE_TOKEN={hexadecimal}", hexadecimal),
        "yaml": (f"  password: {word}", word),
        "compose": (f"      - POSTGRES_PASSWORD={word}", word),
        "properties": (f"spring.datasource.password={word}", word),
        "go": (f'authToken := "{hexadecimal}"', hexadecimal),
        "ruby": (f":secret => '{word}'", word),
        "comparison": (f'if password == "{word}":', word),
        "aws secret": (f'aws_secret_access_key = "{aws}"', aws),
        "aws credentials": (f"aws_secret_access_key = {aws}", aws),
        "bearer": (f'curl -H "Authorization: Bearer {hexadecimal}"', hexadecimal),
        "basic": (f"Authorization: Basic {basic}", basic),
        "curl": (f"curl -u admin:{word} https://fern.example/api", word),
        "netrc": (f"machine fern.example login app password {word}", word),
        "docker": (f'{{"auths": {{"r.example": {{"auth": "{basic}"}}}}}}', basic),
        "kubeconfig": (f"    client-key-data: {_base64(rng, 60)}", ""),
        "connection string": (f"Server=db;User Id=sa;Password={word};Encrypt=true", word),
        "query": (f"GET /v1/items?page=2&access_token={hexadecimal}&x=1", hexadecimal),
        "npmrc": (f"//registry.fern.example/:_authToken={_uuid(rng)}", ""),
        "random string": (f'SIGNING = "{random64}"', random64),
    }


def _uuid(rng: random.Random) -> str:
    digest = hashlib.md5(rng.randbytes(8), usedforsecurity=False).hexdigest()
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:]))
