"""The terms of the generator's loss by name, and which of them an epoch minimises."""

from typing import Literal

#: The generator's terms: name -> what it asks for.
TERMS = {
    "reconstruct": "squared error of the reconstruction",
    "perceptual": "LPIPS of the reconstruction",
    "seen": "the frozen grader sees in the reconstruction what it sees in the image",
    "realism": "the discriminator takes the reconstruction for real",
    "quantize_ordinal": "features and ordinal codes meet",
    "quantize_nonordinal": "features and non-ordinal codes meet",
    "rank_ordinal": "rank can be read from z_o",
    "rank_unlabelled": "rank can be read from z_o encoded without its label",
    "rank_predicted": "the label predicted in place of a missing one is right",
    "rank_nonordinal": "rank cannot be read from z_n",
    "similarity": "z_o and z_n are orthogonal",
    "rank_fake": "the discriminator reads the image's rank from its reconstruction",
    "control": "the discriminator reads the asked rank from a decoding at another rank",
    "guide": "a frozen grader reads the asked rank from a decoding at another rank",
    "control_realism": "the discriminator takes that decoding for real",
    "cycle_nonordinal": "z_n is the same in that decoding as in the image",
    "cycle_ordinal": "re-encoding that decoding without label gives the asked rank",
    "stay": "that decoding stays close to the image, pixel by pixel",
    "mix": "the frozen grader reads the image's rank though another's z_n is mixed in",
    "mix_realism": "the discriminator takes that mix for real",
    "mix_keep": "that mix has the mean colours of what z_n was mixed of, in 16 x 16 cells",
    "keep": "that decoding keeps the mean colours of 16 x 16 cells: lesions, no tint",
}
#: Its name where there is one codebook; `quantize_nonordinal` weighs it.
ONE_CODEBOOK = "quantize"
#: What epochs are for: rebuilding alone, parting the codes, teaching the decoder alone.
Phase = Literal["plain", "part", "polish"]
#: The terms of each phase.
PHASE_TERMS: dict[Phase, tuple[str, ...]] = {
    "plain": (
        "reconstruct", "perceptual", "seen", "quantize_ordinal", "quantize_nonordinal",
        ONE_CODEBOOK, "rank_ordinal", "rank_unlabelled", "rank_predicted", "similarity",
    ),
    "part": (*TERMS, ONE_CODEBOOK),
    "polish": (
        "reconstruct", "perceptual", "seen", "realism", "guide", "control_realism", "mix",
        "mix_realism", "mix_keep", "keep",
    ),
}  # fmt: skip
# paper: squared error and LPIPS are one term. Here the former is a mean over pixels, so that it
# does not grow with the image, and each has a weight of its own.
PAPER_TERMS = (
    "reconstruct", "perceptual", "realism", "quantize_ordinal", "quantize_nonordinal",
    "rank_ordinal", "rank_nonordinal", "similarity",
)  # fmt: skip
