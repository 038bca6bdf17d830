"""The four families written out as loops over single numbers, without resnas: what the contract tests compare with."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def read(family: str, options: dict, parameters: dict[str, Tensor], sources: list[Tensor], sublayers: int) -> Tensor:
    """Return the next read [tokens, width], token by token, for the parameters of a rule by name."""
    rows = []
    for token in range(len(sources[0])):
        vectors = [source[token] for source in sources]
        if family == "fixed":
            rows.append(sum(vectors))
        elif family == "scalar_learned":
            rows.append(_scalar_learned(parameters["scalars"], vectors))
        elif family == "full_depth_attention":
            pieces = vectors
            rows.append(_softmax_read(parameters["queries"], pieces, len(vectors), options["key_norm"], sublayers))
        elif family == "windowed_depth_attention":
            pieces = _window(vectors, **{name: options[name] for name in ("window", "keep_embedding", "old_sources")})
            rows.append(_softmax_read(parameters["queries"], pieces, len(vectors), options["key_norm"], sublayers))
    return torch.stack(rows)


def _scalar_learned(scalars: Tensor, vectors: list[Tensor]) -> Tensor:
    first = sum(range(len(vectors)))  # reads 1, 2, … have 1, 2, … numbers each
    return sum(scalars[first + i] * vector for i, vector in enumerate(vectors))


def _window(vectors: list[Tensor], window: int, keep_embedding: bool, old_sources: str) -> list[Tensor]:
    new = vectors[-window:]
    old = vectors[:-window]
    pieces = []
    if keep_embedding and old:
        pieces.append(old[0])
        old = old[1:]
    if old_sources == "remainder" and old:
        pieces.append(sum(old))
    return pieces + new


def _softmax_read(queries: Tensor, pieces: list[Tensor], read_number: int, key_norm: str, sublayers: int) -> Tensor:
    if len(pieces) == 1:
        return pieces[0]
    query = queries[read_number - (sublayers + 1) - 1]  # the last query belongs to the readout, read S + 1
    logits = []
    for piece in pieces:
        size = math.sqrt(1) if key_norm == "none" else torch.sqrt((piece * piece).sum() / len(piece) + 1e-12)
        logits.append((query * piece).sum() / size)
    exponentials = [torch.exp(logit) for logit in logits]
    return sum(e / sum(exponentials) * piece for e, piece in zip(exponentials, pieces, strict=True))
