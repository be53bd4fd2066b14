"""Secrets that only their surroundings betray: a telling name, a joint, a value.

Belongs here: names that tell of a secret, what may stand between name and value in programs, configuration, markup,
command lines and prose, and how sure of the value each of them has to be. Does not: tokens that their own form betrays
(`secrets`), what a value may look like (`secret_values`).

A name is looked for as plain text, and each joint is tried only where one ends: the search costs what finding the words
costs, however many joints there are.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ec1.corpus.secret_values import is_password, is_phrase, is_random, is_token, is_value

Judge = Callable[[str], bool]

_STRONG = (
    *(
        "passw",
        "passphrase",
        "pwd",
        "secret",
        "pass",
        "psk",
        "storepass",
        "keypass",
        "authtok",
        "requirepass",
        "masterauth",
    ),
    *("mot de passe", "contraseña", "identified by", "kennwort", "pw", "credentials for"),
)
_WEAK = (
    *("token", "apikey", "api key", "api-key", "api_key", "credential", "key-string", "basic-auth"),
    *(f"{word}{joint}key" for word in ("access", "auth", "private", "account", "encryption", "signing", "service", "db",
                                       "master", "shared", "unseal") for joint in ("", "_", "-", " ")),
    *("presharedkey", "unseal key 1", "snmp-server community"),
)  # fmt: skip
# What a name must begin with: `pass` inside `bypass` or `compass` tells nothing.
_WHOLE = {"pass", "psk", "pw", "pwd"}
# A token of these is a place in a list, a piece of text, or a guard against forged forms.
_OTHER_TOKENS = re.compile(
    r"(?i)(?:page|paging|continuation|continue|next|cursor|sync|resume|resumption|cancel|cancellation|pad|eos|bos|unk|"
    r"sep|cls|mask|stop|end|start|special|image|max|sub|last|idempotency|ordering|async|chunk|state|change|client[_\-]?"
    r"request)[_\-]?$"
)
# A name that goes on like this holds something about a secret, not the secret.
_ABOUT = (
    r"(?![a-z])(?![_\-]?(?:[Nn]ame|[Ii]d\b|[Rr]ef|[Ff]ile|[Pp]ath|[Uu]r[li]|[Tt]ype|[Ff]ield|[Ll]en|[Cc]ount|[Ll]imit|"
    r"[Rr]egex|[Pp]attern|[Ss]ize|[Mm]ax|[Mm]in|[Bb]udget|[Ee]nv|[Vv]ar|[Hh]eader|[Pp]refix|[Ll]abel|[Hh]int|[Pp]arser|"
    r"[Ss]tdin))"
)
_NAME = re.compile(r"(?:(?i:w?(?:or[dt]|d)s?)|code|s(?=\W))?" + _ABOUT + r"[A-Za-z0-9_\-]{0,30}")

_QUOTE = r"[@bfruR]?\\?[\"'`]"
_QUOTED = _QUOTE + r"([^\"'`\s\\]{5,256})\\?[\"'`]"
_PHRASE = r"[\"'`“]([^\"'`“”\n]{5,80})[\"'`”]"
_BARE = r"([^\s\"'`,;(){}\[\]<>$|]{6,256}?)"
_CLOSED = r"\\?[\"'`]?\]?"


@dataclass(frozen=True)
class _Joint:
    """What stands between a name and its value. `strong`, `weak`: how a value is judged behind a name of that kind;
    nothing: such a name does not count here."""

    regex: re.Pattern[str]
    strong: Judge
    weak: Judge | None = None


def _joint(regex: str, strong: Judge, weak: Judge | None = None) -> _Joint:
    return _Joint(re.compile(regex), strong, weak)


def _is_written(value: str) -> bool:
    """A password behind an option or an element: no word that only names what belongs there."""
    return is_password(value) and is_value(value) and not re.fullmatch(r"[A-Z_\-]+|\$.*", value)


def _is_key(value: str) -> bool:
    return is_token(value) or is_random(value)


def _is_long(value: str) -> bool:
    """What stands bare inside a line: an identifier is written like a short password."""
    return is_random(value) and not re.fullmatch(r"[a-z_][a-z0-9_]{0,24}|[A-Za-z][a-z]*(?:[A-Z][a-z0-9]*)*", value)


_JOINTS = (
    # password = "…", "token": "…", secret: String::from("…"), key := []byte("…"), DB_PASS <<< "…"
    _joint(_CLOSED + r"\s{0,3}(?::=|=>|={1,3}|!==?|:|<<<)\s{0,40}" + _QUOTED, is_password, _is_key),
    _joint(_CLOSED + r"[ \t]*(?::=|=>|=|:)[ \t]*(?:[\w.:]{1,100}+|\[\]\w{1,100}+)\(" + _QUOTED + r"\)",
           is_random, is_random),
    # setPassword("…"), requirepass "…", PASSWORD '…', -Password '…'
    _joint(r"[ \t]*\([ \t]*" + _QUOTED + r"[ \t]*\)", is_random, is_random),
    _joint(r"(?:[ \t]++for[ \t]++[^\s=]++)?(?:[ \t]*+=)?[ \t]++" + _QUOTED, is_random, is_random),
    # define('DB_PASSWORD', '…'), env('TOKEN', '…')
    _joint(r"[\"']\s{0,3},\s{0,12}" + _QUOTED, is_random, is_random),
    # name: DB_PASSWORD / value: …; {"name": …, "value": …}; <add key="…" value="…"/>; <password><value>…
    _joint(_CLOSED + r"\s{0,3},?\s{0,40}[\"']?[Vv]alue[\"']?\s{0,3}[:=]\s{0,3}" + _QUOTED, is_password, _is_key),
    _joint(_CLOSED + r"[ \t]*\n[ \t]*value:[ \t]*" + _BARE + r"[ \t]*(?:\n|$)", _is_written, _is_key),
    _joint(r"[\"'][ \t]*\{[^{}]{0,200}?\bdefault\s*=\s*" + _QUOTED, is_password, _is_key),
    # api-token: | and the value on the next line
    _joint(_CLOSED + r":[ \t]*[|>][+\-]?[ \t]*\n[ \t]+" + _BARE + r"[ \t]*(?:\n|$)", _is_written, _is_key),
    # a pass phrase is several words
    _joint(_CLOSED + r"\s{0,3}[=:]?\s{0,3}(?:is[ \t]+)?" + _PHRASE, is_phrase),
    # "The password of the postgres user is …", "Passwort für den Zugang: …", "with the password …", "ENV TOKEN …"
    _joint(r"[^\n=:;\"'`()<>]{0,60}?(?:\b(?:is|are|was|to|ist|lautet|est|es)|[ \u00a0]?:)[ \t]+[\"“]?" + _BARE
           + r"[.!?]?(?=[\"”,;:)\s]|$)", is_random, is_random),
    _joint(r"(?:[ \t]+[0-9])?[ \t]+[\"'“]?" + _BARE + r"(?=[\"'”,;:)\s]|[.](?:\s|$)|$)", is_random, is_random),
    # ;Password=…; ?token=…& ,password=… at any place of a line
    _joint(r"[ \t]{0,3}[=:][ \t]{0,3}" + _BARE + r"(?=[\"'`;,&\s<]|$)", _is_long, _is_long),
)  # fmt: skip
# <password>…</password>, also with another element between
_ELEMENT = re.compile(r"(?:[ \t][^<>\n]{0,200})?>\s*+(?:<[Vv]alue>\s*+)?([^<>]{4,256}?)\s*</")
# --password=…, --password …, -storepass …, /pass:…, -Dpassword=…, :_authToken …, pass:…
_OPTION = re.compile(
    r"(?:[ \t]*=[ \t]*|:|[ \t]+)"
    r"(?:'([^'\n]{4,128})'|\"([^\"\n]{4,128})\"|([^\s\"'`<>$;|{}\[\]]{4,256}))(?=[\s\"';|)]|$)"
)
# PASSWORD=… to the end of a line: an environment file, a script, YAML or properties.
_TO_LINE_END = re.compile(
    r"[ \t]{0,3}[=:][ \t]{0,3}([^\s\"'`#,;(){}\[\]<>$|][^\s\"'`,;(){}\[\]<>$|]{5,255})[ \t]*$", re.M
)
_IN_LINE = re.compile(r"[+\- ]?[ \t]*(?:-[ \t]+)?(?:(?:export|set|ENV|ARG)[ \t]+)?[A-Za-z0-9_.\-/:@]{0,80}$")
_OF_ENV = re.compile(r"(?:ENV|set)[ \t]+[A-Za-z0-9_]*$")
_AFTER_ENV = re.compile(r"[ \t]+([^\s\"'`$]{6,256})[ \t]*$", re.M)


def named_secrets(text: str, lowered: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and kind of each value that a telling name stands before."""
    if len(lowered) != len(text):
        # A few capitals become two letters: places must stay places.
        lowered = "".join(each if len(each.lower()) != 1 else each.lower() for each in text)
    for end, strong in _names(text, lowered):
        for start, stop in _values(text, *end, strong):
            yield start, stop, "password" if strong else "token"


def _names(text: str, lowered: str) -> Iterator[tuple[tuple[int, int], bool]]:
    """Where telling words begin and the names that they stand in end, and whether the word is a strong one."""
    seen: set[int] = set()
    for words, strong in ((_STRONG, True), (_WEAK, False)):
        for word in words:
            start = lowered.find(word)
            while start >= 0:
                end = start + len(word)
                if _is_name(text, word, start, end) and (name := _NAME.match(text, end)) and name.end() not in seen:
                    seen.add(name.end())
                    yield (start, name.end()), strong
                start = lowered.find(word, end)


def _is_name(text: str, word: str, start: int, end: int) -> bool:
    before = text[start - 1] if start else " "
    if word in _WHOLE:
        return not before.isalpha() or (before.islower() and text[start].isupper())
    return word != "token" or not _OTHER_TOKENS.search(text, max(0, start - 20), start)


def _values(text: str, start: int, end: int, strong: bool) -> Iterator[tuple[int, int]]:
    """The value behind the name that ends at `end`, by each joint that fits."""
    for joint in _JOINTS:
        judge = joint.strong if strong else joint.weak
        if judge and (match := joint.regex.match(text, end)) and judge(match[1]):
            yield match.span(1)
    before = text[max(text.rfind("\n", 0, start) + 1, start - 90) : start]
    judge = _is_written if strong else _is_key
    if "<" in before[-60:] and (match := _ELEMENT.match(text, end)) and (judge(match[1]) or is_phrase(match[1])):
        yield match.span(1)
    option = before.rpartition(" ")[2]
    if option.startswith(("-", "/", "reset-")) or ":_" in option or text.startswith("pass:", start):
        match = _OPTION.match(text, end)
        if match and _is_written(match[match.lastindex or 0]):
            yield match.span(match.lastindex or 0)
    if (
        _IN_LINE.match(before)
        and (match := _TO_LINE_END.match(text, end))
        and (is_token(match[1]) or (strong and is_random(match[1])))
    ):
        yield match.span(1)
    if _OF_ENV.search(before) and (match := _AFTER_ENV.match(text, end)) and is_token(match[1]):
        yield match.span(1)
