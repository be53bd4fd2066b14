"""Personal data in text: where it stands. Addresses of people and machines, numbers of phones, cards and accounts.

Belongs here: Presidio's recognisers and which of their findings count in code and diffs. Does not: what is put in their
place (cleaning), names in running prose (that needs a language model; names in commit trailers are found).

The recognisers are called one by one (https://microsoft.github.io/presidio/analyzer/), without an analyser engine: that
one downloads a language model.
"""

import functools
import ipaddress
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ec1.corpus.secrets import SecretMatch
from ec1.errors import InputError

# Cheap tests of whether a text can hold anything at all; importing Presidio takes seconds.
_MAY_BE_EMAIL = re.compile(r"[\w.+\-]@\w[\w\-]*+\.\w")
# How a number is written that counts as one of a phone: with its country, its area in brackets, or in the groups of its
# country. The recogniser takes milliseconds for each line of numbers, so it sees only those with such a number.
_WITH_COUNTRY, _WITH_AREA = r"\+(?:[^\w\n+]{0,5}\d){9}", r"\(\d{2,4}\)[ -]?\d"
_GROUPS = r"(?:1[ .\-])?\d{3}[ .\-]\d{3}[ .\-]\d{4}", r"0\d{1,4}[ \-/]\d{3,8}(?:[ \-]\d{1,4}){0,2}"
_MAY_BE_PHONE = re.compile(rf"(?<![\w.#=&:@])(?:{'|'.join((_WITH_COUNTRY, _WITH_AREA, *_GROUPS))})")
_WRITTEN_AS_ONE, _GROUPED = re.compile(rf"\+|{_WITH_AREA}"), re.compile("|".join(_GROUPS))
# No issuer's cards have 16 digits and begin with 1: those are years.
_YEARS = re.compile(r"1\d{3}(?:[- ]?\d{4}){3}(?!\d)")
_MAY_BE_CARD = re.compile(
    rf"(?<![\w.\-])(?!{_YEARS.pattern})[13-6]\d{{3}}[- ]?\d{{3,4}}[- ]?\d{{3,4}}[- ]?\d{{3,5}}(?![\w\-]|\.\d)"
)
_MORE_BEFORE, _MORE_AFTER = re.compile(r"(?<!\d)(?:\d{4}[ -]){2}$"), re.compile(r"(?:[ -]\d{4}){2}(?!\d)")
_MAY_BE_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}[ -]?[A-Z0-9]{4}")
_MAY_BE_SSN = re.compile(r"(?<![\w.\-])\d{3}-\d{2}-\d{4}(?![\w\-])")
_MAY_BE_IPV4 = re.compile(r"(?<![\w.\-])\d{1,3}(?:\.\d{1,3}){3}(?![\w]|\.\d|-\d)")
_MAY_BE_IPV6 = re.compile(r"(?<![\w:])[23][0-9A-Fa-f]{3}:[0-9A-Fa-f:]*:[0-9A-Fa-f:]*")

_TRAILER = re.compile(
    r"(?m)^[+\- ]?[ \t]*+(?i:signed-off|co-authored|reviewed|acked|tested|reported|suggested|approved)-by:[ \t]*"
    r"([^<>\n@]{2,80}?)[ \t]*(?=<|$)"
)
# Endings that the public suffix list does not know but that name people inside an organisation.
_PRIVATE_SUFFIXES = ("corp", "example", "home", "internal", "intranet", "invalid", "lan", "local", "test")
# Accounts of machines, as in `git@github.com:owner/name`.
_NO_PERSON = re.compile(r"(?i)(?:git|hg|svn|noreply|no-reply|.*\[bot\]|.*@users\.noreply\.github\.com)(?:@|$)")


_SURE = 0.8
"""The score from which a recogniser that a recipe asked for counts: its pattern fits, and its check digits too."""


def find_pii(text: str, recognizers: Sequence[str] = ()) -> list[SecretMatch]:
    """Everything in the text that looks like personal data, in order; findings may overlap.

    `recognizers`: names of more of Presidio's recognisers, such as those of national identity numbers; what they are
    sure of counts. Raises InputError for a name that Presidio does not know.
    """
    found = [SecretMatch(*match.span(1), "person") for match in _TRAILER.finditer(text) if "<" not in match.group(1)]
    found += _emails(text)
    found += _phones(text)
    found += _cards(text)
    found += _of(_MAY_BE_IBAN, "IbanRecognizer", "iban", text)
    found += _of(_MAY_BE_SSN, "UsSsnRecognizer", "ssn", text)
    found += [item for item in _of(_MAY_BE_IPV4, "IpRecognizer", "ip", text) if _is_public(text[item.start : item.end])]
    found += [item for item in _of(_MAY_BE_IPV6, "IpRecognizer", "ip", text) if _is_public(text[item.start : item.end])]
    for name in recognizers:
        for result in _recognizer(name).analyze(text, [], None):
            if result.score >= _SURE:
                found.append(SecretMatch(result.start, result.end, f"recognized-{result.entity_type.lower()}"))
    return sorted(set(found))


def _lines_with(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """The bounds of the lines in which a pattern occurs: the recognisers need not see the others."""
    last = -1
    for match in pattern.finditer(text):
        if match.start() < last:
            continue
        start = text.rfind("\n", 0, match.start()) + 1
        end = text.find("\n", match.end())
        last = len(text) if end < 0 else end
        # Of a line without end (minified code) only the surroundings.
        yield max(start, match.start() - 200), min(last, match.end() + 200)
        last = min(last, match.end() + 200)


def _of(pattern: re.Pattern[str], recognizer: str, kind: str, text: str) -> Iterator[SecretMatch]:
    for start, end in _lines_with(pattern, text):
        for result in _recognizer(recognizer).analyze(text[start:end], [], None):
            if result.score >= 0.3:
                yield SecretMatch(start + result.start, start + result.end, kind)


def _emails(text: str) -> Iterator[SecretMatch]:
    for item in _of(_MAY_BE_EMAIL, "EmailRecognizer", "email", text):
        value = text[item.start : item.end]
        if _suffixes()(value.rsplit("@", 1)[-1]).suffix and not _NO_PERSON.match(value):
            # What stands before an address in code (a quote, an equals sign) can be part of one, and rarely is.
            yield SecretMatch(item.start + len(value) - len(value.lstrip("'`=/{|-+")), item.end, "email")


def _cards(text: str) -> Iterator[SecretMatch]:
    for item in _of(_MAY_BE_CARD, "CreditCardRecognizer", "card", text):
        # One in ten rows of four numbers of four digits has a card's check digit, in a table with several more of them,
        # too. One more may be the month and year at which a card ends.
        listed = _MORE_BEFORE.search(text, max(0, item.start - 11), item.start) or _MORE_AFTER.match(text, item.end)
        if not _YEARS.match(text, item.start) and not listed:
            yield item


def _phones(text: str) -> Iterator[SecretMatch]:
    for item in _of(_MAY_BE_PHONE, "PhoneRecognizer", "phone", text):
        value = text[item.start : item.end]
        digits = sum(map(str.isdigit, value))
        before = text[max(0, item.start - 1) : item.start]
        # A bare number, a date, a version, a range of lines or an id is none.
        written = _WRITTEN_AS_ONE.match(value) or _GROUPED.fullmatch(value)
        if digits >= 9 and written and not re.fullmatch(r"[\w.#=&:@]", before):
            yield SecretMatch(item.start, item.end, "phone")


def _is_public(value: str) -> bool:
    """True for a public IP address; private, loopback and documentation ranges are not personal data."""
    try:
        address = ipaddress.ip_interface(value).ip
    except ValueError:
        return False
    # Versions such as 1.2.3.4 are addresses too; those of real machines rarely have four one-digit parts.
    return address.is_global and not re.fullmatch(r"(?:\d\.){3}\d{1,2}", value)


def check_recognizers(names: Sequence[str]) -> None:
    """Raises InputError for a name that Presidio does not know."""
    for name in names:
        _recognizer(name)


@functools.cache
def _recognizer(name: str) -> Any:
    from presidio_analyzer import predefined_recognizers

    recognizer: Any = getattr(predefined_recognizers, name, None)
    if recognizer is None or not name.endswith("Recognizer"):
        raise InputError(f"data.recognizers: Presidio has no {name!r}; its recognisers are called DeTaxIdRecognizer, …")
    if name == "EmailRecognizer":
        # Its own check fetches the public suffix list from the network; `_emails` checks without.
        recognizer = type("OfflineEmailRecognizer", (recognizer,), {"validate_result": lambda self, text: None})
    return recognizer()


@functools.cache
def _suffixes() -> Any:
    import tldextract

    return tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None, extra_suffixes=_PRIVATE_SUFFIXES)
