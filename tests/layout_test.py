"""Holds the layout: who may import whom, who may load TensorFlow, and where
flags are read. The rules are those of docs/architecture.md."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Library module -> the modules of ours that it may import. file_io may be
# imported by every module that opens a path, so it is not repeated here.
LIBRARY = {
    "file_io": set(),
    "tokenization": set(),
    "features": set(),
    "metrics": set(),
    "bert_config": set(),
    "kernels": set(),
    "token_layout": {"kernels"},
    "modeling": {"bert_config", "kernels", "token_layout"},
    "heads": {"modeling", "kernels", "token_layout"},
    "losses": set(),
    "optimization": set(),
    "checkpoint": set(),
    "input_pipeline": set(),
    "common_flags": set(),
    "progress": set(),
    "training": {"checkpoint", "progress"},
    "hugging_face": {"bert_config", "tokenization"},
    "classifier_examples": set(),
    "classifier_features": {"classifier_examples", "features"},
    "classifier_results": set(),
    "glue": {"classifier_examples"},
    "squad": {"features", "tokenization"},
    "ner": {"features"},
}
# A script may import every library module and no other script.
SCRIPTS = {
    "create_pretraining_data",
    "run_pretraining",
    "run_classifier",
    "run_squad",
    "run_ner",
    "extract_features",
    "convert_checkpoint",
    "create_vocab",
    "extend_vocab",
}
TEXT_MODULES = {
    "tokenization",
    "features",
    "metrics",
    "classifier_examples",
    "classifier_features",
    "classifier_results",
    "glue",
    "squad",
    "ner",
}
FRAMEWORKS = {"tensorflow", "keras", "tensorboard"}

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def root_modules() -> list[str]:
    return sorted(p.stem for p in ROOT.glob("*.py") if p.stem != "setup")


def is_main_guard(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def walk(
    node: ast.AST, scopes: tuple[str, ...] = ()
) -> Iterator[tuple[ast.AST, tuple[str, ...]]]:
    """Yields each node with the functions it stands in, outermost first.

    The body under `if __name__ == "__main__"` counts as a function of that
    name. Defaults and decorators run when the function is defined, so they
    belong to the scope outside it.
    """
    yield node, scopes
    if isinstance(node, FUNCTIONS):
        inside, name = node.body, node.name
    elif is_main_guard(node):
        inside, name = node.body, "__main__"
    else:
        inside, name = [], ""
    for child in ast.iter_child_nodes(node):
        is_inside = any(child is statement for statement in inside)
        yield from walk(child, (*scopes, name) if is_inside else scopes)


def imported_names(node: ast.AST) -> list[str]:
    """Returns the dotted names that one import statement or call brings in."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        return [f"{module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call):
        function = ast.unparse(node.func).rpartition(".")[2]
        if function in ("import_module", "__import__") and node.args:
            # A computed name has no literal to look at; it is refused as "?".
            argument = node.args[0]
            is_literal = isinstance(argument, ast.Constant)
            return [str(argument.value) if is_literal else "?"]
    return []


def violations(module: str, source: str) -> list[str]:
    """Returns what is wrong with `source` as the text of `module`.py.

    Each is one line "module.py:line: what it does".
    """
    found = []

    def report(node, message):
        found.append(f"{module}.py:{node.lineno}: {message}")

    is_script = module in SCRIPTS
    allowed = set(LIBRARY) if is_script else LIBRARY[module] | {"file_io"}
    for node, scopes in walk(ast.parse(source)):
        for name in imported_names(node):
            top = name.partition(".")[0]
            if top in ("", "?"):
                report(node, f"imports {name}: name the module in full")
            if top in set(LIBRARY) | SCRIPTS and top not in allowed:
                report(node, f"imports {top}")
            if top in FRAMEWORKS:
                if module in TEXT_MODULES:
                    report(node, f"a text module imports {top}")
                elif module == "file_io" and not scopes:
                    report(node, f"imports {top} outside a function")
            if name in ("absl.flags", "absl.app"):
                if not is_script and module != "common_flags":
                    report(node, f"a library module imports {name}")

        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called == "print" and not is_script:
                report(node, "a library module prints: use absl.logging")
            if "DEFINE_" in called or called.endswith("define_flags"):
                if not any(
                    scope == "__main__" or scope.startswith("define_")
                    for scope in scopes
                ):
                    report(node, f"{called}() outside define_flags()")

        is_flags = (isinstance(node, ast.Name) and node.id == "FLAGS") or (
            isinstance(node, ast.Attribute) and node.attr == "FLAGS"
        )
        if is_flags:
            in_main = bool(scopes) and scopes[0] in ("main", "__main__")
            if not (is_script and in_main):
                report(node, "FLAGS outside main()")
    # `flags.FLAGS` may stand twice in a line; one report is enough.
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("module", root_modules())
def test_module_keeps_the_rules(module):
    assert module in LIBRARY or module in SCRIPTS, (
        f"{module}.py is not in the layout: add it to docs/architecture.md "
        "and to this test"
    )
    source = (ROOT / f"{module}.py").read_text(encoding="utf-8")
    assert violations(module, source) == []


def test_setup_packages_every_module_at_the_root():
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    listed = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "PY_MODULES"
    ]
    assert listed == [root_modules()]


@pytest.mark.parametrize("module", sorted(set(LIBRARY) & set(root_modules())))
def test_library_module_has_its_test_file(module):
    assert (ROOT / "tests" / f"{module}_test.py").is_file()


def test_text_modules_do_not_load_tensorflow():
    modules = sorted((TEXT_MODULES | {"file_io"}) & set(root_modules()))
    program = (
        f"import sys, {', '.join(modules)}\n"
        f"print(sorted({FRAMEWORKS} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.stdout, result.stderr) == ("[]\n", "")


@pytest.mark.parametrize(
    ("module", "source", "wanted"),
    [
        ("features", "import tokenization", "imports tokenization"),
        ("modeling", "from file_io import open_file\nimport losses", "losses"),
        ("training", "def f():\n  import modeling", "imports modeling"),
        ("glue", "import run_classifier", "imports run_classifier"),
        ("classifier_examples", "import glue", "imports glue"),
        ("hugging_face", "import checkpoint", "imports checkpoint"),
        ("run_classifier", "import run_squad", "imports run_squad"),
        ("losses", "from . import modeling", "name the module in full"),
        ("glue", "import_module('ner')", "imports ner"),
        ("glue", "importlib.import_module(name)", "name the module in full"),
        ("metrics", "import numpy, keras", "text module imports keras"),
        ("glue", "def f():\n  import tensorflow as tf", "imports tensorflow"),
        ("file_io", "import tensorflow as tf", "outside a function"),
        ("training", "from absl import flags, logging", "absl.flags"),
        ("training", "def f():\n  print('loss')", "prints"),
        ("run_classifier", "FLAGS = flags.FLAGS", "FLAGS outside main"),
        ("run_classifier", "def f(v=flags.FLAGS): pass", "FLAGS outside main"),
        (
            "run_classifier",
            "def f():\n  return FLAGS.data_dir",
            "FLAGS outside",
        ),
        ("common_flags", "def main():\n  flags.FLAGS.x", "FLAGS outside main"),
        ("run_classifier", "flags.DEFINE_string('x', '', '')", "DEFINE_string"),
        ("run_classifier", "define_flags(values)", "define_flags() outside"),
        (
            "run_classifier",
            "if __name__ == '__main__':\n  pass\nelse:\n  define_flags(v)",
            "define_flags() outside",
        ),
    ],
)
def test_the_checker_catches(module, source, wanted):
    (message,) = violations(module, source)
    assert wanted in message


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("training", "import file_io\nfrom checkpoint import read"),
        ("file_io", "def f():\n  import tensorflow as tf"),
        ("modeling", "import keras\nimport tensorflow as tf"),
        ("run_classifier", "import glue, training\nprint('done')"),
        (
            "run_classifier",
            "def define_flags(values):\n"
            "  flags.DEFINE_string('x', '', '', flag_values=values)\n"
            "def main(argv):\n"
            "  print(flags.FLAGS.x)\n"
            "if __name__ == '__main__':\n"
            "  define_flags(flags.FLAGS)\n"
            "  app.run(main)\n",
        ),
    ],
)
def test_the_checker_allows(module, source):
    assert violations(module, source) == []
