"""Secrets that stand where a known command, header or file has its secret, with no name before them.

Belongs here: short options of commands, positions of files such as `.pgpass`, calls that take user and password. Does
not: what a telling name stands before (`secret_contexts`).
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ec1.corpus.secret_values import OF_EXAMPLES, PLACEHOLDER, is_mixed, is_phrase, is_random, is_token, is_value

_ARGUMENT = r"(?:'([^'\n]{4,128})'|\"([^\"\n]{4,128})\"|([^\s\"'`<>$;|{}\[\]\-][^\s\"'`<>;|{}]{3,255}))"
_VALUE = r"([^\s\"'`<>$;|{}]{4,256})"


@dataclass(frozen=True)
class _Place:
    """`needles`: one of them is in every text that can match, lower-cased. The last matched group is the secret."""

    kind: str
    needles: tuple[str, ...]
    regex: re.Pattern[str]
    accept: Callable[[str], bool]


def _place(kind: str, needles: str, regex: str, accept: Callable[[str], bool] = is_value) -> _Place:
    return _Place(kind, tuple(needles.split(" | ")), re.compile(regex), accept)


def _is_given(value: str) -> bool:
    """The value of an option that takes a password, which no file, host or option is written like."""
    return not (PLACEHOLDER.search(value) or re.fullmatch(r"[A-Z_]+|[a-z]{1,9}|[\d.:/]+|\$.*|[./].*|~/.*", value))


def _is_word_or_phrase(value: str) -> bool:
    return is_phrase(value) or _is_given(value)


def _is_not_of_examples(value: str) -> bool:
    """`user:password` of a URL, unless it is what documentation writes there."""
    user, _, password = value.partition(":")
    named = re.fullmatch(r"(?i)[a-z_]*(?:pass|pwd|token|secret|key|\*{3})[a-z_*]*", password)
    several = re.fullmatch(r"\d+,.*:.*", password)  # host:port,user:password
    return len(password) > 2 and not several and password.lower() not in OF_EXAMPLES and password != user and not named


_PLACES = (
    _place(
        "authorization",
        "authorization",
        r"(?i:authorization)\\?[\"'\]]{0,2}\s{0,3}[:=,]\s{0,3}f?\\?[\"'`]?(?i:bearer|basic|token|apikey)\s+"
        r"([A-Za-z0-9+/=._~\-]{8,})",
    ),
    _place("authorization", "bearer", r"(?i:\bbearer)\s+([A-Za-z0-9+/=._~\-]{20,})"),
    _place(
        "authorization",
        "authorization | bearer",
        r"(?i:type):[ \t]*Bearer[ \t]*\n[ \t]*credentials:[ \t]*([^\s\"']{12,})",
        is_token,
    ),
    _place("login", "-u | --user", r"(?:^|\s)(?:-u|--user)[ =][\"']?[\w.@\-]+:([^\s\"']{4,})"),
    _place("login", "-auth", r"[ \t]--?auth[ =][\"']?[\w.@\-]+:([^\s\"']{4,})"),
    _place(
        "login",
        " -p",
        r"[ \t](?:-u|--username|--user)[ =]?[^\s\-]\S*[ \t]+(?:--password[ =]|-p[ =]?)" + _ARGUMENT,
        _is_given,
    ),
    _place(
        "login",
        "mysql | mariadb",
        r"\b(?:mysql|mysqldump|mysqladmin|mariadb)\b[^\n|;]{0,200}?[ \t]-p" + _ARGUMENT,
        _is_given,
    ),
    _place("login", "sshpass", r"\bsshpass[ \t]+-p[ \t]*" + _ARGUMENT, _is_given),
    _place("login", "redis-cli", r"\bredis-cli\b[^\n|;]{0,200}?[ \t](?:-a|--pass)[ \t]+" + _ARGUMENT, _is_given),
    _place("login", "ldap", r"\bldap(?:\w+)[ \t][^\n|;]{0,300}?[ \t]-w[ \t]*" + _ARGUMENT, _is_given),
    _place("login", "openssl", r"\bopenssl\b[^\n|;]{0,200}?[ \t]-(?:k|K)[ \t]+" + _ARGUMENT, _is_given),
    _place("login", "pass:", r"(?<![\w/])pass:" + _ARGUMENT, is_random),
    _place("login", "ssh-keygen", r"\bssh-keygen\b[^\n|;]{0,200}?[ \t]-(?:N|P)[ \t]*" + _ARGUMENT, _is_word_or_phrase),
    _place("login", "%", r"[ \t](?:-U|--user)[ =]?[\w.\\\-]+%" + _VALUE, _is_given),
    _place(
        "login",
        "rabbitmqctl",
        r"\brabbitmqctl\b[^\n|;]{0,60}?(?:add_user|change_password|authenticate_user)[ \t]+\S+[ \t]+" + _ARGUMENT,
        _is_given,
    ),
    _place("login", "net user", r"(?i:\bnet[ \t]+user)[ \t]+[^\s/]+[ \t]+" + _ARGUMENT, _is_given),
    _place("login", "/user:", r"(?<=\s)(?i:/user):\S+[ \t]+" + _ARGUMENT, _is_given),
    _place("login", "vault login | docker login", r"\bvault[ \t]+login[ \t]+" + _ARGUMENT, is_random),
    _place("login", "sudo -s | chpasswd", r"\becho[ \t]+" + _ARGUMENT + r"[ \t]*\|[ \t]*sudo[ \t]+-S", _is_given),
    _place("login", "chpasswd", r"\becho[ \t]+[\"']?[\w.\-]+:([^\s\"']{4,128})[\"']?[ \t]*\|[ \t]*(?:sudo )?chpasswd"),
    _place("login", " on ", r"\b(?:user|SETUSER|setuser)[ \t]+\S+[ \t]+on[ \t]+>" + _VALUE),
    _place("login", "http-basic", r"\bhttp-basic\.\S+[ \t]+\S+[ \t]+" + _ARGUMENT, _is_given),
    _place("login", "nuget", r"\bnuget[ \t]+push[ \t]+\S+[ \t]+" + _ARGUMENT, is_random),
    _place("login", ":", r"(?m)^[\w.*\-]+:(?:\d{2,5}|\*):[\w*\-]+:[\w*\-]+:([^\s:]{4,128})$", is_random),
    _place("login", "jdbc:oracle", r"\bjdbc:oracle:\w+:[\w\-]+/([^\s@/\"']{4,128})@", _is_given),
    _place("login", "@", r"(?m)(?<![\w.+\-])[\w.+\-]++@[\w\-]++(?:\.[\w\-]++)+:([^\s:/\"'`]{6,128})$", is_random),
    _place(
        "login",
        "credential | login | auth | getconnection | createconnection",
        r"(?i:credentials?|login|getConnection|auth)[ \t]?=?[ \t]?\((?:[^()\"'\n]{0,40}[\"'][^\"'\n]{0,120}[\"'][ \t]*,"
        r"[ \t]*){1,2}?[\"']([^\s\"'\n]{6,128})[\"']",
        is_mixed,
    ),
    _place(
        "login",
        "credentials | login | log in | user",
        r"(?i:credentials|log(?:ged)?[ \-]?in|account|user(?:name)?)\b[^\n]{0,60}?[ \t:]([\w.@\-]{2,40})[ \t]+/[ \t]+"
        r"([^\s\"'/,;]{6,64}?)(?=[.,;)]?(?:\s|$))",
        is_random,
    ),
    _place("netrc", "login", r"\blogin\s+\S+\s+password\s+(\S{4,})"),
    _place("docker-auth", "auth", r"\\?\"auth\\?\"\s*:\s*\\?\"([A-Za-z0-9+/=]{12,})\\?\""),
    _place("docker-auth", "_auth", r"(?m)(?:^|:)_(?:auth|password)[ \t]*=[ \t]*\"?([A-Za-z0-9+/=_\-]{12,})"),
    _place("client-key", "client-key-data", r"client-key-data\\?\"?:\s*\\?\"?([A-Za-z0-9+/=]{40,})"),
    _place("secure-string", "securestring", r"(?i:-SecureString)[ \t]+(?i:-String[ \t]+)?" + _ARGUMENT, _is_given),
    _place("secure-string", "identified", r"(?i:\bIDENTIFIED[ \t]+BY)[ \t]+(?i:PASSWORD[ \t]+)?'([^'\n]{4,128})'"),
    _place("access-point", "psk", r"(?m)^[ \t]*psk=\"([^\"\n]{8,63})\"", lambda value: not PLACEHOLDER.search(value)),
    _place(
        "community", "snmp-server", r"\bsnmp-server[ \t]+community[ \t]+" + _VALUE,
        lambda value: value.lower() not in ("public", "private"),
    ),
    _place(
        "aws-secret",
        "secret",
        r"(?i:aws.{0,20}?secret.{0,20}?|secret_?access_?key)\\?[\"'\]]{0,2}\s{0,3}[:=]{1,2}\s{0,3}\\?[\"']?"
        r"([A-Za-z0-9/+=]{40})(?![A-Za-z0-9/+=])",
    ),
    _place(
        "parameter",
        "passw | pwd | secret | token | key | sig",
        r"[;?&](?i:password|passwd|pwd|secret|access_token|auth_token|token|api_?key|client_secret|sig)="
        r"([^;&\s\"'`<>{}$\\]{6,})",
    ),
    _place(
        "basic-auth",
        "://",
        r"://([^\s:/?#@,\[\]<>\"'`{}]*:[^\s/?#@\"'`<>{}]{1,256})@[A-Za-z0-9\[]",
        _is_not_of_examples,
    ),
)  # fmt: skip


def placed_secrets(text: str, lowered: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and kind of each value that stands in such a place."""
    for place in _PLACES:
        if any(needle in lowered for needle in place.needles):
            for match in place.regex.finditer(text):
                group = match.lastindex or 0
                if place.accept(match[group]):
                    start, end = match.span(group)
                    if place.kind == "basic-auth":
                        start += match[group].index(":") + 1
                    yield start, end, place.kind
