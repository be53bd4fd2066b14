"""What the tables of the graph mean, for people and programs that write queries."""

from dataclasses import dataclass

from ec1.extraction.results import ENTITY_CLASSES
from ec1.graph.reader import GraphReader

MEANING = {
    "Document": "a document that a night has read or tried to; its ledger row",
    "Entity": "a name in one class, such as `Person:maria alvarez`",
    "MENTIONS": "from a Document to an Entity: one place where it is named",
    "RELATES": "from an Entity to an Entity: one place where a document states a relation of the two",
    "TRAIT": "from a Document to an Entity: a fact beside its name, such as an e-mail address",
    "Cluster": "entities that are one and the same thing; made by resolution",
    "MEMBER_OF": "from an Entity to its Cluster",
    "SAME_AS": "between two Entities that resolution compared: band `merge`, `review` or `new`, and why",
    "Unresolved": "the keys of documents that resolution has not looked at yet",
    "Meta": "the graph's own record",
}


@dataclass(frozen=True)
class GraphTable:
    """One table; `columns` are name -> type."""

    table: str
    kind: str
    meaning: str
    columns: dict[str, str]


def schema_of(reader: GraphReader) -> list[GraphTable]:
    """Each table with its kind, columns and meaning, in the order of `MEANING`."""
    kinds = {row["name"]: row["type"] for row in reader.rows("CALL show_tables() RETURN name, type")}
    found = []
    for name, meaning in MEANING.items():
        if name in kinds:
            if name == "Entity" and (own := [each for each in reader.classes() if each not in ENTITY_CLASSES]):
                meaning = f"{meaning}; beside the contract's classes there are {', '.join(own)}"
            columns = reader.rows(f"CALL table_info('{name}') RETURN name, type")
            typed = {row["name"]: row["type"] for row in columns}
            found.append(GraphTable(name, kinds[name].lower(), meaning, typed))
    return found
