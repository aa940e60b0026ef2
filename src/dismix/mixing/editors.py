"""Image editors for DiffuseMix: a diffusion model, nothing at all, or plain filters.

An editor is any function ``editor(images, prompts) -> images`` on (M, channels, H, W) in [0, 1]
with one prompt for each image, with an attribute ``name`` that tells its results apart from
another editor's. The same image and prompt must give the same result.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from dismix.atomic import replacing
from dismix.errors import DisMixError
from dismix.mixing.pipelines import load_pipeline, pipeline_name
from dismix.registry import near_names


class Editor(Protocol):
    """What DiffuseMix asks of an editor."""

    name: str

    def __call__(self, images: Tensor, prompts: Sequence[str]) -> Tensor:
        """Edit images (M, channels, H, W) in [0, 1], one prompt for each."""
        ...


class IdentityEditor:
    """Changes nothing: what is left of DiffuseMix is the fractal."""

    name = "identity"

    def __call__(self, images: Tensor, prompts: Sequence[str]) -> Tensor:
        """Return the images."""
        return images


def _tone(gamma: float) -> Callable[[Tensor], Tensor]:
    return lambda x: x.clamp_min(0) ** gamma


def _tint(gains: Sequence[float]) -> Callable[[Tensor], Tensor]:
    def tint(x: Tensor) -> Tensor:
        scale = torch.ones(x.shape[1], device=x.device, dtype=x.dtype)
        count = min(3, x.shape[1]) if x.shape[1] > 1 else 0
        scale[:count] = torch.tensor(gains[:count], device=x.device, dtype=x.dtype)
        return x * scale.view(1, -1, 1, 1)

    return tint


def _contrast(gain: float) -> Callable[[Tensor], Tensor]:
    return lambda x: (x - x.mean((2, 3), keepdim=True)) * gain + x.mean((2, 3), keepdim=True)


def _posterise(x: Tensor) -> Tensor:
    return (x * 4).round() / 4


def _blur(x: Tensor) -> Tensor:
    return F.avg_pool2d(F.pad(x, (2, 2, 2, 2), mode="replicate"), 5, 1)


def _sketch(x: Tensor) -> Tensor:
    down = F.pad(x.diff(dim=2), (0, 0, 0, 1))
    right = F.pad(x.diff(dim=3), (0, 1))
    return 1 - 4 * (down.abs() + right.abs())


FILTERS: dict[str, Callable[[Tensor], Tensor]] = {
    "darker": _tone(1.6),
    "brighter": _tone(0.6),
    "warm": _tint((1.1, 1.0, 0.8)),
    "cool": _tint((0.85, 1.0, 1.15)),
    "flat": _contrast(0.6),
    "vivid": _contrast(1.5),
    "posterised": _posterise,
    "soft": _blur,
    "sketch": _sketch,
}


class FilterEditor:
    """Tone, colour, blur and edge filters. No diffusion: results are not DiffuseMix.

    Example:
        >>> FilterEditor()(torch.full((1, 1, 8, 8), 0.25), ["posterised"]).mean().item()
        0.25
    """

    name = "filters"

    def __call__(self, images: Tensor, prompts: Sequence[str]) -> Tensor:
        """Apply the filter that each prompt names."""
        for prompt in prompts:
            if prompt not in FILTERS:
                raise DisMixError(f"unknown filter '{prompt}'", cure=near_names(prompt, [*FILTERS]))
        edited = [FILTERS[p](x.unsqueeze(0)) for x, p in zip(images, prompts, strict=True)]
        return torch.cat(edited).clamp(0, 1)


class DiffusersEditor:
    """InstructPix2Pix from a folder on this machine; nothing is ever downloaded.

    Args:
        source: Folder of a saved pipeline, or a pipeline.
        guidance_scale: Of the prompt; DiffuseMix uses 4.
        image_guidance_scale: Of the image.
        steps: Denoising steps.
        seed: With the image's content it fixes the noise.
        device: Where to compute.
        dtype: Of the weights; half precision on a GPU by default.
        name: Stands for the pipeline in the name under which results are kept, instead of its
            own with a fingerprint of its weights. Change it when you change the pipeline.
    """

    def __init__(
        self,
        source: str | Path | Any,
        *,
        guidance_scale: float = 4.0,
        image_guidance_scale: float = 1.5,
        steps: int = 100,
        seed: int = 0,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        name: str | None = None,
    ) -> None:
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        half = self.device.type == "cuda"
        dtype = dtype or (torch.float16 if half else torch.float32)
        named = isinstance(source, str | Path)
        given: Any = source
        self.pipeline = load_pipeline(Path(given), dtype) if named else given
        self.pipeline.to(self.device)
        self.options = {
            "guidance_scale": guidance_scale,
            "image_guidance_scale": image_guidance_scale,
            "num_inference_steps": steps,
        }
        self.seed = seed
        label = name or pipeline_name(self.pipeline, Path(given) if named else None)
        self.name = f"{label}-g{guidance_scale:g}-i{image_guidance_scale:g}-s{steps}-{seed}"

    @torch.no_grad()
    def __call__(self, images: Tensor, prompts: Sequence[str]) -> Tensor:
        """Edit images of 1 or 3 channels."""
        channels = images.shape[1]
        if channels not in (1, 3):
            raise DisMixError(f"a diffusion editor takes 1 or 3 channels, got {channels}")
        colour = images.expand(-1, 3, -1, -1)
        keys = [int(content_key(x)[:12], 16) for x in as_bytes(images)]
        generators = [torch.Generator().manual_seed(self.seed ^ key) for key in keys]
        made = self.pipeline(
            prompt=list(prompts),
            image=colour.to(self.device),
            generator=generators,
            output_type="pt",
            **self.options,
        ).images
        made = F.interpolate(made.float(), images.shape[-2:], mode="bilinear").to(images)
        return made if channels == 3 else made.mean(1, keepdim=True)


def as_bytes(images: Tensor) -> Tensor:
    """Return 8-bit pixels on the CPU of images in [0, 1]; bytes stay as they are."""
    if images.dtype != torch.uint8:
        images = (images.detach().float().clamp(0, 1) * 255).round().to(torch.uint8)
    return images.cpu()


def content_key(image: Tensor) -> str:
    """Return a key of an image (channels, H, W) in [0, 1] or uint8, by its 8-bit pixels.

    Example:
        >>> content_key(torch.zeros(1, 2, 2))[:8]
        '4d70de1c'
    """
    pixels = as_bytes(image)
    digest = hashlib.sha256(str(tuple(pixels.shape)).encode())
    digest.update(pixels.contiguous().numpy().tobytes())
    return digest.hexdigest()


class CachedEditor:
    """Keep edited images on disk, by the image's content, the prompt and the editor.

    Edits are made on the images as they are, before flips and rotations: put DiffuseMix before
    the augmentation, or no image will ever be met again.

    Args:
        editor: Makes what is missing; None only reads, and says when something is missing.
        folder: Where PNG files are kept.
        name: Of the editor whose results are read, when ``editor`` is None.
        keep: How many images are also kept in memory.
    """

    def __init__(
        self,
        editor: Editor | None,
        folder: str | Path,
        name: str | None = None,
        keep: int = 1024,
    ) -> None:
        self.editor, self.folder, self.keep = editor, Path(folder), keep
        self._kept: OrderedDict[Path, Tensor] = OrderedDict()
        if editor is None and name is None:
            raise DisMixError("a cache without an editor needs the name of the one that filled it")
        self.name = name if name is not None else editor.name  # type: ignore[union-attr]

    def path(self, image: Tensor, prompt: str) -> Path:
        """Return the file of an edited image."""
        setting = hashlib.sha256(f"{self.name}\n{prompt}".encode()).hexdigest()[:12]
        return self.folder / setting / f"{content_key(image)[:32]}.png"

    def __call__(self, images: Tensor, prompts: Sequence[str]) -> Tensor:
        """Read what is there, make and keep what is not."""
        files = [self.path(x, p) for x, p in zip(as_bytes(images), prompts, strict=True)]
        missing = [
            i for i, file in enumerate(files) if file not in self._kept and not file.is_file()
        ]
        if missing:
            if self.editor is None:
                raise DisMixError(
                    f"{len(missing)} of {len(files)} edited images are not there",
                    file=self.folder,
                    cure="make them first with an editor, before any augmentation",
                )
            made = self.editor(images[missing], [prompts[i] for i in missing])
            for i, picture in zip(missing, made, strict=True):
                _write(files[i], picture)
        pixels = torch.stack([self._pixels(file) for file in files]).to(images.device)
        return pixels.view(images.shape).to(images.dtype) / 255

    def _pixels(self, file: Path) -> Tensor:
        """Return 8-bit pixels, channels one under another."""
        pixels = self._kept.pop(file, None)
        if pixels is None:
            pixels = _read(file)
        self._kept[file] = pixels
        while len(self._kept) > self.keep:
            self._kept.popitem(last=False)
        return pixels


def _write(file: Path, picture: Tensor) -> None:
    channels, height, width = picture.shape
    pixels = as_bytes(picture)
    # Channels one under another: PNG has no pictures of, say, five channels.
    flat = pixels.reshape(channels * height, width).numpy()
    with replacing(file) as temporary:
        Image.fromarray(flat).save(temporary)


def _read(file: Path) -> Tensor:
    try:
        with Image.open(file) as picture:
            return torch.from_numpy(np.array(picture))
    except OSError:
        raise DisMixError("cannot be read as a picture", file=file, cure="delete it") from None
