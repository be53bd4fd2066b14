"""Grounding and hallucination rate, from finished results."""

from ec1.extraction.naming.trust import trust_by_class, trust_of
from ec1.extraction.results import Dropped, ExtractionResult, Mention


def result(kept: str, dropped: dict[str, str], status: str = "complete") -> ExtractionResult:
    return ExtractionResult.model_validate(
        {
            "content_sha256": "a" * 64,
            "stream": "meeting",
            "fingerprint": "f" * 64,
            "status": status,
            "mentions": [
                Mention(name=name, entity_class="Person", confidence=0.7, chunk=0, start=at, end=at + 1)
                for at, name in enumerate(kept.split())
            ],
            "dropped": [
                Dropped(name=name, entity_class="Person", chunk=0, reason=reason) for name, reason in dropped.items()
            ],
        }
    )


def test_the_rates_count_each_name_once_a_document() -> None:
    trust = trust_of(
        [
            # Alma was refused for one chunk and stands in another; ALMA is the same name.
            result("Alma Boris ALMA", {"Alma": "not in the text", "Zed": "not in the text", "Act": "a law"}),
            result("", {"Maria": "only in the prompt"}),
            result("", {"Nobody": "not in the text"}, status="deferred"),
        ]
    )
    assert (trust.named, trust.kept, trust.invented) == (5, 2, 2)
    assert (trust.hallucination_rate, trust.grounding_rate) == (0.4, 0.6)


def test_by_class_a_name_counts_as_what_it_became_or_was_said_to_be() -> None:
    company = Dropped(name="Acme", entity_class="Company", chunk=0, reason="not in the text")
    found = result("Alma", {}).model_copy(update={"dropped": (company,)})
    by_class = trust_by_class([found])
    assert {name: (each.named, each.kept, each.invented) for name, each in by_class.items()} == {
        "Company": (1, 0, 1),
        "Person": (1, 1, 0),
    }


def test_a_night_without_answers_invents_nothing() -> None:
    assert trust_of([]).hallucination_rate is None and trust_of([]).grounding_rate is None
