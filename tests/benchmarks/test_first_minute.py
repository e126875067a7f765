"""Where the time of a first sweep goes: CPU seconds by stage and by kind of process."""

from __future__ import annotations

import subprocess
import sys
import time
from threading import Event

import psutil  # type: ignore[import-untyped]

from lr_sweep.benchmarks.engine_speed import spread
from lr_sweep.benchmarks.first_minute import Sample, kind_of, stage_costs, watch


def test_a_stage_has_what_was_taken_between_its_ends() -> None:
    """The program took 1 s by the end of the first stage, 1.5 s by that of the second; a trial took all its 3 s then.

    What is seen after a stage's end counts in the next one.
    """
    program = [Sample(0.9, "program", 1.0), Sample(1.9, "program", 1.5), Sample(2.1, "program", 9.0)]
    found = stage_costs({"imports": 1.0, "ray": 2.0}, [*program, Sample(1.5, "trials", 3.0)])
    assert found["imports"] == {"program": 1.0, "trials": 0.0, "Ray": 0.0}
    assert found["ray"] == {"program": 0.5, "trials": 3.0, "Ray": 0.0}


def test_what_a_process_is() -> None:
    names = ("ray::CohortTrainable.train()", "ray::IDLE", "ray::RuntimeEnvAgent", "gcs_server")
    assert [kind_of(name, is_first=False) for name in names] == ["trials", "trials", "Ray", "Ray"]
    assert kind_of("python", is_first=True) == "program"


def test_a_process_that_has_ended_keeps_what_it_took() -> None:
    """This process starts one that works for 0.3 s and waits until some of that was seen, and ends."""
    work = "import sys, time\nwhile time.process_time() < 0.3: pass\nsys.stdin.read()"
    looks = watch(psutil.Process(), time.time(), Event())
    seen_s = (each.cpu_s for each in looks if each.kind == "Ray")
    with subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE):
        before = next(cpu_s for cpu_s in seen_s if cpu_s >= 0.1)
    assert next(seen_s) >= before


def test_a_median_with_its_limits() -> None:
    assert spread([3.0, 1.0, 2.04], 1) == "2.0 (1.0 to 3.0)"
