import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gaflow
from gaflow import cli
from gaflow.cli import main
from gaflow.cli.starting import starts_command
from gaflow.errors import Argument
from gaflow.models import loading
from tests.support.models import SENTENCE, bert

pytestmark = pytest.mark.slow

BLOCKED = "import sys; sys.modules[{!r}] = None; from gaflow.cli import main; sys.exit(main({!r}))"
ONE_BY_ONE = """
import json, os, sys
from gaflow.cli import main
for settings in json.loads(sys.argv[1]):
    os.environ.update(settings)
    assert main(sys.argv[2:]) == 0
    sys.stdout.write("\\0")
"""
IMPORTED = "import sys; from gaflow.cli import main; [main(a) for a in {!r}]; sys.stderr.write(str([*sys.modules]))"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    model, tokenizer = bert()
    path = tmp_path_factory.mktemp("models") / "tiny"
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "GAFLOW_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**cli._QUIET_ENVIRONMENT, "HF_HUB_OFFLINE": "1"}.items():
        monkeypatch.setenv(name, value)


def python(*args, **settings):
    return subprocess.run([sys.executable, *args], capture_output=True, timeout=300, **settings)


def assert_fails(capfd, args, *parts):
    """`args` end with exit code 2 and one line on stderr that has all of `parts`; nothing on stdout."""
    assert main([str(a) for a in args]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("gaflow: ")
    assert err.endswith("\n")
    assert len(err.splitlines()) == 1
    assert "\x1b" not in err
    for part in parts:
        assert part in err
    return err


def test_a_process_prints_one_json_document_and_nothing_else(folder):
    settings = {**os.environ, "OMP_NUM_THREADS": "1"}  # the last digits depend on the number of threads
    done = python("-m", "gaflow", "explain", SENTENCE, "--model", str(folder), "--json", env=settings)
    assert done.returncode == 0
    assert done.stderr == b""
    document = json.loads(done.stdout)
    expected = gaflow.explain(SENTENCE, model=folder).to_dict()
    assert document["certificate"].pop("seconds") > 0
    expected["certificate"].pop("seconds")
    assert document == json.loads(json.dumps(expected))


def test_a_pipe_gets_no_escape_codes_and_a_terminal_gets_colours(folder):
    settings = [{}, {"FORCE_COLOR": "1", "COLORTERM": "truecolor", "TERM": "xterm"}, {"NO_COLOR": "1"}]
    done = python(
        "-c", ONE_BY_ONE, json.dumps(settings), "explain", SENTENCE, "--model", str(folder), "--method", "agf"
    )
    assert (done.returncode, done.stderr) == (0, b"")
    piped, forced, plain, _ = done.stdout.split(b"\0")
    assert b"\x1b" not in piped
    assert re.search(rb"\x1b\[38;2;[\d;]+;48;2;[\d;]+msmart\x1b\[0m", forced)
    assert not re.search(rb"\x1b\[[\d;]*[34]8;", plain)
    assert all(b"smart" in output for output in (piped, forced, plain))


@pytest.mark.parametrize(
    ("missing", "extra", "arguments"),
    [
        ("pyarrow", "data", ["attribute", "reviews.parquet", "-o", "why"]),
        ("captum", "baselines", ["explain", "a text", "--method", "ig"]),
        ("matplotlib", "plot", ["explain", "a text", "--svg", "why.svg"]),
    ],
)
def test_one_line_names_the_extra_that_is_missing_and_the_command_that_installs_it(tmp_path, missing, extra, arguments):
    (tmp_path / "reviews.parquet").touch()
    done = python("-c", BLOCKED.format(missing, arguments), cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == b""
    (message,) = done.stderr.decode().splitlines()
    assert re.match(f"gaflow: .*{missing}", message)
    assert f"run: pip install 'gaflow[{extra}]'" in message


def test_what_needs_no_model_does_not_import_transformers():
    done = python("-c", IMPORTED.format([["--help"], ["--version"], ["methods"], ["explain", "--help"]]))
    assert done.returncode == 0
    assert b"agf" in done.stdout
    assert b"'torch'" in done.stderr
    assert b"'transformers'" not in done.stderr


def test_a_reader_that_goes_away_is_no_error():
    line = f"{sys.executable} -m gaflow methods --json | {sys.executable} -c pass"
    done = subprocess.run(line, shell=True, capture_output=True, timeout=300)
    assert done.stderr == b""


def test_unknown_usage_is_one_line(capfd):
    assert_fails(capfd, ["explan"], "explan", "gaflow --help")
    assert_fails(capfd, ["explain"], "TEXT", "gaflow explain --help")
    assert_fails(capfd, ["explain", "a", "b"], "(b)")
    assert_fails(capfd, ["explain", "-5 degrees"], "-5", "goes after '--'")
    assert_fails(capfd, ["explain", "a", "good", "film"], "(good film)", "quotes")
    assert_fails(capfd, ["explain", "a", "--top", "many"], "--top", "'many'")
    assert_fails(capfd, ["explain", "a", "--top", "-1"], "--top", "-1")
    assert_fails(capfd, ["--nope"], "--nope")


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_text_is_refused(capfd, folder, text):
    assert_fails(capfd, ["explain", text, "--model", folder], "text is")


@pytest.mark.parametrize(
    ("args", "parts", "worded"),
    [
        (["explain", "a"], ["pass ", Argument("truncation", True), " to cut it"], "pass --truncation to cut it"),
        (["bench", "a"], ["use ", Argument("batch_size", 2), " or less"], "use --batch-size 2 or less"),
        (["bench", "a"], [Argument("label_names"), " is wrong"], "--label-names is wrong"),
        (["bench", "a"], ["no column 'label_names' and no 'seed=1'"], "no column 'label_names' and no 'seed=1'"),
        (["bench", "a"], [Argument("replacements"), " is empty"], "--replacement is empty"),
        (["explain", "a"], [Argument("sample"), " must be 1"], "sample must be 1"),
        (["explain", "a"], [Argument("text[1]"), " is empty"], "--pair is empty"),
        (["--version"], [Argument("label_names"), " is wrong"], "label_names is wrong"),
    ],
)
def test_arguments_of_python_are_named_as_options_of_the_command(capfd, monkeypatch, args, parts, worded):
    def fail(args):
        raise gaflow.GaflowError(*parts)

    monkeypatch.setattr("gaflow.cli.commands.run", fail)
    assert_fails(capfd, args, f"gaflow: {worded}\n")


def test_bad_arguments_are_named(capfd, folder):
    assert_fails(capfd, ["explain", "a", "--model", folder, "--method", "agff"], "'agff'", "agf")
    assert_fails(capfd, ["explain", "a", "--model", folder, "--target", "nice"], "'nice'", "'negative'")
    assert_fails(capfd, ["explain", "a", "--model", folder, "--target", "7"], "'7'")
    assert_fails(capfd, ["explain", "a", "--model", folder, "--target", "positive minus nice"], "positive minus nice")
    assert_fails(capfd, ["explain", "a", "--model", folder, "--device", "warp"], "device 'warp'")
    assert_fails(capfd, ["explain", "a", "--model", folder, "--device", "meta"], "device 'meta'")
    assert_fails(capfd, ["explain", "good " * 100, "--model", folder], "102 tokens", "takes 64", "--truncation")
    assert_fails(capfd, ["explain", "a\udcffb", "--model", folder], "surrogate at 1")


def test_models_that_are_not_there_are_named(capfd, tmp_path):
    assert_fails(capfd, ["explain", "a", "--model", "/no/such/model"], "'/no/such/model'")
    assert_fails(capfd, ["explain", "a", "--model", ""], "''")
    assert_fails(capfd, ["explain", "a", "--model", tmp_path], str(tmp_path))
    assert_fails(capfd, ["info", "/no/such/model"], "'/no/such/model'")
    assert_fails(capfd, ["info", tmp_path], str(tmp_path))
    assert_fails(capfd, ["info", "no-one/no-such-model"], "'no-one/no-such-model'")


def test_broken_models_are_one_line(capfd, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert", "num_hidden_layers": "many"}')
    assert_fails(capfd, ["explain", "a", "--model", tmp_path], str(tmp_path), "num_hidden_layers")
    (tmp_path / "config.json").write_text("not json")
    assert_fails(capfd, ["explain", "a", "--model", tmp_path], str(tmp_path))


def test_without_an_embedded_model_the_option_is_asked_for(capfd, monkeypatch, tmp_path):
    # Only a package that was built without its assets lacks the model: nothing that a caller could choose.
    monkeypatch.setattr(loading, "_ASSETS", tmp_path)
    err = assert_fails(capfd, ["explain", "a"], "--model")
    assert "model=" not in err
    assert_fails(capfd, ["info"], "no embedded")


def test_messages_with_hostile_input_stay_harmless(capfd, folder):
    assert_fails(capfd, ["explain", "a", "--model", folder, "--target", "\x1b[31m[red]\nx"], "\\x1b[31m[red]")
    assert_fails(capfd, ["explain", "a", "--method", "\x9b2J" * 1000])
    assert_fails(capfd, ["\x1b]0;x\x07"], "No such command")
    assert_fails(capfd, ["explain", "a", "--model", "/\x1b[2J"], "\\x1b[2J")


def raising(error):
    def make(*args, **settings):
        raise error

    return make


@pytest.mark.parametrize("reasons", [(), ("three files are kept",)])
def test_an_interrupt_ends_with_130_and_one_line_that_says_what_is_kept(capfd, monkeypatch, reasons):
    monkeypatch.setattr("gaflow.cli.explain.Explainer", raising(KeyboardInterrupt(*reasons)))
    assert main(["explain", "a"]) == 130
    out, err = capfd.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line != "gaflow: stopped"
    assert all(part in line for part in reasons)


def test_a_fault_of_our_own_is_one_line_and_exit_code_1(capfd, monkeypatch):
    monkeypatch.setattr("gaflow.cli.explain.Explainer", raising(RuntimeError("first\nsecond")))
    assert main(["explain", "a"]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert re.fullmatch("gaflow: RuntimeError: first second .*GAFLOW_DEBUG=1.*\n", err)


@pytest.mark.parametrize("error", [RuntimeError("deep"), ValueError("deep")])
def test_debugging_shows_where_it_happened(monkeypatch, error):
    monkeypatch.setattr("gaflow.cli.explain.Explainer", raising(error))
    monkeypatch.setenv("GAFLOW_DEBUG", "1")
    with pytest.raises(type(error), match="deep"):
        main(["explain", "a"])


def test_warnings_of_libraries_stay_off_the_terminal(capfd, monkeypatch, recwarn):
    import warnings

    def warn(*args, **settings):
        warnings.warn("look at me", stacklevel=1)
        raise ValueError("done")

    monkeypatch.setattr(sys, "warnoptions", [])
    monkeypatch.setattr("gaflow.cli.explain.Explainer", warn)
    assert assert_fails(capfd, ["explain", "a"]) == "gaflow: done\n"
    assert not recwarn.list


@pytest.mark.parametrize("command", ["script", "module"])
def test_an_interrupt_while_libraries_are_imported_is_one_line(tmp_path, command):
    interrupting = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    (tmp_path / "torch.py").write_text(interrupting)  # in place of the library
    script = tmp_path / "gaflow"
    script.write_text("import sys\nfrom gaflow.cli import program\nsys.exit(program())\n")
    args = [str(script)] if command == "script" else ["-m", "gaflow"]
    path = os.pathsep.join([str(tmp_path), str(Path(gaflow.__file__).parents[1])])
    result = python(*args, "--version", env=os.environ | {"PYTHONPATH": path}, cwd=tmp_path, text=True)
    assert result.returncode == 130
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("gaflow: stopped")


def test_only_the_command_decides_what_an_interrupt_says():
    assert starts_command(["/usr/bin/gaflow", "explain"], ["python", "/usr/bin/gaflow", "explain"])
    assert starts_command(["-m", "explain"], ["python", "-m", "gaflow", "explain"])
    assert not starts_command(["-m", "gaflow"], ["python", "-m", "pytest", "gaflow"])
    assert not starts_command(["train.py", "gaflow"], ["python", "train.py", "gaflow"])
    assert not starts_command(["-m", "train"], ["python", "-um", "train"])
    assert not starts_command([], [])
