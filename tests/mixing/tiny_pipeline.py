"""A random InstructPix2Pix pipeline small enough for a test; needs diffusers, transformers."""

import json
from pathlib import Path


def save_tiny_pipeline(folder: Path) -> None:
    """Save a pipeline of about a hundred thousand random weights."""
    import diffusers
    import torch
    import transformers

    torch.manual_seed(0)
    unet = diffusers.UNet2DConditionModel(
        in_channels=8, out_channels=4, block_out_channels=(8, 16), layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=16, norm_num_groups=4, attention_head_dim=4,
    )  # fmt: skip
    vae = diffusers.AutoencoderKL(
        block_out_channels=(8, 16), down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4, norm_num_groups=4,
    )  # fmt: skip
    letters = [chr(c) for c in range(33, 127)]
    words = [*letters, *(c + "</w>" for c in letters), "<|startoftext|>", "<|endoftext|>"]
    source = folder.parent / "tokenizer"
    source.mkdir(parents=True)
    (source / "vocab.json").write_text(json.dumps({w: i for i, w in enumerate(words)}))
    (source / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = transformers.CLIPTokenizer(
        str(source / "vocab.json"), str(source / "merges.txt"), model_max_length=16
    )
    config = transformers.CLIPTextConfig(
        vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=16,
    )  # fmt: skip
    diffusers.StableDiffusionInstructPix2PixPipeline(
        vae=vae, text_encoder=transformers.CLIPTextModel(config), tokenizer=tokenizer, unet=unet,
        scheduler=diffusers.EulerAncestralDiscreteScheduler(), safety_checker=None,
        feature_extractor=None, requires_safety_checker=False,
    ).save_pretrained(folder)  # fmt: skip
