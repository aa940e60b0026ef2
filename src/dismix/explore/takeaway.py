"""What can be taken away with a picture: where it comes from, enough to make it again."""

import hashlib
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from dismix.errors import DisMixError
from dismix.explore.opinion import Neighbour
from dismix.explore.recipe import Recipe
from dismix.explore.session import Made, Session
from dismix.explore.subject import NOTICE, UPLOAD
from dismix.generator.model import Generator
from dismix.graders.base import Grades
from dismix.mixing.encoding import generator_digest
from dismix.provenance import provenance

FORMAT = 1


@lru_cache(maxsize=2)
def _made_by(device: str) -> dict[str, Any]:
    return provenance(device)


@lru_cache(maxsize=2)
def _digest(model: Generator) -> str:
    return generator_digest(model)


def describe_made(
    session: Session,
    made: Made,
    *,
    grades: Grades | None = None,
    nearest: list[Neighbour] | None = None,
) -> dict[str, Any]:
    """Return the provenance of a made picture, ready for JSON.

    Of an upload nothing but a digest is written: its name may name a person.

    Args:
        session: Where it was made.
        made: The picture.
        grades: A grader's opinion of it (of one picture).
        nearest: Training images near it.
    """
    recipe = made.recipe
    note: dict[str, Any] = {
        "format": FORMAT,
        "notice": NOTICE,
        "run": session.run.name if session.run is not None else None,
        "generator": _digest(session.model),
        "policy": recipe.policy,
        "recipe": asdict(recipe),
        "sources": [_source(session, k) for k in (recipe.start, recipe.partner) if k is not None],
        "label": {
            "rank": round(made.rank, 6),
            "law": {n: round(p, 6) for n, p in zip(session.ranks, made.law, strict=True)},
            "note": "A training target, not a clinical grade.",
        },
        "picture": _pixels_digest(made.pixels.numpy().tobytes()),
        "made_by": _made_by(session.device.type),
    }
    if nearest:
        note["nearest_training_images"] = [
            {"image": session.subject(n.key).name, "similarity": round(n.similarity, 4)}
            for n in nearest
        ]
    if grades is not None and session.opinion is not None:
        law = grades.probabilities[0].tolist()
        note["grader"] = {
            "method": session.opinion.name,
            "grade": session.ranks[int(grades.label[0])],
            "probabilities": {n: round(p, 4) for n, p in zip(session.ranks, law, strict=True)},
        }
    return note


def read_recipe(note: dict[str, Any]) -> Recipe:
    """Return the recipe of a provenance file; `Session.make` then makes the same picture."""
    try:
        return Recipe(**note["recipe"])
    except (KeyError, TypeError) as error:
        raise DisMixError(
            f"is not the provenance of a made picture ({error})",
            cure="give a file that the explorer wrote",
        ) from error


def _source(session: Session, key: str) -> dict[str, Any]:
    subject, encoded = session.subject(key), session.encoded(key)
    upload = subject.split == UPLOAD
    return {
        "key": key,
        "image": None if upload else subject.name,
        "pixels": _pixels_digest(subject.pixels.numpy().tobytes()),
        "rank": encoded.rank,
        "graded_by": "annotators" if subject.law is not None else "the generator's own reading",
    }


def _pixels_digest(pixels: bytes) -> str:
    return hashlib.sha256(pixels).hexdigest()[:32]
