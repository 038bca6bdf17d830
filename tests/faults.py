"""Topologies and tasks that go wrong on purpose, each in one way; for tests of what a search makes of it."""

import ctypes
import os
import signal
import subprocess
import sys
import time

import torch

from resnas.residual import Fixed
from resnas.residual.static import FixedRule
from resnas.tasks.khop import KHop

FOREVER = "86399"
"""Seconds that a child sleeps, by which it is known."""
FAULTS = {
    "none": "",
    "exception": "exception: RuntimeError: a fault in the model",
    "recursion": "exception: RecursionError",
    "assertion": "exception: AssertionError",
    "keyboard interrupt": "exception: SystemExit: 1",
    "sys.exit": "exception: SystemExit: 3",
    "os._exit": "exception: its process ended without a result (exit code 3)",
    "non-finite": "non-finite loss: nan at training step",
    "allocation": "out of memory: ",
    "memory of children": "out of memory: ",
    "hang": "timeout: longer than",
    "hang in C code": "timeout: longer than",
    "child in a session of its own": "timeout: longer than",
    "SIGKILL": "killed: by SIGKILL",
    "SIGTERM": "killed: by SIGTERM",
    "segmentation fault": "killed: by SIGSEGV",
    "abort": "killed: by SIGABRT",
}
"""How each fault's reason begins. Lightning turns KeyboardInterrupt into SystemExit."""


class Faulty(Fixed):
    """The plain residual stream, whose second forward pass meets a fault."""

    fault: str = "none"

    def build(self, sublayers, width):
        return FaultyRule(sublayers, width, self.fault)


class FaultyRule(FixedRule):
    def __init__(self, sublayers, width, fault):
        super().__init__(sublayers, width)
        self.fault = fault
        self.passes = 0

    def start(self, embedding):
        self.passes += 1
        if self.passes == 2:
            meet(self.fault)
        return super().start(embedding * float("nan") if self.fault == "non-finite" else embedding)


def meet(fault):
    if fault == "exception":
        raise RuntimeError("a fault in the model")
    if fault == "recursion":
        meet(fault)
    elif fault == "assertion":
        raise AssertionError
    elif fault == "keyboard interrupt":
        raise KeyboardInterrupt
    elif fault == "sys.exit":
        sys.exit(3)
    elif fault == "os._exit":
        os._exit(3)
    elif fault == "allocation":
        torch.ones(2**40)
    elif fault == "memory of children":
        hoard = "import time; x = b'x' * (12 * 2**27); time.sleep(600)"
        children = [subprocess.Popen([sys.executable, "-c", hoard]) for _ in range(2)]
        children[0].wait()
    elif fault == "hang":
        time.sleep(600)
    elif fault == "hang in C code":
        ctypes.PyDLL(None).sleep(600)  # PyDLL keeps the interpreter's lock: no Python code runs in this process
    elif fault == "child in a session of its own":
        child = subprocess.Popen(["sleep", FOREVER], start_new_session=True)
        child.wait()
    elif fault.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, fault))
        time.sleep(600)
    elif fault == "segmentation fault":
        ctypes.string_at(0)
    elif fault == "abort":
        ctypes.CDLL(None).abort()


class FaultyTask(KHop):
    """k-hop induction whose data or metrics meet a fault."""

    fault: str = "none"

    def load(self):
        data = super().load()
        if self.fault == "data":
            data.train_batches = _fails
        elif self.fault == "metrics":
            data.metrics = _fails
        elif self.fault == "metric value":
            data.metrics = lambda logits, batch: {"accuracy": (float("nan"), 1.0)}
        return data


def _fails(*arguments):
    raise ValueError("a fault in the task")
