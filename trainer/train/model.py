"""A small GPT: pre-norm blocks, rotary positions, fused causal attention, tied input and output embeddings."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trainer.train.config import Model

IGNORED = -100
"""A target that counts nowhere (`cross_entropy`'s default `ignore_index`)."""

ROTARY_BASE = 10_000.0
"""Longest wavelength of the rotary positions, over 2 pi (RoFormer, Su et al. 2021)."""


class Attention(nn.Module):
    """Causal self-attention over `heads` heads."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.heads = config.heads
        self.dropout = config.dropout
        self.project_in = nn.Linear(config.width, 3 * config.width, bias=False)
        self.project_out = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Attend from each token to itself and those before it."""
        batch, length, width = x.shape
        parts = self.project_in(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind()
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(
            rotate(q, cos, sin), rotate(k, cos, sin), v, dropout_p=dropout, is_causal=True
        )
        joined: Tensor = self.project_out(mixed.transpose(1, 2).reshape(batch, length, width))
        return joined


class Block(nn.Module):
    """Attention, then a feed-forward network, each on a normalised copy of the stream that it adds to."""

    def __init__(self, config: Model, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute
        self.attention_norm = nn.LayerNorm(config.width, bias=False)
        self.attention = Attention(config)
        self.feed_norm = nn.LayerNorm(config.width, bias=False)
        self.feed_in = nn.Linear(config.width, 4 * config.width, bias=False)
        self.feed_out = nn.Linear(4 * config.width, config.width, bias=False)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Add to the stream `x`; where it recomputes, only what came in is kept for the backward pass."""
        if self.recompute and self.training:
            added: Tensor = checkpoint(self.add, x, cos, sin, use_reentrant=False)
            return added
        return self.add(x, cos, sin)

    def add(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """What `forward` computes."""
        x = x + self.dropout(self.attention(self.attention_norm(x), cos, sin))
        inner = F.gelu(self.feed_in(self.feed_norm(x)), approximate="tanh")
        added: Tensor = self.dropout(self.feed_out(inner))
        return x + added


class GPT(nn.Module):
    """Tokens in, logits out; with targets, their summed cross-entropy, which the caller divides by the token count.

    `recompute` trades time for memory: blocks compute their activations again in the backward pass.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, config: Model, vocabulary: int, *, recompute: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config, recompute) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width, bias=False)
        cos, sin = rotary_table(config.context, config.width // config.heads)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self._initialise(config.layers)

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor:
        """Logits of shape (batch, length, vocabulary), or the sum of the losses of all targets but `IGNORED`."""
        cos, sin = self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]]
        x = self.dropout(self.embedding(tokens))
        for block in self.blocks:
            x = block(x, cos, sin)
        logits = F.linear(self.norm(x), self.embedding.weight)
        if targets is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="sum", ignore_index=IGNORED)

    def compile_blocks(self) -> None:
        """Compile each block by itself: they are alike, so it is done once, and gradients still leave one by one."""
        for block in self.blocks:
            block.compile()

    def _initialise(self, layers: int) -> None:
        """Small normal weights; those that write to the stream shrink with depth, as in GPT-2."""
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                writes = name.endswith(("project_out.weight", "feed_out.weight"))
                nn.init.normal_(weight, std=0.02 / (2 * layers) ** 0.5 if writes else 0.02)


def rotary_table(length: int, size: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of shape (length, size / 2): the angle of each pair of features at each position."""
    frequencies = ROTARY_BASE ** (-torch.arange(0, size, 2) / size)
    angles = torch.outer(torch.arange(length), frequencies)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs (i, i + size / 2) of `x`'s last dimension by their position's angles."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).type_as(x)


def parameter_count(model: nn.Module) -> int:
    """Trainable numbers in the model; the tied embedding counts once."""
    return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
