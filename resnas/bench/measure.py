"""The measuring itself, in a process of its own: interleaved training steps, peak memory, generated tokens."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from pathlib import Path

import torch

from resnas.allocator import keep_freed_memory
from resnas.bench.case import CLASSES, Case, Variant
from resnas.bench.peers import Definition, StackedAttention
from resnas.errors import InputError
from resnas.model import Model, loss_function

GENERATED = 32
"""Tokens that are timed."""
LEAST_MEMORY_STEPS = 3
"""Steps that peak memory is taken over: in the first there are no moments of the optimiser yet."""


def circumstances(device: str) -> dict[str, str]:
    """Return what figures depend on. Raises InputError where there is no such device."""
    cuda = torch.cuda.is_available()
    if device == "cuda" and not cuda:
        raise InputError("--device cuda: torch sees no CUDA device here; use cpu or auto")
    chosen = "cuda" if device == "auto" and cuda else "cpu" if device == "auto" else device
    name = torch.cuda.get_device_name() if chosen == "cuda" else platform.processor() or platform.machine()
    return {"device": chosen, "processor": name, "cores": str(os.cpu_count()), "torch": str(torch.__version__)}


def step_times_s(case: Case, *variants: Variant) -> list[list[float]]:
    """Return the times of training steps of each variant, taken in turns, after `case.warmup` rounds."""
    _prepare(case)
    trainers = [_Trainer(case, variant) for variant in variants]
    times: list[list[float]] = [[] for _ in trainers]
    for round_number in range(case.warmup + case.repeats):
        for trainer, of_trainer in zip(trainers, times, strict=True):
            started = time.perf_counter()
            trainer.step()
            if round_number >= case.warmup:
                of_trainer.append(time.perf_counter() - started)
    return times


def peak_memory_bytes(case: Case, variant: Variant) -> int:
    """Return how much memory training takes at most, beyond what this (fresh) process takes without a model."""
    _prepare(case)
    before = 0 if case.device == "cuda" else _resident_bytes("VmRSS")
    trainer = _Trainer(case, variant)
    for _ in range(max(LEAST_MEMORY_STEPS, case.warmup)):
        trainer.step()
    return torch.cuda.max_memory_allocated() if case.device == "cuda" else _resident_bytes("VmHWM") - before


def token_times_s(case: Case, *variants: Variant) -> list[list[float]]:
    """Return the times of generated tokens after a prompt of half the context, in turns."""
    _prepare(case)
    prompt = torch.randint(CLASSES, (1, max(1, case.context // 2)), device=case.device)
    models = [_make_model(case, variant).eval() for variant in variants]
    times: list[list[float]] = [[] for _ in models]
    caches = [model.new_cache() for model in models]
    for model, cache in zip(models, caches, strict=True):
        model.step(prompt, cache)
    for number in range(case.warmup + GENERATED):
        for model, cache, of_model in zip(models, caches, times, strict=True):
            cache.length = prompt.shape[1]
            started = time.perf_counter()
            model.step(prompt[:, :1], cache)
            _synchronise(case)
            if number >= case.warmup:
                of_model.append(time.perf_counter() - started)
    return times


class _Trainer:
    """A model, its optimiser and a batch."""

    def __init__(self, case: Case, variant: Variant) -> None:
        self._case = case
        self._model = _make_model(case, variant)
        self._optimiser = torch.optim.AdamW(self._model.parameters(), fused=True)
        examples = (case.tokens // case.context, case.context)
        self._batch = torch.randint(CLASSES, examples, device=case.device)

    def step(self) -> None:
        """Forward, backward, optimiser."""
        enabled = self._case.precision == "bfloat16"
        with torch.autocast(self._case.device, torch.bfloat16) if enabled else contextlib.nullcontext():
            loss = loss_function(self._model(self._batch), self._batch)
        self._optimiser.zero_grad()
        loss.backward()
        self._optimiser.step()
        _synchronise(self._case)


def _make_model(case: Case, variant: Variant) -> Model:
    torch.manual_seed(case.seed)
    model = Model(case.architecture(variant.residual), case.shape)
    if variant.implementation == "definition":
        model.residual = Definition(model.residual)
    elif variant.implementation == "stack":
        model.residual = StackedAttention(model.architecture.sublayers, model.architecture.width)
    return model.to(case.device)


def _prepare(case: Case) -> None:
    keep_freed_memory()  # as a trial does
    torch.set_num_threads(case.threads)
    torch.manual_seed(case.seed)
    torch.ones(8, 8, device=case.device) @ torch.ones(8, 8, device=case.device)  # loads what a first product loads


def _synchronise(case: Case) -> None:
    if case.device == "cuda":
        torch.cuda.synchronize()


def _resident_bytes(kind: str) -> int:
    """Return a line of /proc/self/status: VmRSS (now) or VmHWM (at most, since this program began)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(kind + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"this system does not tell {kind}")
