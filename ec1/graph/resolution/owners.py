"""Whose a short name is: in a document, `Leila`, `Haddad` and `Mr. Haddad` are the one person whom they fit and who is
named in full there, or else with a title.

Belongs here: the rule for the names of one document, and undoing it where an operator says so. Does not: whether two
people of different documents are one (`clusters.py`), and writing it (`ec1/graph/reassign.py`).

A mention that has an owner is kept with the owner, under the name that was written. If a short name fits two people, or
if its title contradicts or is not borne out (`Mrs. Smith` beside `John Smith`), nobody owns it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from ec1.graph.model import entity_key, preferred_name
from ec1.graph.resolution.names import TITLES, PersonName, full_names, person_names, titles_agree
from ec1.graph.resolution.overrides import Pair
from ec1.graph.resolution.profile import PERSON

# `Miss Elizabeth` and `Sir Walter` are given names, but not `Mr. John`.
_MARRIED = frozenset(("mrs", "mme", "madame", "frau"))
_FAMILY = _MARRIED | {"miss", "mlle", "mademoiselle", "fraulein", "master", "lady", "lord", "sir", "dame"}
_BEFORE_SURNAME = frozenset(("mr", "mrs", "herr", "frau", "dr"))


@dataclass(frozen=True)
class _Person:
    """Somebody who is named in full, by all spellings that name the same: `John Smith`, `Mr. John A. Smith`."""

    names: tuple[str, ...]
    forms: tuple[PersonName, ...]

    @property
    def key(self) -> str:
        return entity_key(preferred_name(self.names), PERSON)

    def is_called(self, word: str) -> bool:
        # `Mrs. Charles Musgrove` is not called Charles.
        return any(form.given == word and form.addressed != "mrs" for form in self.forms)

    def has_surname(self, word: str) -> bool:
        return any(word in (form.surname, form.bare_surname) for form in self.forms)

    @property
    def titles(self) -> frozenset[str]:
        # `NASA Administrator Charles Bolden` has one that does not stand first.
        said = (word for form in self.forms for word in (form.title, form.given, *form.middles))
        return frozenset(word for word in said if word in TITLES)


def owners(names: Iterable[str], apart: Collection[Pair] = ()) -> dict[str, str]:
    """The owners of the short names among the names of people in one document: by name, the key of the person.

    names: as they are written. apart: pairs of keys, in order, that an operator told from each other.
    """
    full, short = _sorted_out(names)
    people = _people(full)
    titled: dict[str, set[str]] = defaultdict(set)
    for forms in short.values():
        for form in forms:
            if form.title:
                titled[form.single].add(form.title)
    found = {}
    for name, forms in sorted(short.items()):
        key = entity_key(name, PERSON)
        fits = {person.key for person in people if any(_fits(form, person, titled) for form in forms)}
        fits = fits or _with_title(forms, short)
        if len(fits) == 1 and (owner := fits.pop()) != key and _pair(key, owner) not in apart:
            found[name] = owner
    return found


def is_own_name(key: str, name: str) -> bool:
    """Whether an entity's key is that of this name; False for a short name that it owns."""
    return not key.startswith(f"{PERSON}:") or entity_key(name, PERSON) == key


def _sorted_out(names: Iterable[str]) -> tuple[dict[str, PersonName], dict[str, Sequence[PersonName]]]:
    full: dict[str, PersonName] = {}
    short: dict[str, Sequence[PersonName]] = {}
    for name in sorted(set(names)):
        forms = [form for form in person_names(name) if not form.by_sound]
        if any(form.several for form in forms):
            continue
        if all(form.single for form in forms):
            short[name] = forms
        elif all(len(form.given) > 1 and form.surname for form in forms):
            full[name] = forms[0]
    return full, short


def _people(full: Mapping[str, PersonName]) -> list[_Person]:
    """Names in full that are one person: one surname and a given name that is the same or short for it."""
    people: list[_Person] = []
    for name, form in full.items():
        for number, person in enumerate(people):
            if all(_same(form, other) for other in person.forms):
                people[number] = _Person((*person.names, name), (*person.forms, form))
                break
        else:
            people.append(_Person((name,), (form,)))
    return people


def _same(one: PersonName, other: PersonName) -> bool:
    if one.generation != other.generation or not titles_agree(one.addressed, other.addressed):
        return False
    shorter, longer = sorted((one.words, other.words), key=len)
    # `NASA Administrator Charles Bolden`
    if longer[-len(shorter) :] == shorter:
        return True
    return one.surname == other.surname and not full_names(one.given).isdisjoint(full_names(other.given))


def _fits(short: PersonName, person: _Person, titled: Mapping[str, Set[str]]) -> bool:
    """Whether a short name may be a person's, and speaks for nobody else."""
    word = short.single
    if person.has_surname(word):
        # Beside `Mrs. Smith`, whoever that is, `Smith` is nobody in particular.
        return all(_bears(title, person, titled[word]) for title in ({short.title} if short.title else titled[word]))
    if short.title:
        return short.title in person.titles and short.title not in _BEFORE_SURNAME and person.is_called(word)
    return person.is_called(word)


def _bears(title: str, person: _Person, titles: Set[str]) -> bool:
    """Whether a person may have a title, when these stand before the surname: `Mrs. Smith` is not John Smith's, since
    of a title that is the family's a document must say whose it is."""
    return title in person.titles or not (person.titles or title in _FAMILY or titles != {title})


def _with_title(forms: Sequence[PersonName], short: Mapping[str, Sequence[PersonName]]) -> set[str]:
    """Who is called by the same word with a title, where nobody of that name is named in full: `Mr. Oak` of `Oak`."""
    if any(form.title for form in forms):
        return set()
    words = {form.single for form in forms}
    found = {
        (form.title, entity_key(name, PERSON))
        for name, others in short.items()
        for form in others
        if form.title and form.single in words
    }
    # A married woman's surname is her husband's, too.
    return set() if any(title in _MARRIED for title, _ in found) else {key for _, key in found}


def _pair(one: str, other: str) -> Pair:
    return (one, other) if one < other else (other, one)
