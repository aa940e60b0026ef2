"""Runs and generators as frozen, plain values, named by what they depend on."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dismix.bench.derive import sha


@dataclass(frozen=True)
class DataSpec:
    """Derived data.

    Attributes:
        key: Name of their folder: source and derivation.
        name: What the user calls the source.
        content: Digest of what runs see.
        training: The same without the test rows.
        counts: Images by split.
        ranks: Names of the ranks.
        grey: Whether images have one channel.
        how: The derivation.
        source: Digest of what they were derived from.
        parts: Trailing parts of a path that tell all images of the source apart.
        votes: Digest of who voted what; content has their shares alone.
    """

    key: str
    name: str
    content: str
    training: str
    counts: Mapping[str, int]
    ranks: tuple[str, ...]
    grey: bool
    how: Mapping[str, Any]
    source: str
    parts: int
    votes: str = ""


@dataclass(frozen=True)
class GeneratorSpec:
    """A generator that runs share.

    Attributes:
        id: 16 hexadecimal digits of what it depends on.
        data: Key of the derived data it is trained on.
        described: What its id is made of, free of paths.
        local: Where things lie on this machine, and arguments of `train_generator`.
        images: Images that its training sees, for estimates.
    """

    id: str
    data: str
    described: Mapping[str, Any]
    local: Mapping[str, Any]
    images: int = 0


@dataclass(frozen=True)
class RunSpec:
    """A run.

    Attributes:
        id: 16 hexadecimal digits of the resolved config and the data's content.
        kind: "grader", "generator" or "overhead".
        plan: Name of the plan that asks for it; no part of the id.
        factors: What tables pivot on.
        config: All settings, free of paths.
        local: Where things lie on this machine.
        data: Key of the derived data.
        generator: Id of the generator it needs, or None.
        seed: Seed.
        images: Images that its training sees.
        blocked: Why it cannot run here, or None.
    """

    id: str
    kind: str
    plan: str
    factors: Mapping[str, Any]
    config: Mapping[str, Any]
    local: Mapping[str, Any]
    data: str
    generator: str | None
    seed: int
    images: int
    blocked: str | None = None

    @property
    def label(self) -> str:
        """A few words for progress bars.

        Example:
            >>> factors = {"data": "koa", "grader": "gol", "mixer": "dismix", "scarcity": 0.1}
            >>> RunSpec("0", "grader", "main", factors, {}, {}, "k", None, 2, 0).label
            'koa gol dismix scarcity 0.1 seed 2'
        """
        first = [self.factors.get(name) for name in ("data", "grader", "mixer")]
        words = [str(word) for word in first if word is not None]
        usual: dict[str, tuple[Any, ...]] = {
            "labels": ("votes",), "variability": (30, "own"), "scarcity": (1.0,), "p": (0.5,),
            "policies": ("combined",), "ablation": ("full",), "fold": (),
        }  # fmt: skip
        words += [
            f"{name} {self.factors[name]}"
            for name, values in usual.items()
            if self.factors.get(name) not in (None, *values)
        ]
        return " ".join([*words, f"seed {self.seed}"])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for workers."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Study:
    """A resolved plan.

    Attributes:
        plan: Its name.
        title: Its title.
        runs: In the order in which they are to run, each once.
        generators: Those that runs need, by id.
        data: Derived data by key.
        absent: Names of the plan's data sets that were not given.
    """

    plan: str
    title: str
    runs: tuple[RunSpec, ...]
    generators: Mapping[str, GeneratorSpec]
    data: Mapping[str, DataSpec]
    absent: tuple[str, ...] = ()


def short_id(value: Any) -> str:
    """Return 16 hexadecimal digits of a hash of plain values.

    Example:
        >>> short_id({"seed": 0})
        'bd0488843468e63c'
    """
    return sha(value)[:16]
