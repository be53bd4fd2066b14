"""What a deployment sets about phase 1: who answers, and how documents are read."""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from ec1.errors import InputError
from ec1.settings import HttpAddress, Name, Settings, ShippedPath
from ec1.vocabulary import (
    CONTRACT_CLASSES,
    CONTRACT_RELATIONS,
    MAX_CLASSES,
    ClassEntry,
    RelationEntry,
    Vocabulary,
    vocabulary_of,
)


class ServerSettings(Settings):
    """`kind: server`: an OpenAI-compatible server that somebody else keeps running."""

    kind: Literal["server"] = Field(description="chooses this section")
    base_url: HttpAddress = Field(description="address, such as http://127.0.0.1:8000, without /v1")
    replicas: tuple[HttpAddress, ...] = Field(
        (),
        description="further addresses that serve the same model: each request goes to the one that has the fewest, "
        "and one that fails is left out until it lists the model again; extraction.max_in_flight counts over all",
    )
    served_as: str | None = Field(
        None, description="the id under which the servers know the model, such as qwen3:32b; default: model"
    )
    answers_as: tuple[str, ...] = Field(
        (), description="further ids under which the same model answers; answers of any other model do not count"
    )
    model: str = Field(description="model id; a key of `models`, whose tokenizer counts the chunks")
    revision: str = Field("main", description="of the model: branch, tag or commit")
    max_model_len: int = Field(4096, gt=0, description="tokens of prompt and answer together")
    key_file: Path | None = Field(
        None, description="a file that holds the key which the servers ask for; default: none is sent"
    )

    @property
    def served_name(self) -> str:
        """The id that requests name."""
        return self.served_as or self.model

    def key(self) -> str | None:
        """What the servers ask for. Raises InputError if its file cannot be read, or holds no key."""
        if self.key_file is None:
            return None
        try:
            key = self.key_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it holds no key"
            raise InputError(f"key_file {self.key_file}: {reason}") from None
        if not key or not key.isprintable():
            raise InputError(f"key_file {self.key_file}: it holds no key, which is one line")
        return key


class DoormanSettings(Settings):
    """`kind: doorman`: the inference gateway (docs/contracts.md). It decides which model answers."""

    kind: Literal["doorman"] = Field(description="chooses this section")
    base_url: HttpAddress = Field("http://127.0.0.1:9080", description="address of the gateway")
    module_id: Name | None = Field(
        None,
        description="scope of the requests; default: `<tenant>-extraction`. Never that of service_content, whose "
        "entities the gateway would put before each question",
    )
    complexity: dict[str, Literal["low", "medium", "high"]] = Field(
        {}, description="per stream; default `high`: an answer of a smaller tier is deferred"
    )
    model: str = Field(description="model id; a key of `models`, whose tokenizer counts the chunks")
    revision: str = Field("main", description="of the model: branch, tag or commit")
    max_model_len: int = Field(4096, gt=0, description="tokens of prompt and answer together")
    server_deadline_seconds: float = Field(
        170, gt=0, description="how long an answer may take: after 180 s the gateway uses a smaller model"
    )
    answer_tokens_per_second: float = Field(
        12, gt=0, description="of one request at the large tier; `ec1 doctor` checks the longest answer against it"
    )
    ready_timeout_seconds: float = Field(5400, gt=0, description="how long its machine may take to boot")
    poll_seconds: float = Field(10, gt=0, description="seconds between two readiness checks")

    def complexity_of(self, stream: str) -> str:
        """What requests of a stream ask for."""
        return self.complexity.get(stream, "high")


MIN_ANSWER_TOKENS = 64
"""Fewer hold no answer with an entity or two."""


class ExtractionSettings(Settings):
    chunk_tokens: int = Field(900, gt=0, description="tokens of text per request; typically 300–1500")
    overlap_tokens: int = Field(
        90, ge=0, description="tokens that neighbouring chunks share; typically a tenth of chunk_tokens, at most half"
    )
    max_answer_tokens: int = Field(
        512, gt=0, description="all that the model may write per chunk, its thoughts included"
    )
    reasoning_tokens: int = Field(
        0, ge=0, description="how many of those may be thoughts; 0: a model that does not think"
    )
    max_in_flight: int = Field(
        16,
        gt=0,
        description="requests in flight, over all documents; default for `kind: vllm`: 2 × max_num_seqs for each "
        "of its engines",
    )
    request_timeout_seconds: float = Field(
        300,
        gt=0,
        description="of one request, the wait in the queue included: no more are sent than the server answers in it",
    )
    max_attempts: int = Field(4, gt=0, description="of one request, for transient errors")
    quarantine_after: int = Field(
        3, gt=0, description="nights on which a document may be deferred before it is given up"
    )
    classes: tuple[ClassEntry, ...] = Field(
        CONTRACT_CLASSES,
        min_length=1,
        max_length=MAX_CLASSES,
        description="what is looked for, the contract's classes by their names (Person, Company, Project, Account, "
        "Location: the default) and classes of your own as sections (docs/classes.md)",
    )
    relations: bool = Field(False, description="also extract relations between entities: longer answers")
    relation_types: tuple[RelationEntry, ...] = Field(
        tuple(CONTRACT_RELATIONS),
        min_length=1,
        max_length=MAX_CLASSES,
        description="with `relations`: the contract's by their names (works_at, located_in, part_of, attends, "
        "owns_account: the default) and relations of your own as sections",
    )
    fingerprint_policy: Literal["lazy", "budgeted", "full"] = Field(
        "full",
        description="which documents are read again after a change of prompt, schema or model (docs/operations.md)",
    )
    refresh_per_night: int = Field(100, gt=0, description="policy budgeted: documents that are read again per night")
    adapter: ShippedPath | None = Field(
        None,
        description="an adapter that makes the model an extractor, for `kind: vllm`; an accepted version of "
        "`<tenant>/extractor` takes its place",
    )
    merge_adapter: bool = Field(
        False,
        description="serve the model with that adapter's weights merged in, not beside it: three times as fast on a "
        "CPU, once more the model's size on disk",
    )
    mode: Literal["answer", "decide", "both"] = Field(
        "answer",
        description="answer: the model lists the names of a chunk (large models); decide: it chooses the class of each "
        "span that the text's structure or the graph proposes, by log-probabilities (small models); both: its answer "
        "proposes too, or, with an adapter, it decides on the spans that its answer left out",
    )
    instructions: Literal["hold", "read"] = Field(
        "hold",
        description="hold: sentences of a document that tell whoever reads it by machine what to answer are not read, "
        "and a name that stands only where such a sentence may be must be found with confidence; the report names them "
        "(`ec1 extraction held`); read: all are read alike",
    )
    japanese: Literal["model", "dictionary"] = Field(
        "model",
        description="who reads text in Japanese; dictionary: that of a morphological analyser (the extra `japanese`), "
        "for a model that was hardly trained on the language",
    )
    min_confidence: float | None = Field(
        None,
        ge=0,
        le=1,
        description="mentions below it are dropped; typically 0–0.5; default: what gave the best F1 when the curve of "
        "confidence of the model or adapter was fitted, 0 without one",
    )
    max_hallucination_rate: float = Field(
        0.5, ge=0, le=1, description="the check fails if a larger share of the names in a night's answers was invented"
    )
    gold: Path | None = Field(
        None, description="gold file (`ec1/extraction/scoring.py`) that each night is scored against"
    )

    @model_validator(mode="after")
    def _classes_fit_together(self) -> "ExtractionSettings":
        vocabulary_of(self.classes, self.relation_types)
        return self

    @property
    def vocabulary(self) -> Vocabulary:
        """The classes and relations that are looked for."""
        return vocabulary_of(self.classes, self.relation_types)

    @model_validator(mode="after")
    def _overlap_fits(self) -> "ExtractionSettings":
        if self.overlap_tokens * 2 > self.chunk_tokens:
            raise ValueError("overlap_tokens must be at most half of chunk_tokens")
        return self

    @model_validator(mode="after")
    def _thoughts_leave_room_for_the_answer(self) -> "ExtractionSettings":
        room = self.max_answer_tokens - self.reasoning_tokens
        if room < MIN_ANSWER_TOKENS:
            raise ValueError(
                f"max_answer_tokens {self.max_answer_tokens} less reasoning_tokens {self.reasoning_tokens} leaves "
                f"{room} tokens for the answer; leave {MIN_ANSWER_TOKENS} or more"
            )
        return self
