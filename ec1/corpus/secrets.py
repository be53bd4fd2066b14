"""Secrets in text: where they stand. Keys, tokens, passwords, in source code, diffs, configuration and prose.

Belongs here: patterns, and what tells a secret from a hash, a path or a placeholder. Does not: what is put in its place
(cleaning). The vendors' formats come from gitleaks (https://github.com/gitleaks/gitleaks, MIT) and from detect-secrets
(https://github.com/Yelp/detect-secrets); those that they lack, and everything that depends on context, are ours. The
keyword and hexadecimal detectors of detect-secrets are not used: on code they mostly find git SHAs and checksums.
"""

import base64
import functools
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ec1.corpus.secret_contexts import named_secrets
from ec1.corpus.secret_places import placed_secrets
from ec1.corpus.secret_values import HASH_PREFIX, HEX, PLACEHOLDER, UUID, entropy, made_of_words


@dataclass(frozen=True, order=True)
class SecretMatch:
    """Something that must not be trained on: characters `[start, end)` of a text, and what it seems to be."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True)
class _Pattern:
    """`needles`: one of them, if there are any, is in every text that can match, lower-cased. Group 1, if there is one,
    is the secret."""

    kind: str
    needles: tuple[str, ...]
    regex: re.Pattern[str]


def _pattern(kind: str, needles: str, regex: str) -> _Pattern:
    return _Pattern(kind, tuple(needles.split()), re.compile(regex))


# A token starts where no letter, digit or underscore stands before it.
_B = r"(?<![A-Za-z0-9_])"
_PRIVATE = r"[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
# What separates the lines of a key: in a file, in a diff, in a JSON string.
_BREAK = r"(?:\\[nr]|[\s+\-|>\"',])"

_TOKENS = (
    _pattern("openai-key", "sk-", _B + r"sk-(?:proj|svcacct|admin|None)-[A-Za-z0-9_\-]{16,}"),
    _pattern("anthropic-key", "sk-ant-", _B + r"sk-ant-[A-Za-z0-9_\-]{16,}"),
    _pattern("openrouter-key", "sk-or-", _B + r"sk-or-[A-Za-z0-9_\-]{16,}"),
    _pattern("api-key", "sk-", _B + r"sk-(?=[A-Za-z]*[0-9])[A-Za-z0-9]{20,}"),
    _pattern("hugging-face-token", "hf_ api_org_", _B + r"(?:hf|api_org)_[A-Za-z0-9]{30,}"),
    _pattern("github-token", "gh", _B + r"gh[pousr]_[A-Za-z0-9_]{30,}"),
    _pattern("github-token", "github_pat_", _B + r"github_pat_[A-Za-z0-9_]{22,}"),
    _pattern("gitlab-token", "gl", _B + r"gl(?:pat|dt|ft|ffct|soat|rt|cbt|ptt|imt|agent|oas)-[A-Za-z0-9_\-.]{20,}"),
    _pattern("slack-token", "xox xapp-", _B + r"(?:xox[a-z]|xapp)-[A-Za-z0-9-]{10,}"),
    _pattern("aws-key-id", "a", r"(?<![A-Za-z0-9/+])(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9/+])"),
    _pattern("google-api-key", "aiza", _B + r"AIza[A-Za-z0-9_\-]{35}"),
    _pattern("google-token", "ya29. gocspx-", _B + r"(?:ya29\.|GOCSPX-)[A-Za-z0-9_\-]{20,}"),
    _pattern("jwt", "eyj", _B + r"eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-=]{8,}(?:\.[A-Za-z0-9_\-=+/]*)?"),
    _pattern("stripe-key", "_live_ _test_", _B + r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}"),
    _pattern("webhook-secret", "whsec_", _B + r"whsec_[A-Za-z0-9+/=]{20,}"),
    _pattern("npm-token", "npm_", _B + r"npm_[A-Za-z0-9]{30,}"),
    _pattern("pypi-token", "pypi-", _B + r"pypi-[A-Za-z0-9_\-]{40,}"),
    _pattern("mailgun-key", "key-", _B + r"key-[0-9a-f]{32}(?![0-9a-zA-Z])"),
    _pattern("digitalocean-token", "_v1_", _B + r"do[opr]_v1_[0-9a-f]{40,}"),
    _pattern("shopify-token", "shp", _B + r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    _pattern("databricks-token", "dapi", _B + r"dapi[0-9a-f]{32}"),
    _pattern("vault-token", "hv", _B + r"hv[sbr]\.[A-Za-z0-9_\-]{20,}"),
    _pattern("linear-key", "lin_api_", _B + r"lin_api_[A-Za-z0-9]{30,}"),
    _pattern("notion-token", "ntn_ secret_", _B + r"(?:ntn_|secret_)(?=[A-Za-z]*[0-9])[A-Za-z0-9]{40,}"),
    _pattern("atlassian-token", "atatt3x", _B + r"ATATT3x[A-Za-z0-9_\-=]{40,}"),
    _pattern("grafana-token", "gl", _B + r"gl(?:c|sa)_[A-Za-z0-9_+/=]{24,}"),
    _pattern("new-relic-key", "nrak-", _B + r"NRAK-[A-Z0-9]{20,}"),
    _pattern("pulumi-token", "pul-", _B + r"pul-[0-9a-f]{40}"),
    _pattern("doppler-token", "dp.", _B + r"dp\.(?:pt|st|ct|sa)\.[A-Za-z0-9.]{30,}"),
    _pattern("terraform-token", ".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_\-=]{40,}"),
    _pattern("api-key", "gsk_ r8_ xai- pplx-", _B + r"(?:gsk_|r8_|xai-|pplx-)[A-Za-z0-9]{30,}"),
    _pattern("postman-key", "pmak-", _B + r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    _pattern("sentry-token", "sntry", _B + r"sntry[su]_[A-Za-z0-9+/=_]{30,}"),
    _pattern("heroku-key", "hrku-", _B + r"HRKU-[A-Za-z0-9_\-]{30,}"),
    _pattern("age-key", "age-secret-key-1", r"AGE-SECRET-KEY-1[0-9A-Z]{40,}"),
    _pattern(
        "azure-storage-key", "accountkey sharedaccesskey", r"(?i:(?:Account|SharedAccess)Key)=([A-Za-z0-9+/=]{40,})"
    ),
    _pattern("password-hash", "$", r"\$(?:2[abxy]|5|6|y|argon2(?:id?|d))\$[./A-Za-z0-9$=,+]{20,}"),
    _pattern("slack-webhook", "hooks.slack.com", r"hooks\.slack\.com/(?:services|workflows)/([A-Za-z0-9_/]{20,})"),
    _pattern("discord-webhook", "/api/webhooks/", r"/api/webhooks/\d{10,}/([A-Za-z0-9_\-]{30,})"),
    _pattern("token-in-url", "://", r"://((?=[A-Za-z_\-]*[0-9])[A-Za-z0-9_\-]{16,})@[A-Za-z0-9]"),
    _pattern(
        "private-key",
        "private key",
        r"-----BEGIN " + _PRIVATE + r"(?:(?:(?!-----BEGIN)[\s\S]){0,20000}?-----END " + _PRIVATE + "|"
        r"(?:" + _BREAK + r"{0,8}(?:[A-Za-z0-9+/=]{16,}|[A-Z][A-Za-z-]+: [^\n]{1,200}(?=\n)))*"
        r"(?:" + _BREAK + r"{1,8}[A-Za-z0-9+/=]+(?=\s*\Z))?)",
    ),
    _pattern(
        "private-key",
        "private key",
        r"(?<![A-Za-z0-9+/=])(?:[A-Za-z0-9+/=]{16,}+" + _BREAK + r"{1,8}){1,400}-----END " + _PRIVATE,
    ),
    _pattern(
        "putty-key", "putty-user-key-file", r"PuTTY-User-Key-File-\d:[\s\S]{0,8000}?(?:Private-MAC: ?[0-9a-f]+|\Z)"
    ),
)

_KEY_LINES = _pattern(
    "private-key", "", r"(?m)(?:^[+\- ]?[ \t]*[A-Za-z0-9+/]{64}\n){3,}(?:[+\- ]?[ \t]*[A-Za-z0-9+/]+={1,2}$)?"
)
_QUOTED = re.compile(r"([\"'`])([A-Za-z0-9+/_\-]{20,128}={0,2})\1")

# Names of calls, answers and runs that services hand out: they pair a call with its result and open nothing.
_IDENTIFIER = re.compile(
    r"(?:call|toolu|tool|fc|func|chatcmpl|cmpl|msg|run|resp|rs|req|thread|asst|step|item|evt|event|batch|file|sess|ws)"
    r"[_\-][A-Za-z0-9_\-]+"
)


def find_secrets(text: str) -> list[SecretMatch]:
    """Everything in the text that looks like a secret, in order; findings may overlap."""
    lowered = text.lower()
    found = [*_matches(_TOKENS, text, lowered, _always)]
    found += itertools.starmap(SecretMatch, placed_secrets(text, lowered))
    found += itertools.starmap(SecretMatch, named_secrets(text, lowered))
    found += _matches((_KEY_LINES,), text, lowered, _is_key_block)
    found += _random_strings(text)
    found += _vendor_tokens(text, lowered)
    found += _gitleaks_secrets(text, lowered)
    return sorted(set(found))


def _matches(patterns: tuple[_Pattern, ...], text: str, lowered: str, accept: Any) -> Iterator[SecretMatch]:
    for pattern in patterns:
        if not pattern.needles or any(needle in lowered for needle in pattern.needles):
            for match in pattern.regex.finditer(text):
                group = 1 if pattern.regex.groups else 0
                if accept(match.group(group)):
                    yield SecretMatch(*match.span(group), pattern.kind)


def _always(value: str) -> bool:
    return not PLACEHOLDER.fullmatch(value)


def _is_key_block(value: str) -> bool:
    return not all(HEX.fullmatch(line.strip("+- ")) for line in value.splitlines() if line.strip("+- "))


def _random_strings(text: str) -> Iterator[SecretMatch]:
    """Quoted base64 that is too random for a word, a path or a checksum."""
    randomness = _base64_entropy()
    for match in _QUOTED.finditer(text):
        value = match.group(2)
        kinds = (any(map(str.isupper, value)), any(map(str.islower, value)), any(map(str.isdigit, value)))
        if not all(kinds) or HEX.fullmatch(value) or UUID.fullmatch(value) or HASH_PREFIX.match(value):
            continue
        if (PLACEHOLDER.search(value) and len(value) < 40) or _IDENTIFIER.fullmatch(value):
            continue
        if _is_alphabet(value) or made_of_words(value) or _is_encoded_text(value):
            continue
        if randomness.calculate_shannon_entropy(value) > randomness.entropy_limit - (0.4 if len(value) < 32 else 0.0):
            yield SecretMatch(*match.span(2), "random-string")


def _is_alphabet(value: str) -> bool:
    """True for a constant such as A–Z: neighbours follow each other."""
    steps = sum(1 for left, right in itertools.pairwise(value) if ord(right) - ord(left) == 1)
    return steps > len(value) / 2


def _is_encoded_text(value: str) -> bool:
    """True for a sentence in base64."""
    try:
        decoded = base64.b64decode(value, validate=True).decode("ascii")
    except ValueError:
        return False
    return decoded.isprintable() and decoded.count(" ") >= 2


def _vendor_tokens(text: str, lowered: str) -> Iterator[SecretMatch]:
    for kind, needles, regex in _vendor_patterns():
        if needles and not any(needle in lowered for needle in needles):
            continue
        for match in regex.finditer(text):
            group = max(range(1 + (regex.groups or 0)), key=lambda number: _group_weight(match, number))
            start, end = match.span(group)
            value = match.group(group)
            start += len(value) - len(value.lstrip(" \t\r\n=:\"'"))
            end -= len(value) - len(value.rstrip(" \t\r\n=:\"'"))
            if any(map(str.isdigit, match.group(group))) and _always(text[start:end]):
                yield SecretMatch(start, end, kind)


def _group_weight(match: re.Match[str], number: int) -> tuple[bool, int]:
    """Of several groups the longest that can be a secret; group 0, the whole match, if none can."""
    text = match.group(number) or ""
    return (number > 0 and len(text) >= 16, len(text))


@dataclass(frozen=True)
class _Rule:
    """One of gitleaks' rules. One of `keywords` is in every text that can match; `group` is the secret's, if said."""

    kind: str
    regex: re.Pattern[str]
    keywords: tuple[str, ...]
    entropy: float
    group: int
    allowed: tuple[re.Pattern[str], ...]
    stopwords: tuple[str, ...]


@functools.cache
def _gitleaks_rules() -> tuple[_Rule, ...]:
    """Rules of https://github.com/gitleaks/gitleaks (MIT), version and attribution in the file;
    `benchmarks/_gitleaks_rules.py` renews it."""
    path = Path(__file__).parent / "data" / "gitleaks.json"
    return tuple(
        _Rule(
            rule["id"],
            re.compile(rule["regex"]),
            tuple(rule["keywords"]),
            rule["entropy"],
            rule["group"],
            tuple(map(re.compile, rule["allowed"])),
            tuple(rule["stopwords"]),
        )
        for rule in json.loads(path.read_text(encoding="utf-8"))["rules"]
    )


def _gitleaks_secrets(text: str, lowered: str) -> Iterator[SecretMatch]:
    for rule in _gitleaks_rules():
        if rule.keywords and not any(word in lowered for word in rule.keywords):
            continue
        for match in rule.regex.finditer(text):
            group = rule.group or next((number for number in range(1, rule.regex.groups + 1) if match[number]), 0)
            value = match[group]
            if entropy(value) < rule.entropy or any(pattern.search(value) for pattern in rule.allowed):
                continue
            if _always(value) and not any(word in value.lower() for word in rule.stopwords):
                yield SecretMatch(*match.span(group), rule.kind)


@functools.cache
def _base64_entropy() -> Any:
    from detect_secrets.plugins.high_entropy_strings import Base64HighEntropyString

    return Base64HighEntropyString(limit=4.5)


# What a text must hold for a detector of detect-secrets to match; its patterns alone are slow on text without any.
_NEEDLES = {
    "ArtifactoryDetector": ("akc", "ap"),
    "AzureStorageKeyDetector": ("accountkey",),
    "CloudantDetector": ("cloudant",),
    "DiscordBotTokenDetector": (".",),
    "GitHubTokenDetector": ("gh",),
    "GitLabTokenDetector": ("gl", "gr1348941"),
    "IbmCloudIamDetector": ("ibm", "iam", "bx", "bluemix"),
    "IbmCosHmacDetector": ("cos", "hmac", "secret_access", "secret-access"),
    "MailchimpDetector": ("-us",),
    "NpmDetector": ("_authtoken",),
    "OpenAIDetector": ("t3blbkfj",),
    "PypiTokenDetector": ("pypi-",),
    "SendGridDetector": ("sg.",),
    "SlackDetector": ("xox", "hooks.slack.com"),
    "SoftlayerDetector": ("softlayer", "sl_", "sl-"),
    "SquareOAuthDetector": ("sq0csp",),
    "StripeDetector": ("k_live_",),
    "TelegramBotTokenDetector": (":",),
    "TwilioKeyDetector": ("ac", "sk"),
}


@functools.cache
def _vendor_patterns() -> tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...]:
    """The patterns of detect-secrets' vendor detectors; those that ours cover better are left out."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class

    classes = {plugin.__name__: plugin for plugin in get_mapping_from_secret_type_to_class().values()}
    return tuple(
        (name.removesuffix("Detector").lower(), needles, regex)
        for name, needles in _NEEDLES.items()
        for regex in classes[name].denylist
    )
