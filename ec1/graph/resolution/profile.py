"""What is known of one entity: its names, and the evidence beside them by kind."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property

from ec1.graph.resolution.names import PersonName, ThingName, person_names, thing_names

PERSON = "Person"


@dataclass(frozen=True)
class Kind:
    """A kind of evidence beside the name. `usual` is how common one value usually is.

    Values of a `singular` kind belong to one person or thing, and those of a `proof` kind were given out so; two
    different values of a `veto` kind forbid a merge. The parts of an `address` agree together.
    """

    usual: float
    singular: bool = False
    proof: bool = False
    veto: bool = False
    address: bool = False
    digits: bool = False
    lasting: bool = False


KINDS: Mapping[str, Kind] = {
    "email": Kind(1e-5, singular=True, veto=True),
    "phone": Kind(1e-4, singular=True, digits=True),
    "identifier": Kind(1e-5, singular=True, proof=True, digits=True, lasting=True),
    "birth_date": Kind(1e-4, singular=True, digits=True, lasting=True),
    "street": Kind(1e-3, address=True),
    "house_number": Kind(5e-3, address=True, digits=True),
    "postcode": Kind(1e-3, address=True, digits=True),
    "city": Kind(2e-3, address=True),
    "region": Kind(0.1, address=True),
}


@dataclass(frozen=True)
class Profile:
    """What is known of one entity. `attributes` holds values by kind (`KINDS`), `documents` where it is mentioned,
    `called` the short names that documents use for it (`owners.py`), which are not its own names."""

    key: str
    entity_class: str
    names: frozenset[str]
    attributes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    documents: Set[str] = frozenset()
    called: frozenset[str] = frozenset()

    @cached_property
    def persons(self) -> tuple[PersonName, ...]:
        if len(self.names) == 1:
            # Most have one name; comparing the parts of names takes longer than it seems.
            return person_names(*self.names)
        return tuple(dict.fromkeys(each for name in sorted(self.names) for each in person_names(name)))

    @cached_property
    def alone(self) -> frozenset[str]:
        """The words without a title that somebody is called: of a person with a full name those of `called`."""
        if self.entity_class != PERSON or (self.called and all(name.single for name in self.persons)):
            return frozenset()
        forms = [form for name in self.called for form in person_names(name)] if self.called else self.persons
        return frozenset(form.single for form in forms if form.single and not form.title and not form.several)

    @cached_property
    def plain(self) -> PersonName | None:
        """The name of a person who has but one, without `Jr.` and the like."""
        name = self.persons[0] if self.entity_class == PERSON and len(self.persons) == 1 else None
        return None if name is None or name.generation else name

    @cached_property
    def things(self) -> tuple[ThingName, ...]:
        if len(self.names) == 1:
            return thing_names(*self.names, self.entity_class)
        found = (each for name in sorted(self.names) for each in thing_names(name, self.entity_class))
        return tuple(dict.fromkeys(found))
