"""All losses as plain modules, for users with a training loop of their own.

Targets are whole-number grades (B,), vote shares (B, C) or an `OrdinalTarget`; weights of
images (B,) are optional everywhere. What comes before the target differs by method: logits,
features, or several of them; see each class. Losses on logits (`LogitsLoss`) also read them:
``loss.grades(logits)``. What some losses are given is here too: the head of CORAL, the regressor
of MWR, the Gaussians of POE.

Example:
    >>> import torch
    >>> CornLoss(num_ranks=5)(torch.zeros(2, 4), torch.tensor([0, 3]))
    tensor(0.6931)
"""

from dismix.graders.cloc_loss import CLOCLoss
from dismix.graders.coral import CoralHead
from dismix.graders.corn import CornLoss
from dismix.graders.cross_entropy import SoftCrossEntropyLoss
from dismix.graders.gol_loss import GOLLoss
from dismix.graders.logits_loss import LogitsLoss
from dismix.graders.mwr_loss import MWRLoss, RhoRegressor
from dismix.graders.or_cnn import LevelsLoss
from dismix.graders.ord2seq_tree import Ord2SeqLoss
from dismix.graders.poe_loss import Gaussians, POELoss
from dismix.graders.rnc_loss import RnCLoss
from dismix.graders.sord import SordLoss

__all__ = [
    "CLOCLoss",
    "CoralHead",
    "CornLoss",
    "GOLLoss",
    "Gaussians",
    "LevelsLoss",
    "LogitsLoss",
    "MWRLoss",
    "Ord2SeqLoss",
    "POELoss",
    "RhoRegressor",
    "RnCLoss",
    "SoftCrossEntropyLoss",
    "SordLoss",
]
