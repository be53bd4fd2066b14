"""No planted secret survives; hashes, paths and code do; what is cut is cut afterwards."""

import hashlib
import itertools
import json
import random
import re
import sysconfig
import uuid
from collections import Counter
from pathlib import Path

import pytest
from planted_secrets import TOKENS, assignments, key_lines

from benchmarks._secret_lines import harmless_lines, secret_lines
from benchmarks.secrets_found import id_lines
from ec1.corpus import cleaning, pii
from ec1.corpus.cleaning import place_without_persons, scrub, scrub_example, without_persons
from ec1.corpus.pii import find_pii
from ec1.corpus.secrets import SecretMatch, find_secrets
from ec1.errors import InputError, RejectedError

SETTINGS = {
    "alone": "{}",
    "prose": "As agreed I used {} for the import, please rotate it.",
    "added in a diff": "@@ -1 +1,2 @@\n import os\n+value = '{}'\n",
    "removed in a diff": '@@ -4,2 +3 @@\n-    value: "{}"\n     retries: 3\n',
    "json": '{{"config": {{"value": "{}"}}}}',
    "json in json": '{{"body": "{{\\"value\\": \\"{}\\"}}"}}',
    "argument": "run --with={} --verbose",
}


def survives(secret: str, text: str) -> bool:
    """True if a piece of the secret that is long enough to matter is in the text."""
    return any(secret[start : start + 10] in text for start in range(max(1, len(secret) - 9)))


def test_tables_of_numbers_are_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recogniser of phones takes milliseconds for a line of numbers: 7 kB of them a second."""
    rng = random.Random(1)
    rows = [" ".join(f"{rng.uniform(0, 100):.2f}" for _ in range(8)) for _ in range(200)]
    rows += [f"2026-{month:02}-{day:02} 12:30:00 took {rng.random()}" for month in range(1, 13) for day in range(1, 28)]
    rows += [f"{year} {year + 5} {year + 10} {year + 15}" for year in range(1400, 2000)]

    def asked(name: str) -> None:
        raise AssertionError(f"{name} was asked")

    monkeypatch.setattr(pii, "_recognizer", asked)
    assert find_pii("\n".join(rows)) == []


@pytest.mark.parametrize("between", [" ", "-", ".", "\u00a0", "\u2011", "\u2013", ""])
def test_a_number_with_its_country_is_found_whatever_stands_between(between: str) -> None:
    number = between.join(("+49", "171", "1234567"))
    text = f"Reach Anna at {number}, please."
    assert [text[item.start : item.end] for item in find_pii(text)] == [number]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("4111 1111 1111 1111 12/27 123", ["4111 1111 1111 1111"]),
        ("paid with 5500-0000-0000-0004, thanks", ["5500-0000-0000-0004"]),
        ("card 4111111111111111.", ["4111111111111111"]),
        ("3782 822463 10005", ["3782 822463 10005"]),
        ("1354 1234 5678 911", ["1354 1234 5678 911"]),
        ("1990 1995 2000 2005", []),
        ("6011 0009 9013 9424 1227 123", ["6011 0009 9013 9424"]),
        ("6011 0009 9013 9424 0427 3310", []),
        ("3310 0427 6011 0009 9013 9424", []),
    ],
)
def test_a_card_is_told_from_a_row_of_numbers(text: str, found: list[str]) -> None:
    assert [text[item.start : item.end] for item in find_pii(text)] == found


# What stands before a run, and what it repeats.
LONG_RUNS = [("", "\n"), ("", "\r\n"), ("password", " "), ("password =", "\t"), ("<password>", "\n"), ("token:", "a:"),
             ("the private key ", "A"), ("the private key ", "key="), ("a@", "b"), ("a@b.c ", "d"), ("", "_"),
             ("signed-off-by: a", " ")]  # fmt: skip


@pytest.mark.parametrize(("before", "repeated"), LONG_RUNS)
@pytest.mark.timeout(60)
def test_a_long_run_of_anything_is_looked_through_once(before: str, repeated: str) -> None:
    """Going back over it at each of its characters took minutes for 50,000 empty lines, and hours for a megabyte."""
    text = before + repeated * (300_000 // len(repeated))
    assert repeated * 100 in scrub(text)[0]


@pytest.mark.parametrize("kind", sorted(TOKENS))
def test_no_token_survives_wherever_it_stands(kind: str) -> None:
    for seed in range(5):
        secret = TOKENS[kind](random.Random(f"{kind} {seed}"))
        core = secret.split("@")[0].split("services/")[-1].rpartition("://")[2].removeprefix("app:")
        for setting, template in SETTINGS.items():
            text, found = scrub(template.format(secret))
            assert not survives(core, text), (setting, kind)
            assert re.search(r"<(?:SECRET|KEY|TOKEN|PASSWORD|PRIVATE_KEY|WEBHOOK)>", text)
            assert sum(found.values()) >= 1


@pytest.mark.parametrize("kind", sorted(assignments(random.Random(0))))
def test_no_secret_survives_that_its_surroundings_betray(kind: str) -> None:
    for seed in range(5):
        line, secret = assignments(random.Random(seed))[kind]
        secret = secret or line.split(": ")[-1].split("=", 1)[-1]
        for text in (line, f"@@ -1 +1,2 @@\n x\n+{line}\n y\n"):
            assert not survives(secret, scrub(text)[0]), kind


@pytest.mark.parametrize("prefix", ["", "+", "-", " ", "    "])
def test_a_private_key_goes_whole_or_cut_anywhere(prefix: str) -> None:
    for seed in range(4):
        body = key_lines(random.Random(seed))
        lines = ["-----BEGIN " + "RSA PRIVATE KEY-----", *body, "-----END " + "RSA PRIVATE KEY-----"]
        for start, end in ((0, len(lines)), (0, 8), (5, len(lines)), (4, 11)):
            text = "before\n" + "".join(f"{prefix}{line}\n" for line in lines[start:end]) + f"{prefix}after()\n"
            clean, _ = scrub(text)
            assert not any(survives(line, clean) for line in body), (start, end)
            assert "before" in clean
            assert "after()" in clean


def test_a_private_key_inside_json_goes_too() -> None:
    body = key_lines(random.Random(1))
    key = "\\n".join(["-----BEGIN " + "PRIVATE KEY-----", *body, "-----END " + "PRIVATE KEY-----", ""])
    for text in (f'{{"private_key": "{key}", "type": "service"}}', f'{{"private_key": "{key[:300]}'):
        clean, _ = scrub(text)
        assert not any(survives(line, clean) for line in body)


def test_cutting_comes_after_scrubbing() -> None:
    """A token that was cut no longer matches its pattern: so the whole text is scrubbed, however long it is."""
    secret = TOKENS["github classic"](random.Random(3))
    text = "x = 1\n" * 400 + f"+token = '{secret}'\n" + "y = 2\n" * 400
    cut = text[: text.index(secret) + 12]
    assert survives(secret, scrub(cut)[0])
    assert not survives(secret, scrub(text)[0][: len(cut)])


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("email", "mail maria.alvarez@northwind.com or m.a+x@fern.example"),
        ("email", 'owner = "jun@fern.internal"'),
        ("phone", "call +1 415 555 0132 or (415) 555-0132"),
        ("phone", "Tel. 030 901820-12, +49 30 901820"),
        ("card", "paid with 4111 1111 1111 1111 and 5500-0000-0000-0004"),
        ("iban", "IBAN DE89 3704 0044 0532 0130 00, GB82WEST12345698765432"),
        ("ip", "from 93.184.216.34 and 2606:2800:220:1:248:1893:25c8:1946"),
        ("ssn", "SSN 536-22-8726"),
        ("person", "fix: it\n\nSigned-off-by: Maria Alvarez <maria@northwind.com>\nCo-authored-by: Li Wei\n"),
    ],
)
def test_personal_data_is_replaced(kind: str, text: str) -> None:
    clean, found = scrub(text)
    assert f"<{cleaning.PLACEHOLDERS[kind]}>" in clean
    assert found[kind] >= 1
    digits = "".join(filter(str.isdigit, clean))
    assert len(digits) <= 4 or kind == "phone"
    assert not any(word in clean for word in ("maria", "Alvarez", "Wei", "jun@", "9018", "0132"))


HASH = hashlib.sha256(b"x").hexdigest()
HARMLESS = [
    f"index {HASH[:7]}..{HASH[8:15]} 100644",
    f"commit {HASH[:40]}",
    f'revision = "{HASH[:40]}"',
    f'checksum = "{HASH}"',
    f'{{ url = "https://files.example/pkg-1.2.3.tar.gz", hash = "sha256:{HASH}", size = 48210 }}',
    '"integrity": "sha512-' + "aGVsbG8gd29ybGQgdGhpcyBpcyBhIGhhc2g4Zk1zQXh3cVdlclR5VWlPcEFzRGZHaEprTHpYY1Z" + '=="',
    "golang.org/x/text v0.3.7 h1:" + "olpwvP2KacW1ZWvsR7uQhoyTYvKAupfQrRGBFM352Gk" + "=",
    f'id: "{uuid.UUID(int=0x1234567890ABCDEF1234567890ABCDEF)}"',
    "src/main/java/com/fernhollow/dispatch/internal/scheduling/RouteOptimizerFactoryBean2Test.java",
    'path = "packages/orchestrate-lib/src/orchestrate/lib/automation_policies/failed_partitions"',
    "password = os.environ['DB_PASSWORD']",
    'password: "${DB_PASSWORD}"',
    "token = get_token(user_id)",
    'api_key = "<your api key>"',
    'API_KEY = "changeme"',
    "def check_password(password: str, password_hash: str) -> bool:",
    'token_type = "bearer-token-v2"',
    'tokenizer = "gpt2-xl-2023"',
    "max_tokens: 4096",
    "secretName: dispatch-tls-2024",
    'alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"',
    "git@github.com:acme/dispatch.git",
    "npm install lodash@4.17.21 react@18.2.0",
    "@pytest.fixture(scope='session')",
    "host = '127.0.0.1'; bind 0.0.0.0:8080; net 10.0.0.0/8; dns 192.168.1.1",
    "version 1.2.3.4, released 2026-06-01 10:15:00, build 20260601101500",
    "std::vector<int> a; abc::def(1); x = y ? b::c : d::e",
    "@@ -1200,14 +1200,18 @@ def total(items):",
    "timestamp = 1780272000000  # 2026-06-01T00:00:00Z",
    "coordinates: 52.520008, 13.404954; ids 100000000001-100000000999",
    "color: #a1b2c3d4; transform: translate(100px, 200px)",
    'etag = W/"33a64df551425fcc55e4d42a148795d9f25f89d4"',
]


@pytest.mark.parametrize("text", HARMLESS)
def test_hashes_paths_and_code_stay_as_they_are(text: str) -> None:
    for line in (text, f"+{text}\n", f"-    {text}\n"):
        assert scrub(line)[0] == line


def test_false_alarms_on_this_projects_own_code_are_rare(project: Path) -> None:
    """At most one in 50,000 lines' worth of code; what it finds in our tests is made to look like a secret."""
    characters = alarms = 0
    for folder in ("ec1", "ec1_assets", "resources", "jobs", "schedules", "configs", "benchmarks"):
        for path in sorted((project / folder).rglob("*")):
            if path.suffix in (".py", ".yaml", ".toml", ".md"):
                text = path.read_text(encoding="utf-8")
                characters += len(text)
                alarms += len(find_secrets(text)) + len(find_pii(text))
    assert characters > 100_000
    assert alarms <= 2


@pytest.mark.slow
def test_false_alarms_on_the_standard_library_are_rare() -> None:
    """Other people's code, a quarter of Python's own modules; the mail addresses in it are real ones.

    Of all 226 modules (5.8 million characters) two findings are wrong: a number in `_pydecimal` is taken for that of
    a phone, and an example in the documentation of `secrets` for a secret.
    """
    characters = lines = 0
    alarms = []
    modules = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    # Which are a quarter depends on Python's version and packager; these two show addresses of machines, 123.45.67.89.
    for path in [each for each in modules[::4] if each.name not in ("ipaddress.py", "socket.py")]:
        text = path.read_text(encoding="utf-8", errors="replace")
        characters, lines = characters + len(text), lines + text.count("\n")
        found = [*find_secrets(text), *(item for item in find_pii(text) if item.kind != "email")]
        alarms += [(path.name, item.kind) for item in found]
    assert characters > 500_000 and lines > 15_000
    assert len(alarms) <= 2, alarms


def test_scrubbing_twice_changes_nothing() -> None:
    text = (
        "\n".join(make(random.Random(kind)) for kind, make in TOKENS.items()) + "\nmaria@northwind.com +1 415 555 0132"
    )
    once, found = scrub(text)
    assert scrub(once) == (once, {})
    assert found.total() >= len(TOKENS)


def test_what_still_looks_like_a_secret_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replacing may join what stood on both sides; then the second look refuses the row and says nothing of it."""

    def find(text: str) -> list[SecretMatch]:
        place = text.find("hunter")
        return [SecretMatch(place, place + 3, "odd")] if place >= 0 else [SecretMatch(0, 3, "odd")]

    monkeypatch.setattr(cleaning, "find_secrets", find)
    with pytest.raises(RejectedError, match="still holds what looks like odd") as error:
        scrub("my hunter2")
    assert "hunter2" not in str(error.value)


def test_every_message_of_an_example_is_scrubbed() -> None:
    secret = TOKENS["npm"](random.Random(1))
    messages = [{"role": "user", "content": f"use {secret}"}]
    clean, found = scrub_example({"prompt": messages, "chosen": messages, "rejected": messages})
    assert secret not in str(clean)
    assert found.total() == 3
    assert secret in str(messages)


def test_the_positive_cases_of_gitleaks_are_found() -> None:
    """A share of them in each run; `python -m benchmarks.secrets_found` takes them all."""
    known = json.loads((Path(__file__).parent / "gitleaks_cases.json").read_text())["cases"]
    texts = [text for number, rule in enumerate(sorted(known)) for text in known[rule][number % 7 :: 7]]
    found = sum(bool(find_secrets(text)) for text in texts)
    assert len(texts) > 500 and found / len(texts) >= 0.95


def test_what_surroundings_betray_is_found_on_lines_that_no_pattern_was_made_on() -> None:
    """Lines of the documentation of 49 tools, written before the patterns; a half of them was kept apart."""
    kept = [line for line in secret_lines() if line.kept_apart]
    found = sum(line.found_by(lambda text: ((each.start, each.end) for each in find_secrets(text))) for line in kept)
    assert len(kept) > 90 and found / len(kept) >= 0.9
    assert [line for line in harmless_lines() if find_secrets(line)] == []
    assert [line for line in itertools.islice(id_lines(), 0, None, 4) if find_secrets(line)] == []


@pytest.mark.parametrize(
    "text",
    [
        'DB_URL = "postgresql+psycopg2://scott:tiger@localhost/test"',
        '{"next_page_token": "Zk3qP0vYt7LwX2rB"}',
        "the password of the account is Base64 encoded",
        '    password: str = Field(description="of the user")',
    ],
)
def test_what_documentation_writes_is_no_secret(text: str) -> None:
    assert find_secrets(text) == []


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("  - name: DB_PASSWORD\n    value: nJ7#walnut-Hill", "nJ7#walnut-Hill"),
        ("<server><password>Pr0xy!Gate</password></server>", "Pr0xy!Gate"),
        ("sshpass -p 'Cob4lt!Reef' ssh root@host", "Cob4lt!Reef"),
        ("api-token: |\n  8Kq2VnT5xWm0ZpRb7LcY", "8Kq2VnT5xWm0ZpRb7LcY"),
        ("the root password is Bl4ckthorn, change it", "Bl4ckthorn"),
        ("ARG NPM_TOKEN=764a2602-1b29-421e-a073-4622c0e3ce37", "764a2602-1b29-421e-a073-4622c0e3ce37"),
    ],
)
def test_a_name_and_its_value_may_stand_apart(text: str, secret: str) -> None:
    assert secret in {text[each.start : each.end] for each in find_secrets(text)}


def test_ids_that_pair_a_call_with_its_result_stay() -> None:
    rng = random.Random(3)
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    for prefix in ("call_", "toolu_01", "chatcmpl-", "msg_", "fc_", "resp_", "run_", "thread_"):
        for _ in range(20):
            name = prefix + "".join(rng.choices(letters, k=24))
            text = f'{{"tool_call_id": "{name}", "role": "tool", "content": "21 degrees"}}'
            assert scrub(text) == (text, Counter())


def test_the_same_value_has_the_same_name_throughout_a_row() -> None:
    password = "kT7#vq9!Lm2x"
    row = {
        "prompt": [{"role": "user", "content": f"ana@fern.example wrote to bo@fern.example, password = '{password}'"}],
        "completion": [
            {"role": "assistant", "content": "Ask bo@fern.example, not ana@fern.example or cy@fern.example."}
        ],
    }
    clean, found = scrub_example(row)
    assert clean["prompt"][0]["content"] == "<EMAIL> wrote to <EMAIL_2>, password = '<PASSWORD>'"
    assert clean["completion"][0]["content"] == "Ask <EMAIL_2>, not <EMAIL> or <EMAIL_3>."
    assert (found["email"], found["password"]) == (5, 1)


def test_a_recipe_asks_for_more_recognisers() -> None:
    text = "Su NIF es 12345678Z."
    assert scrub(text)[0] == text
    assert scrub(text, ["EsNifRecognizer"])[0] == "Su NIF es <ID>."
    with pytest.raises(InputError, match="Presidio has no 'NoSuchRecognizer'"):
        scrub(text, ["NoSuchRecognizer"])


def test_places_lose_persons_and_keep_dates_and_commits() -> None:
    commit = "source_commit:0123456789012345678901234567890123456789"
    for plain in ("acme/2026-05-01.jsonl:12", "acme/00000500.jsonl:7", commit):
        assert place_without_persons(plain) == without_persons(plain) == plain
    telling = "acme/jane.doe@example.com.jsonl"
    for line in (1, 2):
        assert place_without_persons(f"{telling}:{line}") == without_persons(f"{telling}:{line}")
        assert "jane" not in place_without_persons(f"{telling}:{line}")
