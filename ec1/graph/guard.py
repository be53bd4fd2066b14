"""What a free query may do: one statement that reads the graph and nothing else.

Belongs here: the rule. Does not: running it (`reader.py`). A database that is opened read-only refuses to write the
graph, and still writes other files (`COPY … TO`), reads them, loads code and takes settings; and some table functions
end the whole process (`CALL read_parquet(…)`). So statements are refused by a list and functions allowed by one.
"""

import re

from ec1.errors import InputError

CALLABLE = ("current_setting", "db_version", "show_connection", "show_functions", "show_tables", "table_info")
"""Functions that `CALL` may name: those that describe the graph."""
MAX_CHARACTERS = 8_000
# Deeper ones end the process in its parser (300 lists in one another), or keep it busy where no time-out reaches.
_MAX_DEPTH = 40
_MAX_CASES = 8

_TOKEN = re.compile(
    r"(?P<text>'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\")|(?P<name>`[^`]*`)|(?P<comment>//[^\n]*|/\*.*?\*/)"
    r"|(?P<open>['\"`]|/\*)|(?P<other>.)",
    re.DOTALL,
)
_REFUSED = re.compile(
    r"\b(?:alter|analyze|attach|begin|checkpoint|comment|commit|copy|create|delete|detach|drop|export|force|import"
    r"|install|load|merge|macro|remove|rollback|set|transaction|uninstall|update|use)\b",
    re.IGNORECASE,
)
_CASE = re.compile(r"\bcase\b", re.IGNORECASE)
_CALL = re.compile(r"\bcall\b\s*(\w*)\s*(\(?)", re.IGNORECASE)


# Functions that make a value as large as a number says, before any limit is looked at.
_GROWS = re.compile(r"\b(range|lpad|rpad|repeat|list_transform|list_filter|list_reduce)\s*\(", re.IGNORECASE)
_LARGE = 100_000
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e\d{1,3})?", re.IGNORECASE)


def checked_query(cypher: str) -> str:
    """The query as it may run: without its comments, so that nothing can hide in one. Raises InputError."""
    if len(cypher) > MAX_CHARACTERS:
        raise InputError(f"the query has {len(cypher):,} characters: {MAX_CHARACTERS:,} are allowed")
    if "\0" in cypher or re.search("[\ud800-\udfff]", cypher):
        raise InputError("the query holds a character that is not text: remove it")
    sent, bare = [], []
    for token in _TOKEN.finditer(cypher):
        if token["open"]:
            raise InputError(f"the query has a {token['open']} without an end: close it")
        sent.append(" " if token["comment"] else token[0])
        # What is quoted is a value or a name: no keyword. One mark, so that `x`(…) is not an unquoted name either.
        bare.append("¤" if token["text"] or token["name"] else sent[-1])
    text = "".join(bare).strip().removesuffix(";").strip()
    if not text:
        raise InputError("the query is empty: try 'MATCH (e:Entity) RETURN e.name LIMIT 5'")
    if ";" in text:
        raise InputError("the query has several statements: run them one by one")
    if found := _REFUSED.search(text):
        raise InputError(f"only queries that read are allowed here, not {found[0].upper()}")
    if _depth(text) > _MAX_DEPTH or len(_CASE.findall(text)) > _MAX_CASES:
        raise InputError(f"the query is too deeply nested: {_MAX_DEPTH} brackets and {_MAX_CASES} CASE are allowed")
    _check_sizes(text)
    for call in _CALL.finditer(text):
        if call[1].lower() not in CALLABLE or not call[2]:
            raise InputError(f"CALL may name one of {', '.join(CALLABLE)} here, not {call[1] or 'that'}")
    return "".join(sent)


def _check_sizes(text: str) -> None:
    """Refuses what would make a list or a text of more than `_LARGE`, as far as its numbers say so. What they do not
    say meets the limits of the process that runs it."""
    for call in _GROWS.finditer(text):
        depth, end = 1, call.end()
        while depth and end < len(text):
            depth += (text[end] == "(") - (text[end] == ")")
            end += 1
        inside = text[call.end() : end]
        numbers = [
            float(number) for number in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?:e\d{1,3})?", inside, re.IGNORECASE)
        ]
        if re.search(r"[*^]|<<|\bpow", inside) or any(number > _LARGE for number in numbers):
            raise InputError(
                f"{call[1].lower()} may make at most {_LARGE:,} here, by numbers as they stand: ask for less"
            )


def _depth(text: str) -> int:
    """How deep brackets of any kind stand in one another."""
    depth = deepest = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    return deepest
