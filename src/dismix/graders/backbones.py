"""Feature extractors: timm's networks by name, and a tiny one for CPUs and tests.

Images come in [-1, 1], grey or RGB; each backbone turns them into what it was pretrained on.
Weights come from a file, from the weight folders (`DISMIX_WEIGHTS`) or from timm, and never
silently from nowhere.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dismix.errors import DisMixError
from dismix.generator.weights import find_weights, load_weights, weight_folders
from dismix.modes import evaluating
from dismix.registry import near_names

TINY = "tiny"
FILES = {
    "vgg16": "vgg16_imagenet_features_and_lpips_heads",
    "tf_efficientnet_lite0": "tf_efficientnet_lite0_imagenet",
}
"""Names, without suffix, of weight files that are not called like their backbone."""

# Heads and other parts of published files that a feature extractor has no use for.
_SURPLUS = ("classifier.", "head.", "fc.", "pre_logits.", "lin0.", "lin1.", "lin2.", "lin3.",
            "lin4.", "head_dist.")  # fmt: skip


class Backbone(nn.Module):
    """A feature extractor.

    Args:
        trunk: Maps normalised RGB (B, 3, H, W) to features (B, d, h, w).
        name: For messages and files.
        out_dim: d.
        relu_out: Whether features are never negative.
        mean: Of the pretraining images, RGB in [0, 1].
        std: Their deviation.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        trunk: nn.Module,
        name: str,
        out_dim: int,
        *,
        relu_out: bool,
        mean: tuple[float, ...] = (0.5, 0.5, 0.5),
        std: tuple[float, ...] = (0.5, 0.5, 0.5),
    ) -> None:
        super().__init__()
        self.trunk, self.name, self.out_dim, self.relu_out = trunk, name, out_dim, relu_out
        # ((x + 1) / 2 - mean) / std as one subtraction and one division of x.
        self.register_buffer("mean", 2 * torch.tensor(mean).view(-1, 1, 1) - 1, persistent=False)
        self.register_buffer("deviation", 2 * torch.tensor(std).view(-1, 1, 1), persistent=False)

    def forward_map(self, images: Tensor) -> Tensor:
        """Return features (B, d, h, w) of images (B, 1 or 3, H, W) in [-1, 1]."""
        if images.ndim != 4 or images.shape[1] not in (1, 3):
            raise DisMixError(
                f"images must be (B, 1 or 3, H, W), got {tuple(images.shape)}",
                cure="put channels before height and width, and drop alpha channels",
            )
        if images.shape[1] == 1:
            images = images.expand(-1, 3, -1, -1)
        features: Tensor = self.trunk((images - self.mean) / self.deviation)
        if not isinstance(features, Tensor) or features.ndim != 4:
            kind = type(features).__name__
            found = str(tuple(features.shape)) if isinstance(features, Tensor) else f"a {kind}"
            raise DisMixError(
                f"the trunk of '{self.name}' gives {found}, not a map (B, d, h, w)",
                cure="leave out its pooling and its last layer, or put nn.Unflatten(1, (d, 1, 1))"
                " behind them",
            )
        if features.shape[1] != self.out_dim:
            raise DisMixError(
                f"the trunk of '{self.name}' gives {tuple(features.shape)}, so {features.shape[1]}"
                f" features, and out_dim is {self.out_dim}",
                cure="set out_dim to the number of features; they come before height and width",
            )
        return features

    def forward(self, images: Tensor) -> Tensor:
        """Return features (B, d) averaged over the picture, float32."""
        return self.forward_map(images).float().mean(dim=(2, 3))


class _TimmTrunk(nn.Module):
    """A timm network without its head; tokens and channels-last maps become (B, d, h, w)."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        self.prefix = int(getattr(network, "num_prefix_tokens", 0))
        self.channels_last = getattr(network, "output_fmt", "NCHW") == "NHWC"

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.network.forward_features(images)
        if features.ndim == 3:
            tokens = features[:, self.prefix :]
            side = round(tokens.shape[1] ** 0.5)
            # Sizes from shapes, not from len(): a batch may be symbolic in an export.
            shape = (tokens.shape[0], tokens.shape[2], side, tokens.shape[1] // side)
            return tokens.transpose(1, 2).reshape(shape)
        return features.permute(0, 3, 1, 2) if self.channels_last else features


def _tiny() -> Backbone:
    layers: list[nn.Module] = []
    before = 3
    for after in (12, 24, 48):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False)]
        layers += [nn.BatchNorm2d(after), nn.ReLU()]
        before = after
    layers += [nn.Conv2d(before, before, 3, padding=1, bias=False)]
    layers += [nn.BatchNorm2d(before), nn.ReLU()]
    return Backbone(nn.Sequential(*layers), TINY, before, relu_out=True)


def create_backbone(name: str, *, weights: str | Path | None = "auto") -> Backbone:
    """Build a backbone.

    Args:
        name: "tiny", or any name timm knows.
        weights: A file; "auto" searches the weight folders and stops when there is none;
            "timm" lets timm download; None or "none" starts from nothing. "tiny" has none.

    Raises:
        DisMixError: Unknown name (near ones are offered), no weights, or those of another
            architecture.

    Example:
        >>> create_backbone("tiny").forward_map(torch.zeros(2, 1, 32, 32)).shape
        torch.Size([2, 48, 4, 4])
    """
    if name == TINY:
        backbone = _tiny()
        if weights not in (None, "none", "auto", "timm"):
            _load_trunk(backbone.trunk, load_weights(str(weights)), name, Path(str(weights)))
        return backbone
    require_known(name)
    timm = _timm()
    if weights == "auto":
        weights = _found(name, FILES.get(base_name(name)))
    network = _timm_network(timm, name, pretrained=weights == "timm")
    if weights not in (None, "none", "timm"):
        _load_trunk(network, load_weights(str(weights)), name, Path(str(weights)))
    trunk = _TimmTrunk(network)
    settings = network.pretrained_cfg
    dim, positive = _probed(trunk, settings, name)
    return Backbone(trunk, name, dim, relu_out=positive, mean=settings["mean"], std=settings["std"])


def base_name(name: str) -> str:
    """Return a backbone's name without what follows a dot: a set of published weights.

    Example:
        >>> base_name("vgg16.tv_in1k")
        'vgg16'
    """
    return name.split(".", maxsplit=1)[0]


def require_known(name: str) -> None:
    """Raise where no backbone has a name, and offer near ones.

    Example:
        >>> require_known("vgg16.tv_in1k")
    """
    if not is_known(name):
        known = [TINY, *_timm().list_models()]
        raise DisMixError(f"unknown backbone '{name}'", cure=near_names(name, known))


def is_known(name: str) -> bool:
    """Return whether `create_backbone` makes a backbone of a name.

    Example:
        >>> is_known("tiny"), is_known("mine")
        (True, False)
    """
    return name == TINY or base_name(name) in _timm().list_models()


def _timm() -> Any:
    from dismix._compat import import_torchvision

    import_torchvision()
    import timm

    return timm


def _timm_network(timm: Any, name: str, *, pretrained: bool) -> Any:
    if name.startswith("vgg") and not pretrained:
        return _vgg(timm, name)
    try:
        network = timm.create_model(name, pretrained=pretrained, num_classes=0)
    except Exception as error:  # Whatever the download raises, the cure is the same.
        if not pretrained:
            raise
        raise DisMixError(
            f"timm could not fetch the weights of '{name}' ({str(error).splitlines()[0]})",
            cure="download them elsewhere and give the file as weights (--weights)",
        ) from error
    if hasattr(network, "pre_logits"):
        network.pre_logits = nn.Identity()
    return network


def _vgg(timm: Any, name: str) -> Any:
    """Build a VGG without its fully connected layers: nine tenths of it, tied to 224 pixels."""
    with torch.device("meta"):  # What is thrown away need not be filled.
        network = timm.create_model(name, num_classes=0)
    network.pre_logits = nn.Identity()
    network.to_empty(device="cpu")
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
    return network


def _found(name: str, also: str | None) -> Path:
    """Return the weight file called like the backbone, or by the other name it may have."""
    for file in (name, also):
        path = None if file is None else find_weights(file)
        if path is not None:
            return path
    raise DisMixError(
        f"no weights of '{name}' found",
        cure=f"put {also or name}.safetensors into {weight_folders()[0]}; in Python, weights= also "
        'takes a file, "timm" (downloads them) or "none"; on the command line, give a file with '
        "--weights, let timm download with --weights timm, or start from nothing with "
        "--weights none",
    )


def _load_trunk(trunk: nn.Module, state: Mapping[str, Tensor], name: str, file: Path) -> None:
    """Load published weights, refusing those of another architecture by the first difference."""
    wanted = trunk.state_dict()
    for key, tensor in wanted.items():
        if key.endswith("num_batches_tracked"):
            continue
        found = "missing" if key not in state else str(tuple(state[key].shape))
        if found != str(tuple(tensor.shape)):
            raise DisMixError(
                f"does not hold '{name}': '{key}' is {found}, not {tuple(tensor.shape)}",
                file=file,
                cure="give the weights of this backbone, or name the backbone they belong to",
            )
    # What timm calls its head differs from network to network.
    heads = (getattr(trunk, "pretrained_cfg", None) or {}).get("classifier") or ()
    heads = (heads,) if isinstance(heads, str) else tuple(heads)
    known = (*_SURPLUS, *(f"{head}." for head in heads))
    surplus = [k for k in state if k not in wanted and not k.startswith(known)]
    if surplus:
        raise DisMixError(
            f"does not hold '{name}', which has no '{surplus[0]}'",
            file=file,
            cure="give the weights of this backbone, or name the backbone they belong to",
        )
    trunk.load_state_dict({k: v for k, v in state.items() if k in wanted}, strict=False)


@torch.no_grad()
def _probed(trunk: nn.Module, settings: Mapping[str, Any], name: str) -> tuple[int, bool]:
    """Return the number of features and whether none is negative, seen on noise."""
    own, problem = int(settings["input_size"][-1]), "no map"
    rng = torch.Generator().manual_seed(0)
    # Some networks need more pixels than a quick look gives them.
    for side in (own,) if settings.get("fixed_input_size") else (64, own):
        try:
            with evaluating(trunk):
                features = trunk(torch.randn(1, 3, side, side, generator=rng))
        except (RuntimeError, ValueError, AttributeError, AssertionError) as error:
            problem = str(error).splitlines()[0]
            continue
        if isinstance(features, Tensor) and features.ndim == 4:
            return features.shape[1], bool(features.min() >= 0)
    raise DisMixError(
        f"'{name}' gives no map of features ({problem})", cure="choose another backbone"
    )
