"""A training step recorded once and replayed as a CUDA graph.

A step of the generator is thousands of small launches; with small batches a GPU waits for the
CPU most of the time. A graph launches them all at once. It needs fixed shapes and addresses, so
what changes from step to step (images, choices, strengths) is copied into the tensors it was
recorded with.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from dismix.generator.steps import StepInput

# Ordinary steps before recording: optimizers make their state, cuDNN chooses its kernels.
WARM = 3


class StepGraph:
    """Takes the first steps as they are, then records one and replays it.

    Args:
        take: The step: tensors in, parts of the loss out.
        batch_size: Batches of another size are taken as they are.
    """

    def __init__(self, take: "Callable[[StepInput], dict[str, Tensor]]", batch_size: int) -> None:
        self.take, self.batch_size, self.warm = take, batch_size, 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.given: StepInput | None = None
        self.parts: dict[str, Tensor] = {}

    def __call__(self, given: "StepInput") -> dict[str, Tensor]:
        """Take a step; what it returns is overwritten by the next one."""
        if len(given.images) != self.batch_size:
            return self.take(given)
        if self.warm < WARM:
            self.warm += 1
            return self._aside(given)
        if self.graph is None or self.given is None:
            self.graph, self.given = self._recorded(given)
        else:
            for kept, fresh in zip(self.given.tensors, given.tensors, strict=True):
                kept.copy_(fresh)
        self.graph.replay()
        return self.parts

    def _aside(self, given: "StepInput") -> dict[str, Tensor]:
        """Take a step on a stream of its own, as recording will."""
        here = torch.cuda.current_stream()
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            parts = self.take(given)
        here.wait_stream(aside)
        return parts

    def _recorded(self, given: "StepInput") -> "tuple[torch.cuda.CUDAGraph, StepInput]":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.parts = self.take(given)
        # Kept with it, so that the allocator gives their memory to nobody else.
        return graph, given
