"""What is looked for in documents: entity classes and relations; those of the contract, and a deployment's own.

Belongs here: what a class or a relation may be called, what must be said of it, and that it fits together. Does not:
how a model is asked for it (`ec1.extraction.prompt`, `decision`) and what a text proves (`ec1.extraction.naming.own`).

Names reach keys of the graph, the grammar of answers and the model's prompt, so they are words of a narrow alphabet.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from ec1.settings import Settings

ContractClass = Literal["Person", "Company", "Project", "Account", "Location"]
CONTRACT_CLASSES: tuple[ContractClass, ...] = get_args(ContractClass)
CONTRACT_RELATIONS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    "works_at": (frozenset({"Person"}), frozenset({"Company"})),
    "located_in": (frozenset({"Person", "Company", "Project", "Location"}), frozenset({"Location"})),
    "part_of": (frozenset({"Company", "Project", "Account"}), frozenset({"Company", "Project"})),
    "attends": (frozenset({"Person"}), frozenset({"Project", "Company", "Location"})),
    "owns_account": (frozenset({"Person", "Company"}), frozenset({"Account"})),
}
"""The classes that the subject and the object of each relation may have."""
MAX_CLASSES = 19
"""With `none`, as many labels as a server of vLLM gives log-probabilities for (`--max-logprobs`)."""

ClassName = Annotated[str, Field(pattern="^[A-Z][A-Za-z0-9]{1,31}$")]
RelationName = Annotated[str, Field(pattern="^[a-z][a-z0-9_]{1,31}$")]
Kept = Literal["dates", "numbers", "laws", "paths", "code", "roles"]
"""The filters of `ec1.extraction.naming.filters` that do not act on an own class that keeps what they find."""

_MARKED = re.compile(r"\[([^\[\]|\n]+)(?:\|([^\[\]|\n]+))?\]")
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_RESERVED = frozenset({"none", "all", "any class"})


def _plain(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("holds a control character or a tab: write it as plain lines")
    return text.strip()


Sentence = Annotated[str, Field(min_length=3, max_length=400), AfterValidator(_plain)]
Word = Annotated[str, Field(pattern=r"^[^\W_][^\s\[\]|]{0,39}$")]


@dataclass(frozen=True)
class VocabularyExample:
    """A text, and the names that stand in it, each with its class."""

    text: str
    names: tuple[tuple[str, str], ...]


def read_example(marked: str, own: str | None) -> VocabularyExample:
    """What `The [Aurora] left [Lisbon|Location].` says; a name without a class is of the class `own`.

    Raises ValueError for marks that cannot be read.
    """
    names: list[tuple[str, str]] = []
    for found in _MARKED.finditer(marked):
        name, entity_class = " ".join(found[1].split()), (found[2] or own or "").strip()
        if not entity_class:
            raise ValueError(f"{marked!r}: the class of {name!r} is missing: write [{name}|Class]")
        names.append((name, entity_class))
    text = _MARKED.sub(lambda found: found[1], marked)
    if not names or re.search(r"[\[\]]", text):
        raise ValueError(f"{marked!r}: mark each name as [name], or as [name|Class] if it is of another class")
    return VocabularyExample(text, tuple(dict.fromkeys(names)))


class OwnClass(Settings):
    """A class of the deployment's own. Names of it are things, whatever they are called: what is for persons or firms
    only is not done to them."""

    name: ClassName = Field(description="one word with a capital, such as `Ship`; it begins the keys of its entities")
    description: Sentence = Field(description="one line for the model: what is one, and where it ends")
    examples: tuple[Sentence, ...] = Field(
        min_length=1,
        max_length=8,
        description="sentences with every name in them marked: `The [Aurora] left [Lisbon|Location].`; a name without "
        "a class is of this one. Invented names are best: the model may repeat them",
    )
    label: str | None = Field(
        None,
        pattern="^[a-z]+( [a-z]+){0,3}$",
        description="mode decide: the small word for it in the model's answer; default: the name in small letters",
    )
    words: tuple[Word, ...] = Field(
        (),
        max_length=50,
        description="words that prove the class as the first or last word of a name or right before it, such as "
        "`MV` and `vessel`",
    )
    keeps: tuple[Kept, ...] = Field(
        (),
        description="what is dropped as no name of the other classes, and is one of this class: a statute keeps "
        "`laws`. What such a filter finds is taken for this class",
    )
    sent_as: ContractClass | None = Field(
        None, description="the contract's class as which service-content gets it; needed if `graph_stores` names that"
    )

    @property
    def spoken(self) -> str:
        """The word for it in a sentence."""
        return self.label or spoken(self.name)

    @property
    def parsed(self) -> tuple[VocabularyExample, ...]:
        return tuple(read_example(each, self.name) for each in self.examples)

    @model_validator(mode="after")
    def _makes_sense(self) -> "OwnClass":
        if self.name in CONTRACT_CLASSES:
            raise ValueError(f"{self.name} is a class of the contract: write its name alone, or choose another name")
        if self.name.lower() in _RESERVED or self.spoken in _RESERVED:
            raise ValueError(f"{self.name!r} is a word of EC1's own: choose another name or label")
        for example in self.parsed:
            if self.name not in {entity_class for _, entity_class in example.names}:
                raise ValueError(f"{self.name}: the example {example.text!r} names none: mark one as [name]")
        return self


class OwnRelation(Settings):
    """A relation of the deployment's own (`extraction.relations: true`)."""

    name: RelationName = Field(description="small letters and `_`, such as `sails_for`")
    subjects: tuple[ClassName, ...] = Field(min_length=1, description="classes that its subject may have")
    objects: tuple[ClassName, ...] = Field(min_length=1, description="classes that its object may have")
    examples: tuple[Sentence, ...] = Field(
        min_length=1,
        max_length=4,
        description="sentences with two marked names, the subject first: `The [Aurora|Ship] sails for [Blue "
        "Line|Company].`",
    )

    @property
    def parsed(self) -> tuple[VocabularyExample, ...]:
        return tuple(read_example(each, None) for each in self.examples)

    @model_validator(mode="after")
    def _makes_sense(self) -> "OwnRelation":
        if self.name in CONTRACT_RELATIONS:
            raise ValueError(f"{self.name} is a relation of the contract: write its name alone, or choose another name")
        for example in self.parsed:
            classes = [entity_class for _, entity_class in example.names]
            if len(classes) != 2 or classes[0] not in self.subjects or classes[1] not in self.objects:
                raise ValueError(f"{self.name}: {example.text!r} must name a subject and then an object, and no more")
        return self


def _kind(value: object) -> str:
    return "contract" if isinstance(value, str) else "own"


# Told apart before they are read: a mistake in one is not also a mistake in the other.
ClassEntry = Annotated[Annotated[OwnClass, Tag("own")] | Annotated[str, Tag("contract")], Discriminator(_kind)]
RelationEntry = Annotated[Annotated[OwnRelation, Tag("own")] | Annotated[str, Tag("contract")], Discriminator(_kind)]


@dataclass(frozen=True)
class Vocabulary:
    """All classes and relations of a deployment, in its order."""

    classes: tuple[str, ...] = CONTRACT_CLASSES
    own: tuple[OwnClass, ...] = ()
    signatures: Mapping[str, tuple[frozenset[str], frozenset[str]]] = field(
        default_factory=lambda: CONTRACT_RELATIONS, hash=False
    )
    own_relations: tuple[OwnRelation, ...] = ()

    @property
    def relations(self) -> tuple[str, ...]:
        return tuple(self.signatures)

    @property
    def is_contracts(self) -> bool:
        """Whether these are the contract's classes, and what rests on them (curves, trained extractors) may be used."""
        return self.classes == CONTRACT_CLASSES

    @cached_property
    def by_name(self) -> Mapping[str, OwnClass]:
        return {each.name: each for each in self.own}

    def kept(self, entity_class: str) -> frozenset[Kept]:
        """The filters that do not act on names of a class."""
        own = self.by_name.get(entity_class)
        return frozenset(own.keeps) if own is not None else frozenset()

    @property
    def all_kept(self) -> frozenset[Kept]:
        return frozenset(each for own in self.own for each in own.keeps)

    def sent_as(self, entity_class: str) -> str | None:
        """The contract's class for a class; None for one that has none, such as one that was removed."""
        own = self.by_name.get(entity_class)
        return own.sent_as if own is not None else entity_class if entity_class in CONTRACT_CLASSES else None


CONTRACT = Vocabulary()
"""What a deployment looks for that says nothing about it."""


@lru_cache(maxsize=64)
def vocabulary_of(
    classes: tuple[OwnClass | str, ...], relations: tuple[OwnRelation | str, ...] = tuple(CONTRACT_RELATIONS)
) -> Vocabulary:
    """The vocabulary that a deployment's lists make. A contract's relation whose classes are gone is left out.

    Raises ValueError for what does not fit together.
    """
    names = tuple(each.name if isinstance(each, OwnClass) else each for each in classes)
    own = tuple(each for each in classes if isinstance(each, OwnClass))
    if unknown := [each for each in classes if isinstance(each, str) and each not in CONTRACT_CLASSES]:
        raise ValueError(
            f"{unknown[0]!r} is not a class of the contract ({', '.join(CONTRACT_CLASSES)}): say what it is, with "
            "name, description and examples"
        )
    _differ([each.lower() for each in names], "class")
    _differ([_spoken_of(each) for each in classes], "label")
    _differ([group for each in own for group in dict.fromkeys(each.keeps)], "keeps")
    signatures: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
    for each in relations:
        if isinstance(each, OwnRelation):
            _known((*each.subjects, *each.objects), names, f"relation {each.name}")
            signatures[each.name] = frozenset(each.subjects), frozenset(each.objects)
        elif each not in CONTRACT_RELATIONS:
            raise ValueError(
                f"{each!r} is not a relation of the contract ({', '.join(CONTRACT_RELATIONS)}): say what it is, with "
                "name, subjects, objects and examples"
            )
        else:
            ends = CONTRACT_RELATIONS[each]
            here = ends[0] & set(names), ends[1] & set(names)
            if all(here):
                signatures[each] = here
    _differ([each.name if isinstance(each, OwnRelation) else each for each in relations], "relation")
    own_relations = tuple(each for each in relations if isinstance(each, OwnRelation))
    shown = [(each.name, example) for each in own for example in each.parsed]
    shown += [(each.name, example) for each in own_relations for example in each.parsed]
    for whose, example in shown:
        _known((entity_class for _, entity_class in example.names), names, f"an example of {whose}")
    return Vocabulary(names, own, signatures, own_relations)


def spoken(name: str) -> str:
    """`LegalCase` as `legal case`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).lower()


def _spoken_of(each: OwnClass | str) -> str:
    # The contract's label for a location is another word than its name.
    return each.spoken if isinstance(each, OwnClass) else {"Location": "place"}.get(each, each.lower())


def _differ(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"two classes have the same {what} {name!r}: each needs one of its own")
        seen.add(name)


def _known(names: Iterable[str], classes: tuple[str, ...], where: str) -> None:
    for name in names:
        if name not in classes:
            raise ValueError(f"{where} names the class {name!r}, which is none of {', '.join(classes)}")
