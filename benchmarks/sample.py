"""The bundled sample's documents with their gold, as texts like those of `gum`. No benchmark itself."""

from benchmarks.gum import Text
from ec1.documents.parse import parse_document
from ec1.extraction.scoring import read_gold
from ec1.home import CHECKOUT


def read() -> list[Text]:
    """All documents of the sample that the gold file knows."""
    folder = CHECKOUT / "examples"
    texts = []
    for key, gold in sorted(read_gold(folder / "gold" / "entities.jsonl").items(), key=lambda each: each[0].path):
        document = parse_document(key, (folder / "documents" / key.path).read_bytes())
        texts.append(Text(key.path, document.text, (), gold, document.fields_end))
    return texts
