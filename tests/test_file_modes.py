"""Permissions: results follow the user's umask, and what another user may not read is not called damaged."""

from __future__ import annotations

from pathlib import Path

from analysis.report import write_report
from sweep.archive_export import export
from sweep.archive_import import import_archive
from sweep.results import Results, write_json
from tests.file_modes import umask
from tests.small_runs import CPU
from tests.tiny_study import SIZE, write_study
from tests.trained_record import train
from trainables.pretrain import pretrain
from trainables.recipe import PretrainRecipe


def modes(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): oct(path.stat().st_mode & 0o777) for path in folder.rglob("*")}


def test_every_file_of_a_results_directory_follows_the_umask(tmp_path: Path) -> None:
    """Checkpoints and weights, too, which safetensors leaves to their owner alone."""
    results, carried = Results(tmp_path / "results"), Results(tmp_path / "carried")
    recipe = PretrainRecipe(num_steps=1, batch_size=2, num_tokens=8, learning_rate=1e-3)
    with umask(0o027):
        train(write_study(tmp_path, variants=("frozen-pretrained",), rates=(1e-3,)), results)
        pretrain(SIZE, recipe, b"a text " * 50, results.pretrained / "gpt2-1x16-000000000000", CPU, lambda *_: None)
        with results.writing("tiny"):
            write_report(results.root, "tiny")
            write_json(results.progress("tiny"), {})
        export(results, tmp_path / "all.tar", [], checkpoints=True)
        import_archive(tmp_path / "all.tar", carried)
    found = modes(results.root)
    kinds = {Path(name).parts[0] for name in found}
    assert kinds >= {"format.json", "runs", "curves", "checkpoints", "pretrained", "studies", "logs", "writer.lock"}
    assert any(name.startswith("studies/tiny/report/") for name in found)
    for root in (results.root, carried.root):
        wrong = {
            name: mode for name, mode in modes(root).items() if mode != ("0o750" if (root / name).is_dir() else "0o640")
        }
        assert wrong == {}
    assert modes(carried.root).keys() >= {name for name in found if name.startswith(("checkpoints/", "runs/"))}
    assert oct((tmp_path / "all.tar").stat().st_mode & 0o777) == "0o640"
