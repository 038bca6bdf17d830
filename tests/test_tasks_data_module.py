"""A LightningDataModule as a task: a real one, trained on through the real trial."""

import itertools
import sys
import textwrap

import pytest
import torch

from resnas.architecture import Architecture
from resnas.errors import InputError
from resnas.study import Budget
from resnas.tasks.data_module import DataModule
from resnas.train import run_trial
from resnas.trial import TrialSpec

NAME = "resnas.tasks.data_module:DataModule"


@pytest.fixture
def options(tmp_path, monkeypatch):
    """Write a data module that copies its input, with a shuffling loader."""
    (tmp_path / "copying_data.py").write_text(
        textwrap.dedent("""
        import torch
        from lightning.pytorch import LightningDataModule
        from torch.utils.data import DataLoader, TensorDataset

        class Copying(LightningDataModule):
            def __init__(self, letters, batch_size):
                super().__init__()
                self.letters, self.batch_size = letters, batch_size

            def _loader(self, examples, seed, shuffle):
                generator = torch.Generator().manual_seed(seed)
                x = torch.randint(self.letters, (examples, 8), generator=generator)
                return DataLoader(TensorDataset(x, x), self.batch_size, shuffle=shuffle)

            def train_dataloader(self):
                return self._loader(40, 1, True)

            def val_dataloader(self):
                return self._loader(12, 2, False)

            def test_dataloader(self):
                return self._loader(12, 3, False)
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield {
        "module": "copying_data:Copying",
        "options": {"letters": 5},
        "inputs": "tokens",
        "input_size": 5,
        "context": 8,
        "outputs": 5,
    }
    sys.modules.pop("copying_data", None)


def first(data, seed, count=15):
    return torch.stack([inputs for inputs, _ in itertools.islice(data.train_batches(4, seed), count)])


def test_batches_depend_on_the_seed_alone(options):
    data, again = DataModule(**options).load(), DataModule(**options).load()
    assert data.sha256 == again.sha256
    torch.manual_seed(123)
    expected = first(data, seed=7)
    torch.manual_seed(456)
    state = torch.get_rng_state()
    assert torch.equal(first(again, seed=7), expected)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(first(data, seed=8), expected)
    assert not torch.equal(expected[:10].flatten(0, 1), expected[5:].flatten(0, 1))
    assert [len(inputs) for inputs, _ in data.batches("validation", 5)] == [5, 5, 2]
    assert len(data.batches("test", 4, limit=2)) == 2


def test_a_trial_learns_from_it(options, tmp_path):
    architecture = Architecture(depth=1, width=16, heads=2).model_dump(mode="json")
    budget = Budget(steps=60, batch_size=8, validations=1, measure_at=[1.0]).model_dump(mode="json")
    result = run_trial(
        TrialSpec(architecture, {NAME: options}, budget, 1, 2, str(tmp_path / "trial")), lambda *_: False
    )
    assert result.state == "complete"
    assert result.metrics["accuracy"] > 0.9


def test_a_class_that_is_not_there_is_one_sentence(options):
    with pytest.raises(InputError, match="cannot import the data module 'copying_data:Copyng'"):
        DataModule(**{**options, "module": "copying_data:Copyng"}).load()


def test_a_trial_on_it_goes_on_from_its_checkpoint_over_the_end_of_an_epoch(options, tmp_path):
    """Five batches an epoch, each shuffled anew; interrupted after step 4 or 8 of 12."""
    architecture = Architecture(depth=1, width=16, heads=2)
    budget = Budget(steps=12, batch_size=8, validations=3, validation_batches=1, measure_at=[1.0])

    def spec(folder: str, checkpoint: str | None = None) -> TrialSpec:
        values = architecture.model_dump(mode="json"), {NAME: options}, budget.model_dump(mode="json")
        return TrialSpec(*values, 1, 2, str(tmp_path / folder), checkpoint=checkpoint)

    def interrupt(step: int, metrics: dict) -> bool:
        if step == stop:
            raise KeyError
        return False

    def metrics(spec: TrialSpec) -> dict:
        found = run_trial(spec, lambda step, metrics: False).metrics
        return {name: value for name, value in found.items() if not name.endswith("time_s")}

    expected = metrics(spec("whole"))
    for stop in (8, 12):
        with pytest.raises(KeyError):
            run_trial(spec(f"interrupted{stop}"), interrupt)
        last = tmp_path / f"interrupted{stop}" / "checkpoints" / "last.ckpt"
        assert torch.load(last, weights_only=True)["global_step"] == stop - 4
        assert metrics(spec(f"again{stop}", str(last))) == expected
