"""Use a mixer as a collate function, or where timm expects its own ``Mixup``."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.mixing.base import Mixer, Targets
from dismix.mixing.hooks import HiddenMixer
from dismix.mixing.streams import process_number


class Collate:
    """Collate samples and mix the batch, in the main process or in a worker.

    Each worker of each epoch of each process gets a stream of its own: copies of one mixer
    would otherwise draw the same mixes in all of them. It comes from the mixer's own, so that
    runs of other seeds mix otherwise here too.
    """

    def __init__(self, mix: Mixer, collate: Callable[[list[Any]], Any], seed: int) -> None:
        if isinstance(mix, HiddenMixer):
            # A worker's hook is in a copy of the model. Also without workers some loaders fetch
            # ahead, as accelerate's does: another batch's pass would meet the hook.
            raise DisMixError(
                f"{mix.method} mixes inside the model, which a data loader does not call",
                cure="call mix(images, targets, model=model) in the training loop",
            )
        self.mix, self.collate, self.seed = mix, collate, seed
        self._worker: int | None = None
        self._process = 0

    def __call__(self, samples: list[Any]) -> Any:
        """Return what ``collate`` does, with its first two parts mixed."""
        worker = torch.utils.data.get_worker_info()
        if worker is not None and worker.seed != self._worker:
            self._worker = worker.seed
            process = process_number() or self._process
            own = int(torch.randint(2**62, (), generator=self.mix.generator))
            # The first process without its number: as in a training of one.
            self.mix.reseed(own, self.seed, worker.seed, *([process] if process else []))
        images, targets, *rest = _parts(self.collate(samples))
        return (*self.mix(images, targets), *rest)

    def __getstate__(self) -> dict[str, Any]:
        # A spawned worker knows nothing of torch.distributed: it is told whose it is.
        return {**self.__dict__, "_process": process_number()}


def _parts(batch: Any) -> Sequence[Any]:
    """Return a batch that starts with images and targets, or say that it does not."""
    if isinstance(batch, list | tuple) and len(batch) > 1 and isinstance(batch[0], Tensor):
        return batch
    found = f"a {type(batch).__name__}"
    if isinstance(batch, Mapping):
        found += f" of {', '.join(map(str, batch))}"
    raise DisMixError(
        f"a batch to mix must be (images, targets, ...), got {found}",
        cure="give as_collate a collate function that returns images and targets first",
    )


def as_collate(
    mix: Mixer, collate: Callable[[list[Any]], Any] | None = None, *, seed: int = 0
) -> Collate:
    """Return a ``collate_fn`` whose batches are already mixed.

    Args:
        mix: Any mixer but those of hidden layers, whose call belongs right before the model's. One
            that needs a model must have been given it, and is refused in a worker, where the
            weights would stay as they were; with a ``saliency_fn`` it needs none.
        collate: Makes (images, targets, ...) of samples; torch's default when left out.
        seed: Of the streams of data loader workers, together with the mixer's and the loader's.

    Workers have copies of the mixer as it is when they start: ``mix.eval()`` takes effect in the
    next epoch, and with ``persistent_workers`` only in a new loader.

    Example:
        >>> from dismix.mixing.registry import create_mixer
        >>> data = [(torch.zeros(1, 4, 4), i % 3) for i in range(6)]
        >>> mix = as_collate(create_mixer("mixup", 3))
        >>> images, targets = next(iter(torch.utils.data.DataLoader(data, 6, collate_fn=mix)))
        >>> images.shape, targets.shape
        (torch.Size([6, 1, 4, 4]), torch.Size([6, 3]))
    """
    return Collate(mix, collate or torch.utils.data.default_collate, seed)


class TimmCompat:
    """A mixer with the interface of ``timm.data.Mixup``, for timm's training script.

    It takes odd batches, does not write into the images, and smooths no labels unless asked.

    Args:
        mix: Any mixer with targets (B, C). One that needs a model must have been given it at
            construction.
        label_smoothing: timm's, spread evenly over all ranks.
    """

    def __init__(self, mix: Mixer, label_smoothing: float = 0.0) -> None:
        if mix.target_form not in ("soft", "unimodal"):
            raise DisMixError("timm needs targets (B, C)", cure="give the mixer target='soft'")
        self.mix, self.label_smoothing = mix, label_smoothing

    @property
    def mixup_enabled(self) -> bool:
        """What timm's ``--mixup-off-epoch`` sets."""
        return self.mix.enabled

    @mixup_enabled.setter
    def mixup_enabled(self, value: bool) -> None:
        self.mix.enabled = value

    def __call__(self, x: Tensor, target: Targets) -> tuple[Tensor, Tensor]:
        """Return mixed images and soft targets (B, C)."""
        images, found = self.mix(x, target)
        soft = found.probs if isinstance(found, OrdinalTarget) else found
        smoothing = self.label_smoothing
        return images, soft * (1 - smoothing) + smoothing / soft.shape[1]
