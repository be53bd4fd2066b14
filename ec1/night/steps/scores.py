"""How good what the graph knows is, against the gold file that the deployment names.

Belongs here: when that is measured, and what a night keeps of it. Does not: how names are compared
(`ec1.extraction.scoring`). A figure that cannot be had never costs a night its graph: the record says why.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ec1.deployment import Deployment
from ec1.documents.ledger import DocumentKey, LedgerEntry
from ec1.errors import InputError
from ec1.extraction.scoring import read_gold, score_ledger
from ec1.home import Home
from ec1.night.records import ScoreRecord

if TYPE_CHECKING:
    from ec1.extraction.reading.outbox import Outbox


def scores_of(
    deployment: Deployment, home: Home, ledger: Mapping[DocumentKey, LedgerEntry], outbox: "Outbox"
) -> ScoreRecord | None:
    """Precision and recall of what the ledger counts; None where the deployment has no gold file."""
    settings = deployment.extraction
    if settings.gold is None:
        return None
    try:
        gold = read_gold(settings.gold, settings.vocabulary.classes)
        table = score_ledger(ledger, outbox, gold, deployment.document_reader(home), settings.vocabulary)
    except InputError as error:
        return ScoreRecord(problem=str(error))
    return ScoreRecord(documents=table.documents, left_out=dict(table.left_out), figures=table.record())
