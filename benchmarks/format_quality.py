"""F1 on the sample's Markdown, and on the same texts as HTML, Word, mail, PDF and captions: with perfect answers, which
says what reading a kind loses, and with the shipped extractor.

Each text is written by its kind's own writer and read as a night reads it.

Run: python -m benchmarks.format_quality [--oracle] [--record FOLDER] [--only DOCUMENTS]
"""

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import oracle, sample
from benchmarks._engine import embedded, model_of, serving
from benchmarks._recorded import Recorded
from benchmarks.extraction_quality import extract, extractor_of, shipped
from benchmarks.gum import Text
from ec1.documents.ledger import DocumentKey
from ec1.documents.parse import parse_document
from ec1.extraction.reading.openai import OpenAIClient
from ec1.home import CHECKOUT

sys.path.insert(0, str(CHECKOUT / "tests" / "documents"))
KINDS = (".md", ".html", ".docx", ".eml", ".pdf", ".vtt")


def as_kind(texts: Sequence[Text], suffix: str) -> list[Text]:
    """The texts without their front matter, written as files of this kind and read again."""
    import written

    found = []
    for text in texts:
        data = written.as_kind(suffix, text.text[text.fields_end :])
        document = parse_document(DocumentKey("research", f"{text.name}{suffix}"), data)
        found.append(replace(text, text=document.text, fields_end=document.fields_end))
    return found


def markdown_of_the_sample(only: int = 0) -> list[Text]:
    return [each for each in sample.read() if each.name.endswith(".md")][: only or None]


def perfect(texts: Sequence[Text]) -> dict[str, float]:
    """F1 of perfect answers, by kind."""
    return {
        suffix: oracle.grounded((text, oracle.perfect(text)) for text in as_kind(texts, suffix))["all"].f1
        for suffix in KINDS
    }


def main(only: int, record: Path | None, engine: bool) -> None:
    deployment, settings = embedded()
    texts = markdown_of_the_sample(only)
    print("perfect answers:", {suffix: round(f1, 3) for suffix, f1 in perfect(texts).items()}, flush=True)
    if not engine:
        return
    with tempfile.TemporaryDirectory() as name:
        folder = record or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        model, adapter = model_of(deployment, Path(name)), shipped()
        extractor = extractor_of(deployment.extraction.mode, model, adapter)
        markdown: set[str] = set()
        plain: float | None = None
        with serving(deployment, settings, model, adapter) as endpoint:
            for suffix in KINDS:
                client = OpenAIClient(endpoint.base_url, endpoint.model, deployment.extraction, ends_repetition=True)
                read = as_kind(texts, suffix)
                chunks = {_digest(chunk.text) for text in read for chunk in extractor.chunks(text.text)}
                markdown = markdown or chunks
                run = extract(read, extractor, Recorded(folder / "said", client))
                if unread := sorted(name for name, each in run.results.items() if each.status != "complete"):
                    # They count with the names of none or some of their chunks: compare what was read whole.
                    print(f"{suffix:6} not read to the end: {', '.join(unread)}", flush=True)
                f1 = run.table["all"].f1
                plain = f1 if plain is None else plain
                print(
                    f"{suffix:6} {len(read)} documents, {len(chunks)} chunks, {len(chunks - markdown)} of them "
                    f"otherwise than in Markdown: F1 {f1:.3f} ({f1 - plain:+.3f})\n{run.table}",
                    flush=True,
                )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oracle", action="store_true", help="perfect answers alone, without an engine")
    parser.add_argument("--only", type=int, default=0, help="so many documents; 0: all")
    parser.add_argument("--record", type=Path, help="folder that keeps what the model said")
    arguments = parser.parse_args()
    main(arguments.only, arguments.record, not arguments.oracle)
