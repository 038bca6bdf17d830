"""The command `export`: weights bit for bit, reads equal to those of the model, a card that says only what is known."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from scipy import stats

import resnas
from resnas.architecture import Architecture
from resnas.cli import main
from resnas.comparison import comparable, trained
from resnas.errors import InputError
from resnas.executor import LocalExecutor
from resnas.export.card import card
from resnas.export.choice import kept_trial
from resnas.export.evidence import difference, gather
from resnas.export.loading import WEIGHTS
from resnas.export.modules import write_modules
from resnas.export.source import read_source
from resnas.export.writing import write_export
from resnas.results import table
from resnas.search import Coordinator, load_trials
from resnas.search.opening import trial_folder
from resnas.space import load_architecture
from resnas.study import Study
from resnas.tasks import TASKS
from resnas.train import checkpoint, run_trial
from resnas.trial import TrialSpec

ROOT = Path(__file__).parent.parent
KHOP = {"khop": {"length": 16, "max_hops": 2}}


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Study:
    """Two seeds for each of two architectures."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "space.yaml").write_text(
        "resnas: 1\narchitecture: {depth: 2, width: 16, heads: 2, residual: [fixed, full_depth_attention]}\n"
    )
    (folder / "pair.yaml").write_text(
        "resnas: 1\nspace: space.yaml\ntask: {khop: {length: 16, max_hops: 2}}\n"
        "budget: {steps: 6, batch_size: 4, validations: 2, validation_batches: 2, measure_at: [1.0]}\n"
        "search: {sampler: grid, n_trials: 4, replicates: 2}\n"
    )
    study = Study.load(folder / "pair.yaml")
    assert Coordinator(study, LocalExecutor(2)).run()
    return study


def attention(study: Study) -> tuple[int, str]:
    """Return number and key of a kept trial of full depth attention."""
    trials = load_trials(study)
    key = next(one.key for one in trained(comparable(table(trials)), study.directions) if one.family != "fixed")
    return kept_trial(study, trials, key), key


@pytest.fixture
def exported(study, tmp_path) -> tuple[Path, Path]:
    """Return the exported folder and that of its trial."""
    number, key = attention(study)
    folder = trial_folder(study, number)
    evidence = gather(study, load_trials(study), key)
    write_export(read_source(folder, f"Trial {number}"), evidence, tmp_path / "out")
    return tmp_path / "out", folder


def test_weights_come_back_bit_for_bit(exported):
    folder, trial = exported
    saved = checkpoint.read(trial / "checkpoints" / "last.ckpt").model
    in_file, model = load_file(folder / WEIGHTS), resnas.load_exported(folder)
    assert saved.keys() == in_file.keys() == model.state_dict().keys()
    for name, tensor in saved.items():
        assert torch.equal(tensor, in_file[name])
        assert torch.equal(tensor, model.state_dict()[name])
    assert model.architecture == load_architecture(folder / "architecture.yaml")
    assert model.shape == TASKS["khop"](length=16, max_hops=2).shape()
    result = json.loads((trial / "result.json").read_text())
    data = TASKS["khop"](length=16, max_hops=2).load()
    inputs, targets = (torch.cat(parts) for parts in zip(*data.batches("validation", 4, limit=2), strict=True))
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten(), ignore_index=-100)
    assert float(loss) == pytest.approx(result["metrics"]["val_loss"], rel=1e-5)


def test_the_plain_module_with_the_trained_weights_makes_the_reads_of_the_model(exported, monkeypatch):
    folder, _ = exported
    monkeypatch.syspath_prepend(str(folder))
    for name in ("depth_mixing", "load_trained"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    from load_trained import load_trained  # type: ignore[import-not-found]

    mixing, model = load_trained().double(), resnas.load_exported(folder).double()
    assert mixing.queries.abs().max() > 0
    inputs, _ = next(TASKS["khop"](length=16, max_hops=2).load().train_batches(3, seed=1))
    _, trace = model.trace(inputs)
    assert len(trace.reads) == mixing.sublayers
    for number, read in enumerate(trace.reads, start=1):
        torch.testing.assert_close(mixing(trace.outputs[:number]), read, rtol=1e-10, atol=1e-10)
    with pytest.raises(FileNotFoundError):
        load_trained(folder / "nowhere.safetensors")


def test_the_card_has_the_evidence_and_its_intervals(study, exported):
    folder, trial = exported
    text = (folder / "README.md").read_text()
    result = json.loads((trial / "result.json").read_text())
    assert result["data_sha256"] in text
    assert result["versions"]["torch"] in text
    assert f"{result['metrics']['val_loss']:.4g}" in text
    (saved,) = {json.dumps(checkpoint.read(trial / "checkpoints" / "last.ckpt").identity["seed"])}
    assert saved in text
    known = trained(comparable(table(load_trials(study))), study.directions)
    here, fixed = (next(one for one in known if (one.family == "fixed") is baseline) for baseline in (False, True))
    found = difference(here, fixed, "val_loss")
    interval = stats.ttest_ind(here.values("val_loss"), fixed.values("val_loss"), equal_var=False).confidence_interval(
        0.9
    )
    assert found.mean == pytest.approx(here.mean("val_loss") - fixed.mean("val_loss"))
    assert found.interval == pytest.approx(tuple(interval))
    row = next(line for line in text.splitlines() if line.startswith("| `val_loss` |") and " to " in line)
    shown = [f"{value:.4g}".replace("-", "−") for value in (found.mean, *found.interval)]
    assert row.endswith(f"| {shown[0]} | {shown[1]} to {shown[2]} |")
    assert "Its properties were not ranked." in text
    assert "short budget (6 steps)" in text


def test_the_card_claims_no_interval_from_one_seed_and_quotes_rankings_and_confirmations(study):
    number, key = attention(study)
    source = read_source(trial_folder(study, number), "Trial")
    evidence = gather(study, load_trials(study), key)
    alone = replace(evidence, here=replace(evidence.here, rows=evidence.here.rows[:1]))
    text = card(source, alone, "")
    rows = [line for line in text.splitlines() if line.endswith("| one seed, no interval |")]
    assert [line.split("`")[1] for line in rows] == ["val_loss", "dilution", "effective_depth", "late_share"]
    assert "one seed, so its spread is not known" in text
    assert "±" not in text.split("## This model")[1].split("## Against")[0]
    assert "no study beside it" in card(source, None, "")
    assert "no complete trial of `fixed`" in card(source, replace(evidence, baseline=None), "")
    assert "the baseline itself" in card(source, replace(evidence, baseline=evidence.here), "")
    assert "other data than the trials" in card(source, replace(evidence, data_sha256="another"), "")
    from resnas.analysis import analyse

    try:
        (ranking, *_) = analyse(study, load_trials(study))
        confirmations = study.results_folder / "confirm.json"
        confirmations.write_text(json.dumps([{"sentence": "dilution falls: confirmed.", "verdict": "confirmed"}]))
        text = card(source, gather(study, load_trials(study), key), "")
        assert f"- {ranking.sentence()}" in text
        assert "- Confirmation: dilution falls: confirmed." in text
        confirmations.write_text("[{}]")
        with pytest.raises(InputError, match=r"confirm.json: cannot be read \(KeyError"):
            gather(study, load_trials(study), key)
    finally:
        for name in ("ranking.json", "ranking.csv", "confirm.json"):
            (study.results_folder / name).unlink(missing_ok=True)


def export(monkeypatch, capsys, *arguments: object) -> tuple[object, str]:
    monkeypatch.setattr(sys, "argv", ["cli.py", "export", *map(str, arguments)])
    with pytest.raises(SystemExit) as ending:
        main()
    said = capsys.readouterr()
    return ending.value.code, said.out + said.err


def test_the_command_exports_a_trial_and_a_trained_folder(study, tmp_path, monkeypatch, capsys):
    number, key = attention(study)
    code, said = export(monkeypatch, capsys, study.path, "--architecture", key[:5])
    assert code == 0, said
    folder = study.results_folder / "exported" / f"{key}-trial{number:04d}"
    assert {path.name for path in folder.iterdir()} == {
        "model.safetensors", "architecture.yaml", "README.md", "depth_mixing.py", "example.py", "load_trained.py",
    }  # fmt: skip
    assert "SUBLAYERS = 4\nWIDTH = 16\n" in (folder / "depth_mixing.py").read_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        sys, "argv", ["cli.py", "train", str(study.path), "--architecture", str(folder / "architecture.yaml")]
    )
    with pytest.raises(SystemExit) as ending:
        main()
    assert ending.value.code == 0, capsys.readouterr().err
    (trained_folder,) = (study.results_folder / "trained").iterdir()
    code, said = export(monkeypatch, capsys, "--trained", trained_folder)
    assert code == 0, said
    text = (trained_folder / "exported" / "README.md").read_text()
    assert "`test_loss`" in text
    assert "in the study `pair` (6 steps)" in text
    assert resnas.load_exported(trained_folder / "exported").architecture.key == key


def test_what_cannot_be_exported_gets_one_sentence(study, tmp_path, monkeypatch, capsys):
    number, key = attention(study)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    (tmp_path / "file").write_text("")
    unfinished = tmp_path / "unfinished"
    kept = trial_folder(study, number) / "checkpoints"
    for arguments, words in [
        ((study.path, "--architecture", "zz"), "unknown key 'zz'"),
        ((study.path, "--output", tmp_path / "full"), "holds other files"),
        ((study.path, "--output", tmp_path / "file"), "is a file"),
        (("--trained", tmp_path), "was not written by python cli.py train"),
        (("--trained", tmp_path, "--architecture", key), "give one of the two"),
    ]:
        code, said = export(monkeypatch, capsys, *arguments)
        assert (code, len(said.strip().splitlines())) == (2, 1), said
        assert words in said
    assert (tmp_path / "full" / "letter.txt").read_text() == "mine"
    with pytest.raises(InputError, match="holds no trained model"):
        read_source(unfinished, "")
    folders = [trial_folder(study, trial.number) / "checkpoints" for trial in load_trials(study)]
    hidden = [(folder, folder.with_name("hidden")) for folder in folders]
    try:
        for folder, elsewhere in hidden:
            folder.rename(elsewhere)
        code, said = export(monkeypatch, capsys, study.path, "--architecture", key)
        assert code == 2
        assert "has kept its checkpoint" in said
        assert f"python cli.py train {study.path} --architecture {key}" in said
    finally:
        for folder, elsewhere in hidden:
            elsewhere.rename(folder)
    assert kept.is_dir()


def test_a_model_that_is_not_trained_to_the_end_is_not_exported(study, tmp_path):
    number, _ = attention(study)
    identity = checkpoint.read(trial_folder(study, number) / "checkpoints" / "last.ckpt").identity
    names = ("architecture", "task", "budget", "seed", "data_seed")
    spec = TrialSpec(**{name: identity[name] for name in names}, folder=str(tmp_path))
    run_trial(replace(spec, trainer={"max_time": {"days": 1}}), lambda step, metrics: step == 6)
    with pytest.raises(InputError, match="is not trained to the end"):
        read_source(tmp_path, "")


def test_a_folder_that_is_no_export_or_damaged_is_refused(exported, tmp_path):
    folder, _ = exported
    with pytest.raises(InputError, match="holds no exported model"):
        resnas.load_exported(tmp_path)
    content = (folder / WEIGHTS).read_bytes()
    for broken in (content[:100], content[: len(content) // 2], b"", content.replace(b"task_shape", b"task_shapf")):
        (folder / WEIGHTS).write_bytes(broken)
        with pytest.raises(InputError, match="is damaged, or not written by resnas export"):
            resnas.load_exported(folder)


def test_a_model_of_ones_own_topology_loads_elsewhere(tmp_path, monkeypatch):
    block = re.search(r"```python\n(import torch.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "fading_away.py").write_text(block[1])
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    architecture = Architecture(depth=2, width=16, heads=2, residual={"fading_away:Fading": {"rate": 0.5}})
    budget = {"steps": 2, "batch_size": 2, "validations": 1, "validation_batches": 1, "measure_at": [1.0]}
    spec = TrialSpec(architecture.model_dump(mode="json"), KHOP, budget, 1, 2, str(tmp_path / "trial"))
    result = run_trial(spec, lambda step, metrics: False)
    (tmp_path / "trial" / "result.json").write_text(json.dumps(result.to_dict()))
    said = write_export(read_source(tmp_path / "trial", "A trial"), None, tmp_path / "out")
    assert "fading_away.py" in {path.name for path in (tmp_path / "out").iterdir()}
    assert said in (tmp_path / "out" / "README.md").read_text()
    code = "import resnas; print(resnas.load_exported('out').architecture.label)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.stdout == "fading_away:Fading (rate 0.5)\n", done.stderr
    (tmp_path / "out" / "fading_away.py").unlink()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert "InputError: cannot import the residual topology 'fading_away:Fading'" in done.stderr


def test_the_modules_are_written_with_the_values_of_the_architecture(tmp_path):
    residual = {"windowed_depth_attention": {"window": 3, "keep_embedding": False, "old_sources": "remainder"}}
    write_modules(Architecture(depth=5, width=8, heads=4, residual=residual), tmp_path)
    text = (tmp_path / "depth_mixing.py").read_text()
    for line in ("SUBLAYERS = 10", "WIDTH = 8", "WINDOW = 3", "KEEP_EMBEDDING = False", 'OLD_SOURCES = "remainder"'):
        assert f"\n{line}\n" in text
    assert "\nHEADS = 4\n" in (tmp_path / "example.py").read_text()
