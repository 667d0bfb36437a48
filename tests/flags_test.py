"""Compares the scripts' flags with those of the released BERT."""

import importlib
import json
from pathlib import Path

import pytest
from absl import flags

HERE = Path(__file__).resolve().parent
RELEASED = json.loads(
    (HERE / "testdata" / "released_flags.json").read_text(encoding="utf-8")
)
SCRIPTS = [
    script for script in RELEASED if (HERE.parent / f"{script}.py").is_file()
]


def define_flags(script):
    values = flags.FlagValues()
    importlib.import_module(script).define_flags(values)
    return values


def required_names(script):
    return [flag["name"] for flag in RELEASED[script] if flag["required"]]


@pytest.mark.parametrize("script", SCRIPTS)
def test_released_flags_keep_name_type_and_default(script):
    values = define_flags(script)
    ours = [
        {
            "name": released["name"],
            "type": values[released["name"]].flag_type(),
            "default": values[released["name"]].default,
        }
        for released in RELEASED[script]
        if released["name"] in values
    ]
    wanted = [
        {key: flag[key] for key in ("name", "type", "default")}
        for flag in RELEASED[script]
    ]
    assert ours == wanted


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_flag_says_what_it_is(script):
    values = define_flags(script)
    assert [name for name in values if not values[name].help] == []


@pytest.mark.parametrize(
    ("script", "missing"),
    [(script, name) for script in SCRIPTS for name in required_names(script)],
)
def test_required_flag_is_asked_for(script, missing):
    argv = [f"--{name}=x" for name in required_names(script) if name != missing]
    with pytest.raises(flags.IllegalFlagValueError, match=f"--{missing} must"):
        define_flags(script)([script, *argv])


@pytest.mark.parametrize("script", SCRIPTS)
def test_required_flags_are_enough(script):
    argv = [f"--{name}=x" for name in required_names(script)]
    define_flags(script)([script, *argv])
