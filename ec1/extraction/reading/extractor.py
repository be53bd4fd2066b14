"""One model under fixed settings: what decides which entities come out for given bytes, and its fingerprint.

Belongs here: what the model is asked, in its words and tokens. Does not: the wire (`client`), the prompt (`prompt`),
trust (`grounding`), and the order of work (`loop`).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ec1.documents.ahead import in_order
from ec1.documents.chunks import Chunk, TokenCounter, chunk_text
from ec1.documents.ledger import Fingerprints
from ec1.documents.parse import Document
from ec1.errors import DeferredError, InputError, RejectedError
from ec1.extraction import prompt, schema
from ec1.extraction.defence import instructions
from ec1.extraction.defence.releases import Span, released_fingerprint
from ec1.extraction.naming import (
    calibration,
    candidates,
    confidence,
    decision,
    grounding,
    japanese,
    own,
    relations,
    trained,
)
from ec1.extraction.naming.known import KnownNames
from ec1.extraction.reading import fields
from ec1.extraction.settings import ExtractionSettings
from ec1.files import digest_of
from ec1.streams import CONTRACT_STREAMS, Stream
from ec1.vocabulary import CONTRACT_CLASSES, CONTRACT_RELATIONS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from ec1.gpu.engine import ServedAdapter

# Raise this when `ec1/documents` gives another text or other chunks for the same bytes.
PARSER_VERSION = 3
# How often a chunk whose answer was cut off is halved before it is given up for this night.
MAX_SPLITS = 2
# Tokens that two halves of a chunk have in common.
_HALVES_SHARE = 10


@dataclass(frozen=True)
class WorkItem:
    """One unit of work, with the path that people know it by. `load` parses it; it may raise RejectedError or
    DeferredError."""

    stream: str
    content_sha256: str
    load: Callable[[], Document]
    path: str = ""


@dataclass(frozen=True)
class ExtractionEstimate:
    """What an extraction would cost. `prompt_tokens` counts each request's own text, not the cached beginning.

    `rejected` holds what would not be read: its content and the reason."""

    documents: int = 0
    rejected: tuple[tuple[str, str], ...] = ()
    chunks: int = 0
    prompt_tokens: int = 0
    max_answer_tokens: int = 0


class Extractor:
    """One model under fixed settings. Reads the model's tokenizer only when it must count."""

    def __init__(
        self,
        settings: ExtractionSettings,
        model_id: str,
        revision: str,
        model_folder: Path,
        adapter: "ServedAdapter | None" = None,
    ) -> None:
        if adapter is not None and not settings.vocabulary.is_contracts:
            raise InputError(
                f"an adapter is trained for {', '.join(CONTRACT_CLASSES)} only: leave extraction.classes out, or serve "
                "the model without an adapter"
            )
        self.settings = settings
        self.vocabulary = settings.vocabulary
        self.model_id = model_id
        self.adapter = adapter
        self.revision = revision
        self._folder = model_folder
        self._tokenizer_file = model_folder / "tokenizer.json"
        self._tokenizer: Tokenizer | None = None
        self._template: Any = None
        self._fingerprints: dict[str, str] = {}
        self.fitted = self._curve()
        """The curve of confidence of this model or adapter in this mode, if there is one; none was fitted for other
        classes than the contract's."""
        self.known: KnownNames | None = None
        """Names that the graph knows, as further candidates. No part of the fingerprint: they change every night, and a
        result without them only says less."""
        self.releases: dict[str, tuple[Span, ...]] = {}
        """By content, the sentences in it that are read although they look like instructions."""
        self.converted: Mapping[str, str] = {}
        """The contents whose text an upgrade of the converter changed, each with that converter."""
        self.streams: Mapping[str, Stream] = CONTRACT_STREAMS
        """What documents come from, by name."""
        self.max_chunks: int | None = None
        """A document of more chunks is rejected."""
        self.max_model_len: int | None = None
        """Tokens of prompt and answer together, where that is known."""

    def _curve(self) -> confidence.Curve | None:
        if self.adapter is None:
            fits = self.vocabulary.is_contracts
            return confidence.curve_of(self.model_id, self.settings.mode) if fits else None
        found = calibration.calibration_in(self.adapter.folder, self.adapter.digest, self.settings.mode)
        return found.curve if found is not None else None

    @property
    def min_confidence(self) -> float:
        """Mentions below it are dropped: as the settings say, else what is best by the curve."""
        if self.settings.min_confidence is not None:
            return self.settings.min_confidence
        return self.fitted.least if self.fitted is not None else 0.0

    @property
    def weighs(self) -> bool:
        """Whether a trained extractor is asked about each of its names, too, for how sure it is."""
        return self.adapter is not None and self.fitted is not None and len(self.fitted.weights) > 0

    def classes_of(self, stream: str) -> tuple[str, ...]:
        """The entity classes that documents of a stream may name; none means all."""
        return self.streams[stream].classes if stream in self.streams else ()

    def fingerprint(self, stream: str, content_sha256: str = "") -> str:
        """SHA-256 over everything that decides what comes out for given bytes of this stream."""
        if stream not in self._fingerprints:
            self._fingerprints[stream] = self._fingerprint(stream)
        found = released_fingerprint(self._fingerprints[stream], self.releases.get(content_sha256, ()))
        if converter := self.converted.get(content_sha256):
            return digest_of({"extractor": found, "converter": converter})
        return found

    def fingerprints(self) -> Fingerprints:
        """Those of all streams, and of contents with a released sentence, now or before, or another text since."""
        streams = {stream: self.fingerprint(stream) for stream in self.streams}
        contents = {
            content: {stream: self.fingerprint(stream, content) for stream in self.streams}
            for content in {**self.releases, **self.converted}
        }
        return Fingerprints(streams, contents, frozenset(self.releases))

    def _fingerprint(self, stream: str) -> str:
        return digest_of(
            {
                "stream": stream,
                "parser": PARSER_VERSION,
                "fields": fields.FIELDS_VERSION,
                "chunks": [self.settings.chunk_tokens, self.settings.overlap_tokens],
                "schema": self.answer_schema,
                "prompt": [
                    prompt.PROMPT_VERSION if self.adapter is None else trained.TRAINED_VERSION,
                    self.messages("", stream),
                ],
                "model": [self.model_id, self.revision, *((self.adapter.digest,) if self.adapter else ())],
                "answer": [self.settings.max_answer_tokens, MAX_SPLITS, *self._thinking],
                "grounding": [grounding.GROUNDING_VERSION, self.min_confidence],
                **({"instructions": instructions.rule()} if self.settings.instructions == "hold" else {}),
                **self._deciding,
                **({"relations": relations.RELATIONS_VERSION} if self.settings.relations else {}),
                **({"japanese": japanese.JAPANESE_VERSION} if self.settings.japanese == "dictionary" else {}),
                **self._owning,
                **({"classes of the stream": sorted(classes)} if (classes := self.classes_of(stream)) else {}),
            }
        )

    @property
    def _owning(self) -> dict[str, Any]:
        """What of the deployment's own classes and relations decides results beside the prompt and the schema."""
        found: dict[str, Any] = {}
        if self.vocabulary.own:
            known = [[each.name, sorted(each.words), sorted(each.keeps)] for each in self.vocabulary.own]
            found["own"] = [own.OWN_VERSION, known]
        if self.settings.relations and self.vocabulary.signatures != CONTRACT_RELATIONS:
            ends = self.vocabulary.signatures.items()
            found["signatures"] = [[name, *(sorted(each) for each in both)] for name, both in ends]
        return found

    @property
    def answer_schema(self) -> dict[str, Any]:
        """The shape of an answer, which a server makes a grammar of."""
        if self.adapter is not None:
            return trained.SCHEMA
        return schema.answer_schema(self.settings.relations, self.vocabulary)

    def readable(self, text: str, content_sha256: str = "") -> tuple[str, instructions.Judged]:
        """A document's text without what tells a machine what to answer, at the same places, and what that was."""
        if self.settings.instructions == "read":
            return text, instructions.Judged()
        found = instructions.judge(text, self.releases.get(content_sha256, ()))
        return instructions.without(text, found.held), found

    def messages(self, chunk_text: str, stream: str) -> list[dict[str, str]]:
        """What the model is asked about a chunk; a model with an adapter was trained to need no examples."""
        chunk_text = instructions.shown(chunk_text)
        if self.adapter is not None:
            return trained.messages(chunk_text)
        return prompt.messages(chunk_text, stream, relations=self.settings.relations, vocabulary=self.vocabulary)

    def read(self, content: str, finish_reason: str) -> tuple[schema.ParsedAnswer, bool]:
        """What an answer holds, and whether it is so full that it may lack something. Raises DeferredError."""
        if self.adapter is not None:
            named, listed = trained.decode(content, finish_reason)
            return schema.ParsedAnswer(named, []), listed >= trained.MAX_LISTED
        answer = schema.decode_answer(
            content, finish_reason, relations=self.settings.relations, vocabulary=self.vocabulary
        )
        return answer, len(set(answer.entities)) >= schema.MAX_ENTITIES

    @property
    def _deciding(self) -> dict[str, Any]:
        curve = self.fitted
        if self.adapter is not None:
            # Without a curve these are the fingerprints of releases that had none.
            known = {"curve": [confidence.CONFIDENCE_VERSION, curve.digest_fields]} if curve is not None else {}
            if self.settings.mode == "answer":
                return known
            return {"decision": [self.settings.mode, candidates.CANDIDATES_VERSION, trained.opening("")], **known}
        if self.settings.mode == "answer":
            return {}
        return {
            "decision": [
                self.settings.mode,
                decision.DECISION_VERSION,
                candidates.CANDIDATES_VERSION,
                confidence.CONFIDENCE_VERSION,
                decision.questions(Chunk(0, 0, 0, ""), [""], self.vocabulary),
                curve.digest_fields if curve is not None else None,
            ]
        }

    def labels(self) -> dict[int, str]:
        """The first token of each label of a decision. Raises InputError if two labels share it."""
        self.counter()
        assert self._tokenizer is not None
        labels = decision.labels(self.vocabulary) if self.adapter is None else trained.LABELS
        first: dict[int, str] = {}
        for word in labels.values():
            token = self._tokenizer.encode(word, add_special_tokens=False).ids[0]
            if token in first:
                raise InputError(
                    f"{self.model_id} writes two class labels with the same first token, "
                    f"{first[token].strip()!r} and {word.strip()!r}: "
                    "give one of them another `label` in extraction.classes, or set extraction.mode to answer"
                )
            first[token] = word
        return first

    def check(self) -> None:
        """Raises InputError if own classes and their examples leave a request no room, or two labels are one to the
        model; without the model's tokenizer or the dictionary that the settings name, too."""
        if self.settings.japanese == "dictionary" and not japanese.is_installed():
            raise InputError(
                'extraction.japanese: the dictionary is not installed: pip install "ec1[japanese]", or set it to model'
            )
        count = self.counter()
        if self.vocabulary.own and self.max_model_len is not None:
            asked = count([each["content"] for each in self.messages("", "")])
            # A chat template writes a few tokens about each message.
            needed = sum(asked) + 6 * len(asked) + self.settings.chunk_tokens + self.settings.max_answer_tokens
            if needed > self.max_model_len:
                raise InputError(
                    f"extraction.classes: prompt, chunk and answer take {needed:,} tokens, and inference.max_model_len "
                    f"is {self.max_model_len:,}: give shorter or fewer examples, or raise it"
                )
        if self.vocabulary.own and self.settings.mode != "answer":
            self.labels()

    def questions(self, chunk: Chunk, names: Sequence[str]) -> list[str]:
        """The prompts about these names of a chunk; each ends where a label follows, and all begin alike.

        A trained extractor is asked as ever, and its answer is begun for it. Raises InputError without the model's
        chat template.
        """
        if self.adapter is None:
            return decision.questions(replace(chunk, text=instructions.shown(chunk.text)), names, self.vocabulary)
        if not names:
            return []
        asked = self._rendered(trained.messages(instructions.shown(chunk.text)))
        return [asked + trained.opening(name) for name in names]

    def _rendered(self, messages: Sequence[dict[str, str]]) -> str:
        """Messages in the model's own template, up to where its answer begins."""
        if self._template is None:
            from transformers import AutoTokenizer

            self._template = AutoTokenizer.from_pretrained(self._folder, local_files_only=True)
            if not self._template.chat_template:
                raise InputError(f"{self._folder} has no chat template: set extraction.mode to answer")
        return str(self._template.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False))

    @property
    def _thinking(self) -> list[int]:
        return [self.settings.reasoning_tokens] if self.settings.reasoning_tokens else []

    def chunks(self, text: str) -> list[Chunk]:
        """The chunks of a text, as they are sent."""
        return chunk_text(
            text,
            self.counter(),
            max_tokens=self.settings.chunk_tokens,
            overlap_tokens=self.settings.overlap_tokens,
        )

    def by_dictionary(self, text: str) -> bool:
        """Whether a dictionary reads this text; the model is asked only about its chunks in other scripts."""
        return self.settings.japanese == "dictionary" and japanese.is_japanese(text)

    def chunks_to_ask(self, text: str) -> list[Chunk]:
        """The chunks of a text that the model is asked about. Raises RejectedError for a text of too many chunks."""
        chunks = self.chunks(text)
        if self.max_chunks is not None and len(chunks) > self.max_chunks:
            raise RejectedError(f"{len(chunks):,} chunks, and documents.max_chunks is {self.max_chunks:,}")
        if self.by_dictionary(text):
            return [chunk for chunk in chunks if not japanese.is_in_signs(chunk.text)]
        return chunks

    def halves(self, chunk: Chunk) -> list[Chunk]:
        """A chunk in two, or more where its tokens ask for it; empty if it cannot be cut."""
        count = self.counter()
        limit = count([chunk.text])[0] // 2 + 1
        with suppress(InputError):
            # An overlap, because the cut may go through a name.
            parts = chunk_text(chunk.text, count, max_tokens=limit, overlap_tokens=min(_HALVES_SHARE, limit // 4))
            if len(parts) > 1:
                return [
                    Chunk(chunk.index, chunk.start + part.start, chunk.start + part.end, part.text) for part in parts
                ]
        return []

    def plan(self, documents: Sequence[WorkItem], at_a_time: int = 1) -> ExtractionEstimate:
        """Count what these units would ask of the model; so many are loaded at a time."""
        count_tokens = self.counter()
        read = chunks = tokens = 0
        rejected = []
        for item, load in zip(documents, in_order((each.load for each in documents), at_a_time), strict=True):
            try:
                parts = self.chunks_to_ask(self.readable(load().text, item.content_sha256)[0])
            except (RejectedError, DeferredError) as error:
                rejected.append((item.content_sha256, str(error)))
                continue
            read += 1
            chunks += len(parts)
            tokens += sum(count_tokens([part.text for part in parts]))
        return ExtractionEstimate(read, tuple(rejected), chunks, tokens, chunks * self.settings.max_answer_tokens)

    def counter(self) -> TokenCounter:
        """Counts tokens as the model does. Raises InputError without the model's tokenizer."""
        if self._tokenizer is None:
            from tokenizers import Tokenizer

            if not self._tokenizer_file.is_file():
                raise InputError(f"{self._tokenizer_file} does not exist: prepare the model {self.model_id} first")
            self._tokenizer = Tokenizer.from_file(str(self._tokenizer_file))
        tokenizer = self._tokenizer

        def count(texts: Sequence[str]) -> list[int]:
            read = [instructions.shown(text) for text in texts]
            return [len(each.ids) for each in tokenizer.encode_batch_fast(read, add_special_tokens=False)]

        return count
