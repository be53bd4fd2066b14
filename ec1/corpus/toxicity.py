"""Toxicity: how toxic a text is, as scored by the classifier that the recipe names.

Belongs here: cutting texts to what the classifier reads at once, and asking it. Does not: which rows that costs
(`dataset`). The classifier is any text classification model of `transformers`, as safetensors; it runs on the CPU.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from ec1.errors import InputError
from ec1.settings import Settings

_LONGEST = 512
_BATCH = 16


class ToxicityOptions(Settings):
    """A recipe's `data.toxicity:` section."""

    model: str = Field(description="id of a text classification model, such as unitary/toxic-bert")
    revision: str = Field("main", min_length=1, description="of the model: branch, tag or commit")
    label: str = Field("toxic", description="the classifier's label whose score counts")
    max_score: float = Field(0.5, ge=0, lt=1, description="answers above this are dropped; typically 0.3–0.9")


class ToxicityClassifier:
    """The classifier of `options` in memory. Raises InputError if `folder` holds none, or none with that label."""

    def __init__(self, folder: Path, options: ToxicityOptions) -> None:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

        try:
            model = AutoModelForSequenceClassification.from_pretrained(
                folder, local_files_only=True, use_safetensors=True
            )
            self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError) as error:
            raise InputError(f"data.toxicity.model: {folder} is not a text classifier: {error}") from None
        labels = list(model.config.label2id)
        if options.label not in labels:
            raise InputError(f"data.toxicity.label: {options.label!r} is none of the classifier's: {', '.join(labels)}")
        if not self._tokenizer.is_fast:
            raise InputError(f"data.toxicity.model: {folder} has no fast tokenizer (tokenizer.json)")
        positions = getattr(model.config, "max_position_embeddings", _LONGEST)
        self._length = min(self._tokenizer.model_max_length, positions, _LONGEST)
        self._options = options
        self._classify: Any = pipeline("text-classification", model=model, tokenizer=self._tokenizer, device="cpu")

    def toxic(self, texts: Sequence[str]) -> list[bool]:
        """For each text whether it scores above `max_score`."""
        return [score > self._options.max_score for score in self.scores(texts)]

    def scores(self, texts: Sequence[str]) -> list[float]:
        """For each text the highest score of any part of it, from 0 to 1; every part is read."""
        parts = [(number, part) for number, text in enumerate(texts) for part in self._parts(text)]
        # As many labels as there are, each with its score: the model decides between sigmoid and softmax.
        answers = self._classify(
            [part for _, part in parts], top_k=None, truncation=True, max_length=self._length, batch_size=_BATCH
        )
        scores = [0.0] * len(texts)
        for (number, _), answer in zip(parts, answers, strict=True):
            score = next(each["score"] for each in answer if each["label"] == self._options.label)
            scores[number] = max(scores[number], float(score))
        return scores

    def _parts(self, text: str) -> Iterator[str]:
        """The text in pieces that overlap by an eighth, a little below the limit: cut, they may be more tokens."""
        length = self._length * 7 // 8
        encoded = self._tokenizer(
            text,
            truncation=True,
            max_length=length,
            stride=length // 8,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        for offsets in encoded["offset_mapping"]:
            places = [place for place in offsets if place[1] > place[0]]
            if places:
                yield text[places[0][0] : places[-1][1]]
