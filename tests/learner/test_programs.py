"""What programs of training are compiled with."""

import pytest

from dr_q.learner import programs
from dr_q.learner.programs import CPU_OPTIONS, compiler_options


@pytest.fixture
def options(monkeypatch):
    """`CPU_OPTIONS`, to be changed; answers that are kept are forgotten before and after."""
    compiler_options.cache_clear()
    monkeypatch.setattr(programs, "CPU_OPTIONS", dict(CPU_OPTIONS))
    yield programs.CPU_OPTIONS
    compiler_options.cache_clear()


def test_the_compiler_takes_the_options_of_the_cpu():
    assert compiler_options("cpu") == CPU_OPTIONS, "jaxlib no longer knows one of them: is there another name?"


def test_an_option_that_the_compiler_does_not_know_is_left_out(options):
    options["xla_cpu_of_another_version"] = 1
    assert compiler_options("cpu") == CPU_OPTIONS


def test_a_value_that_the_compiler_does_not_know_is_left_out(options):
    options["xla_cpu_experimental_ynn_fusion_type"] = "LIBRARY_FUSION_TYPE_OF_ANOTHER_VERSION"
    assert compiler_options("cpu") == {name: x for name, x in CPU_OPTIONS.items() if "ynn" not in name}


def test_other_devices_have_other_options():
    assert all(name.startswith("xla_gpu_") for name in compiler_options("gpu"))
    assert compiler_options("tpu") == {}
