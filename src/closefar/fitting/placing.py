"""Judgements on the device that a fit computes on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from closefar.judgements import Judgements, PartitionedJudgements
from closefar.rows import on_device

__all__ = ["placed_on"]


def placed_on(judgements: Judgements, device: Any) -> Judgements:
    """Return the judgements with their data on a device; None is where they are.

    Those in partitions are taken there by the workers that store them.
    """
    if device is None:
        return judgements
    if isinstance(judgements, PartitionedJudgements):
        return judgements.on(str(device))
    placed = judgements.with_data(on_device(judgements.data, device))
    if judgements.comparisons is None:
        return placed
    return replace(placed, comparisons=placed_on(judgements.comparisons, device))
