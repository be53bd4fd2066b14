"""Deliveries of 5,000 entities (20,000 in `make soak`), of usual names and of names built to be close: service-content,
whose rules are those of its own source, makes no two of them one that our resolution told apart."""

import random
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
import service_content_rules as rules
from fake_service_content import fake_service_content
from graph_samples import NIGHT, key, result

from benchmarks.resolve_entities import graph
from ec1.extraction.reading.outbox import Outbox
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.model import entity_key
from ec1.graph.resolution.overrides import NO_OVERRIDES
from ec1.graph.service_content import ServiceContentClient
from ec1.graph.service_content_store import ServiceContentStore
from ec1.graph.settings import ServiceContentSettings

MOST, PER_DOCUMENT = 20_000, 40
SYLLABLES = ("wood", "brow", "lind", "mar", "fine", "ne", "gren", "tin", "qui", "ham", "tor", "sen", "fel", "stad")


def close_names() -> Iterator[tuple[str, str]]:
    """Names with their classes, without end: families of which each is near the others by one of the service's rules,
    in letters, numbers, legal forms or initials."""
    rng = random.Random(7)
    while True:
        word = "".join(rng.choices(SYLLABLES, k=rng.randint(2, 4))).capitalize()
        given = rng.choice(("Maria", "Marian", "Peter", "Petra", "Jonathan"))
        slip = rng.randrange(3, len(word))
        spelt = (word, f"{word}s", word[:slip] + word[slip + 1 :], word[:slip] + "e" + word[slip:])
        forms = zip(("LLC", "Corporation", "Limited", "Inc."), spelt, strict=True)
        yield from ((f"{each} {form}", "Company") for form, each in forms)
        yield from ((f"{each} Holdings", "Company") for each in spelt)
        yield from ((f"{given} {initial}{each}", "Person") for initial in ("", "M. ", "K. ") for each in spelt)
        # A fund for each year: more of them than requests are filled at one time.
        if rng.random() < 0.05:
            yield from ((f"{word} Fund {year}", "Project") for year in range(1990, 2030))
            yield from ((f"{word} Reserve {year}", "Account") for year in range(1990, 2030))
        yield from ((f"Port {each}", "Location") for each in spelt)


def usual_names() -> Iterator[tuple[str, str]]:
    """People and firms under forms of their names and with slips of the pen."""
    return ((min(profile.names), profile.entity_class) for profile in graph(MOST))


@pytest.mark.slow
@pytest.mark.parametrize(("source", "careless"), [(usual_names, 400), (close_names, 4)])
@pytest.mark.parametrize("entities", [5000, pytest.param(MOST, marks=pytest.mark.soak)])
def test_of_thousands_of_names_none_becomes_another_for_good(
    source: Callable[[], Iterator[tuple[str, str]]], careless: int, entities: int, tmp_path: Path
) -> None:
    said = {entity_key(*each): each for each in islice(source(), 2 * entities)}
    names = list(islice(said.values(), entities))
    settings = ServiceContentSettings(base_url="http://127.0.0.1:1")
    size = settings.batch_entities
    as_they_come = [rules.aliases_in(names[at : at + size]) for at in range(0, entities, size)]
    assert sum(map(len, as_they_come)) > entities / careless, "sent without care, many would"
    outbox = Outbox(tmp_path / "outbox")
    found = [result(str(at), *names[at : at + PER_DOCUMENT]) for at in range(0, entities, PER_DOCUMENT)]
    for each in found:
        outbox.put(each)
    with (
        LadybugStore.open(tmp_path / "live", buffer_pool_mib=256, wait_seconds=0) as store,
        fake_service_content() as service,
        ServiceContentClient(settings.model_copy(update={"base_url": service.url}), "acme") as client,
    ):
        store.apply_many(((key(f"{n}.md"), f"mk-{n}", each) for n, each in enumerate(found)), NIGHT)
        store.update_resolution(NO_OVERRIDES)
        ledger, clusters = store.ledger(), store.clusters()
        content = ServiceContentStore(tmp_path / "acme.sqlite", client)
        first = content.deliver(ledger, outbox, NIGHT, clusters)
        second = content.deliver(ledger, outbox, "2026-06-02", clusters)
    assert service.aliases == {}
    assert (first.problem, first.deferred, first.sent) == (None, 0, len(service.nodes))
    assert (second.sent, second.missing, second.differ) == (0, 0, 0)
