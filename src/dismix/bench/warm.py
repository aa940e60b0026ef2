"""What a process keeps between runs: images on the device, first weights, open generators.

A hundred short runs in one process then cost their training and little else.
"""

import copy
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch

from dismix.bench.folder import BenchFolder
from dismix.bench.sources import FULL
from dismix.data.manifest import Manifest, read_manifest
from dismix.generator.images import SplitImages, load_split
from dismix.graders.backbones import Backbone, create_backbone
from dismix.mixing.encoding import consensus_ranks
from dismix.mixing.engine import MixEngine
from dismix.mixing.latents import FOLDER
from dismix.progress import Progress
from dismix.provenance import provenance

T = TypeVar("T")
#: Most things of each kind that are kept: a study goes through its data sets in turn.
KEPT = {
    "images": 18, "engines": 4, "details": 4, "judges": 4, "manifests": 12, "backbones": 4,
    "rows": 24, "seen": 256,
}  # fmt: skip


class Warm:
    """Things that are made once; the least used ones go first."""

    def __init__(self) -> None:
        self._kept: dict[str, OrderedDict[Hashable, Any]] = {k: OrderedDict() for k in KEPT}
        self._provenance: dict[bool, dict[str, Any]] = {}

    def keep(self, kind: str, key: Hashable, make: Callable[[], T]) -> T:
        """Return what was made for a key, or make it now."""
        kept = self._kept[kind]
        if key not in kept:
            kept[key] = make()
            while len(kept) > KEPT[kind]:
                kept.popitem(last=False)
        kept.move_to_end(key)
        found: T = kept[key]
        return found

    def manifest(self, folder: BenchFolder, key: str) -> Manifest:
        """Return derived data."""
        path = folder.manifest_dir(key) / FULL
        return self.keep("manifests", str(path), lambda: read_manifest(path))

    def images(
        self,
        folder: BenchFolder,
        key: str,
        split: str,
        size: int,
        device: torch.device,
        progress: Progress | None = None,
    ) -> SplitImages:
        """Return a split of derived data, decoded, on the device where it fits."""
        data = self.manifest(folder, key)
        place = (str(folder.root), key, split, size, str(device))
        return self.keep(
            "images",
            place,
            lambda: load_split(data, split, size, device=device, progress=progress),
        )

    def backbone(self, name: str, weights: str | None) -> Backbone | str:
        """Return a copy of a backbone with its first weights, or its name when it has none.

        One that starts from nothing must be drawn from each run's own seed.
        """
        if weights is None:
            return name
        first = self.keep(
            "backbones", (name, weights), lambda: create_backbone(name, weights=weights)
        )
        return copy.deepcopy(first)

    def engine(
        self,
        folder: BenchFolder,
        name: str,
        store: str,
        device: torch.device,
        compiled: bool,
        *,
        votes_of: str | None = None,
    ) -> MixEngine:
        """Return a shared generator with its codes, open.

        Args:
            folder: The benchmark's folder.
            name: Id of the generator.
            store: Name of the folder of its codes.
            device: Where to mix.
            compiled: Compile the decoder.
            votes_of: Key of the derived data whose votes decide the consensus. Data with the same
                shares of votes share generator and codes, whoever of the annotators voted what.
        """
        run = folder.generator_dir(name)

        def load() -> MixEngine:
            made = MixEngine.load(run, run / FOLDER / store, device=device, compiled=compiled)
            if votes_of is not None:
                rows = self.manifest(folder, votes_of).split("train")
                made.store.consensus = torch.from_numpy(consensus_ranks(rows))
            return made

        return self.keep("engines", (str(run), str(device), compiled, votes_of), load)

    def provenance(self, *, cpu: bool) -> dict[str, Any]:
        """Return commit, versions and hardware, found once, with the present time.

        Args:
            cpu: Whether a GPU, if there is one, is left alone.
        """
        from datetime import UTC, datetime

        if cpu not in self._provenance:
            self._provenance[cpu] = provenance("cpu" if cpu else None)
        return {**self._provenance[cpu], "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")}


WARM = Warm()
"""Of this process."""
