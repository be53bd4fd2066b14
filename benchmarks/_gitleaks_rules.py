"""Make `ec1/corpus/data/gitleaks.json` and `tests/corpus/gitleaks_cases.json` from a checkout of gitleaks.

Run as `python -m benchmarks._gitleaks_rules CHECKOUT`. Rules and positive cases are those of
https://github.com/gitleaks/gitleaks (MIT, Copyright (c) 2019 Zachary Rice); the version is recorded in both files.

The cases are written as patterns and literals in Go, so their expressions are read here and their random parts drawn
with a fixed seed: a second run gives the same files.
"""

import json
import random
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent
_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|`[^`]*`|//[^\n]*|[A-Za-z_][\w.]*|[-+(){}\[\],:=]')
# What gitleaks' own generic rule finds is found by ours, which know more contexts and raise fewer alarms.
_LEFT_OUT = {"generic-api-key"}


def python_regex(regex: str) -> str:
    """A pattern of Go's RE2 in Python's words. Flags in the middle hold for the rest of their group."""
    regex = regex.replace("[[:alnum:]]", "[A-Za-z0-9]").replace("[:alnum:]", "A-Za-z0-9").replace(r"\z", r"\Z")
    out, open_flags, in_class, place = "", [0], False, 0
    while place < len(regex):
        char = regex[place]
        if char == "\\":
            out, place = out + regex[place : place + 2], place + 2
            continue
        if in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        elif flag := re.match(r"\(\?(-?[ims]+)\)", regex[place:]):
            out, place = out + f"(?{flag[1]}:", place + flag.end()
            open_flags[-1] += 1
            continue
        elif char == "(":
            open_flags.append(0)
        elif char == ")":
            out += ")" * open_flags.pop()
        elif char == "|" and open_flags[-1]:
            # The flag goes on in the next branch.
            flags = re.findall(r"\(\?(-?[ims]+):", out)[-1]
            out, place = out + ")" * open_flags[-1] + f"|(?{flags}:", place + 1
            open_flags[-1] = 1
            continue
        out, place = out + char, place + 1
    out += ")" * open_flags[0]
    # What may stand before a telling name only costs time: the secret is a group behind it.
    return out.replace(r"[\w.-]{0,50}?", "", 1) if out.startswith((r"(?i:[\w.-]{0,50}?", r"[\w.-]{0,50}?")) else out


def rules(config: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for rule in config["rules"]:
        if "regex" not in rule or rule["id"] in _LEFT_OUT or "path" in rule:
            continue
        lists = rule.get("allowlists", [])
        re.compile(python_regex(rule["regex"]))
        found.append(
            {
                "id": rule["id"],
                "regex": python_regex(rule["regex"]),
                "keywords": sorted({word.lower() for word in rule.get("keywords", [])}),
                "entropy": rule.get("entropy", 0),
                "group": rule.get("secretGroup", 0),
                "allowed": [python_regex(each) for one in lists for each in one.get("regexes", [])],
                "stopwords": [each for one in lists for each in one.get("stopwords", [])],
            }
        )
    return found


def drawn(pattern: str, rng: random.Random) -> str:
    """A text that a pattern matches."""
    return "".join(_draw(_parser.parse(pattern), rng))


def _draw(parsed: Any, rng: random.Random) -> Iterator[str]:
    for kind, value in parsed:
        if kind is _constants.LITERAL:
            yield chr(value)
        elif kind is _constants.IN:
            yield chr(rng.choice(sorted(_members(value))))
        elif kind in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
            low, high, inner = value
            for _ in range(rng.randint(low, min(int(high), low + 40))):
                yield from _draw(inner, rng)
        elif kind is _constants.SUBPATTERN:
            yield from _draw(value[3], rng)
        elif kind is _constants.BRANCH:
            yield from _draw(rng.choice(value[1]), rng)
        elif kind is _constants.ANY:
            yield rng.choice("abcdefgh0123")


def _members(items: Any) -> set[int]:
    found: set[int] = set()
    for kind, value in items:
        if kind is _constants.LITERAL:
            found.add(value)
        elif kind is _constants.RANGE:
            found.update(range(value[0], value[1] + 1))
        elif kind is _constants.CATEGORY:
            found.update(map(ord, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"))
    return found


class Unknown(Exception):
    """An expression that only Go could evaluate."""


class Expressions:
    """Reads the few kinds of Go expressions that the cases are written in."""

    def __init__(self, text: str, samples: list[str], rng: random.Random) -> None:
        found = (token for token in _TOKEN.findall(text) if not token.startswith("//"))
        self.tokens, self.place, self.samples, self.rng = list(found), 0, samples, rng

    def cases(self) -> Iterator[str]:
        while self.place < len(self.tokens):
            start = self.place
            if self.tokens[start].startswith("fmt."):
                self._skip_call()
                continue
            try:
                value = self._sum()
            except (Unknown, IndexError):
                self.place = start + 1
                continue
            yield from [value] if isinstance(value, str) else value

    def _skip_call(self) -> None:
        """Pass over a call whose result only Go knows."""
        self.place += 1
        depth = 0
        while self.place < len(self.tokens):
            depth += {"(": 1, ")": -1}.get(self.tokens[self.place], 0)
            self.place += 1
            if depth == 0:
                return

    def _sum(self) -> Any:
        value = self._term()
        while self.place < len(self.tokens) and self.tokens[self.place] == "+":
            self.place += 1
            more = self._term()
            if not isinstance(value, str) or not isinstance(more, str):
                raise Unknown
            value += more
        return value

    def _term(self) -> Any:
        token = self.tokens[self.place]
        self.place += 1
        if token[0] == "`":
            return token[1:-1]
        if token[0] == '"':
            return str(json.loads(re.sub(r"\\x([0-9a-f]{2})", r"\\u00\1", token)))
        if not re.match(r"(?:utils|secrets)\.\w+$", token) or self.tokens[self.place] != "(":
            raise Unknown
        self.place += 1
        arguments = []
        while self.tokens[self.place] != ")":
            arguments.append(self._sum())
            if self.tokens[self.place] == ",":
                self.place += 1
        self.place += 1
        return self._call(token.partition(".")[2], arguments)

    def _call(self, name: str, arguments: list[Any]) -> Any:
        classes = {
            "Numeric": "[0-9]",
            "Hex": "[a-f0-9]",
            "AlphaNumeric": "[a-z0-9]",
            "AlphaNumericExtendedShort": "[a-z0-9_-]",
            "AlphaNumericExtended": r"[a-z0-9=_\-]",
            "AlphaNumericExtendedLong": r"[a-z0-9\/=_\+\-]",
        }
        if name in classes:
            return f"{classes[name]}{{{arguments[0]}}}"
        if name == "Hex8_4_4_4_12":
            return "-".join(f"[0-9a-f]{{{count}}}" for count in (8, 4, 4, 4, 12))
        if name == "NewSecret":
            return drawn(arguments[0], self.rng)
        if name == "GenerateSampleSecret":
            return f'{arguments[0]}_api_token = "{arguments[1]}"'
        if name == "GenerateSampleSecrets":
            identifier, secret = arguments
            names = {"{i}": identifier, "{I}": identifier.upper(), "{s}": secret}
            return [re.sub(r"\{[iIs]\}", lambda match: names[match[0]], sample) for sample in self.samples]
        raise Unknown


def _samples(source: str) -> list[str]:
    body = source.partition("samples := map[string]string{")[2].partition("\n\t}")[0]
    found = []
    for line in body.splitlines():
        match = re.match(r'\s*"[^"]*":\s+("(?:[^"\\]|\\.)*"|`[^`]*`),', line)
        if match:
            found.append(match[1][1:-1] if match[1][0] == "`" else str(json.loads(match[1])))
    return found


def cases(folder: Path, samples: list[str]) -> dict[str, list[str]]:
    """Rule -> texts that hold a secret."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*.go")):
        for body in re.split(r"(?m)^func ", path.read_text(encoding="utf-8"))[1:]:
            rule = re.search(r'RuleID:\s+"([^"]+)"', body)
            start = re.search(r"(?m)^\ttps\b", body)
            if rule is None or start is None or re.search(r"tps := map\[", body):
                continue
            region = re.split(r"(?m)^\tfps\b|^\treturn |^\tr\.", body[start.start() :])[0]
            rng = random.Random(rule[1])
            found[rule[1]] = list(Expressions(region, samples, rng).cases())
    return {rule: texts for rule, texts in found.items() if texts}


def main(checkout: Path) -> None:
    version = subprocess.run(
        ["git", "-C", str(checkout), "describe", "--tags", "--always"], capture_output=True, text=True, check=False
    ).stdout.strip()
    about = {"source": "https://github.com/gitleaks/gitleaks", "licence": "MIT, Copyright (c) 2019 Zachary Rice"}
    config = tomllib.loads((checkout / "config/gitleaks.toml").read_text(encoding="utf-8"))
    generated = checkout / "cmd/generate/config"
    samples = _samples((generated / "utils/generate.go").read_text(encoding="utf-8"))
    target = _ROOT / "ec1/corpus/data/gitleaks.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps({**about, "version": version, "rules": rules(config)}, indent=1) + "\n")
    texts = cases(generated / "rules", samples)
    (_ROOT / "tests/corpus/gitleaks_cases.json").write_text(
        json.dumps({**about, "version": version, "cases": texts}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
