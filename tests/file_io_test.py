import os
import stat
import subprocess
import sys

import pytest

import file_io


def write_bytes(path, data):
    path.write_bytes(data)
    return str(path)


@pytest.mark.parametrize(
    "data, lines",
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\nb", ["a", "b"]),
        (b"a\n\nb\n", ["a", "", "b"]),
        (b"a\r\nb\rc\r\r\n\r", ["a", "bc", ""]),
        (b"\xef\xbb\xbfa\n", ["\ufeffa"]),
        ("x\u2028y\x0cz\x85\n".encode(), ["x\u2028y\x0cz\x85"]),
    ],
)
def test_reads_lines_as_the_release_did(tmp_path, data, lines):
    path = write_bytes(tmp_path / "text.txt", data)
    assert list(file_io.read_lines(path)) == lines


def test_names_file_and_line_of_a_bad_byte(tmp_path):
    path = write_bytes(tmp_path / "text.txt", b"good\nb\xffd\n")
    lines = file_io.read_lines(path)
    assert next(lines) == "good"
    with pytest.raises(ValueError, match=r"text\.txt, line 2: .*UTF-8"):
        next(lines)


@pytest.mark.parametrize("mode", ["r", "rb"])
def test_names_a_missing_file(tmp_path, mode):
    path = str(tmp_path / "absent.txt")
    with pytest.raises(FileNotFoundError, match=r"no such file: .*absent\.txt"):
        file_io.open_file(path, mode)
    with pytest.raises(FileNotFoundError, match=r"absent\.txt"):
        next(file_io.read_lines(path))


def test_names_a_missing_directory_when_writing(tmp_path):
    path = str(tmp_path / "absent" / "out.txt")
    with pytest.raises(FileNotFoundError, match="directory does not exist"):
        file_io.open_file(path, "w")
    with (
        pytest.raises(FileNotFoundError, match="directory does not exist"),
        file_io.atomic_writer(path),
    ):
        pass


def test_text_is_utf8_and_newlines_are_not_translated(tmp_path):
    path = tmp_path / "text.txt"
    with file_io.open_file(path, "w") as writer:
        writer.write("é\r\nb\rc\n")
    assert path.read_bytes() == b"\xc3\xa9\r\nb\rc\n"
    with file_io.open_file(path) as reader:
        assert list(reader) == ["é\r\n", "b\rc\n"]


def test_lists_and_globs_are_sorted(tmp_path):
    for name in ("b.txt", "a.txt", "c.dat"):
        (tmp_path / name).touch()
    assert file_io.list_dir(tmp_path) == ["a.txt", "b.txt", "c.dat"]
    assert file_io.glob(tmp_path / "*.txt") == [
        str(tmp_path / "a.txt"),
        str(tmp_path / "b.txt"),
    ]
    assert file_io.glob(tmp_path / "*.none") == []


def test_directories_renames_and_removals(tmp_path):
    nested = tmp_path / "x" / "y"
    file_io.make_dirs(nested)
    file_io.make_dirs(nested)
    assert file_io.is_dir(nested)
    old, new = nested / "old", nested / "new"
    old.write_text("old")
    new.write_text("new")
    file_io.rename(old, new)
    assert not file_io.exists(old)
    assert new.read_text() == "old"
    file_io.remove(new)
    assert file_io.list_dir(nested) == []


@pytest.mark.parametrize("mode, content", [("w", "new"), ("wb", b"new")])
def test_atomic_writer_replaces_the_file_at_the_end(tmp_path, mode, content):
    path = tmp_path / "out.txt"
    path.write_text("old")
    with file_io.atomic_writer(path, mode) as writer:
        writer.write(content)
        writer.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["out.txt"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_atomic_writer_keeps_the_old_file_on_an_error(tmp_path, error):
    path = tmp_path / "out.txt"
    path.write_text("old")
    with pytest.raises(error), file_io.atomic_writer(path) as writer:
        writer.write("half")
        raise error
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.txt"]


def test_atomic_writer_has_ordinary_permissions_and_keeps_links(tmp_path):
    plain, target, link = (tmp_path / name for name in ("p", "t", "l"))
    plain.touch()
    link.symlink_to(target)
    with file_io.atomic_writer(link) as writer:
        writer.write("x")
    assert link.is_symlink()
    assert target.read_text() == "x"
    assert stat.S_IMODE(target.stat().st_mode) == stat.S_IMODE(
        plain.stat().st_mode
    )


def test_atomic_writer_writes_devices_directly():
    with file_io.atomic_writer("/dev/null") as writer:
        writer.write("x")
    assert not os.path.isfile("/dev/null")


def test_atomic_writer_refuses_other_modes(tmp_path):
    with (
        pytest.raises(ValueError, match="got mode 'a'"),
        file_io.atomic_writer(tmp_path / "x", "a"),
    ):
        pass


def test_local_paths_do_not_import_tensorflow(tmp_path):
    code = (
        "import sys, file_io\n"
        f"path = {str(tmp_path / 'x')!r}\n"
        "with file_io.atomic_writer(path) as writer: writer.write('a')\n"
        "assert list(file_io.read_lines(path)) == ['a']\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    root = os.path.dirname(os.path.abspath(file_io.__file__))
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)


def test_paths_with_a_scheme_go_through_tensorflow(tmp_path):
    pytest.importorskip("tensorflow")
    root = f"file://{tmp_path}/remote"  # TensorFlow's name for a local path.
    file_io.make_dirs(root)
    path = f"{root}/a.txt"
    with file_io.atomic_writer(path) as writer:
        writer.write("é\r\nb\n")
    assert (tmp_path / "remote/a.txt").read_bytes() == "é\r\nb\n".encode()
    assert list(file_io.read_lines(path)) == ["é", "b"]
    assert file_io.list_dir(root) == ["a.txt"]
    assert [os.path.basename(p) for p in file_io.glob(f"{root}/*")] == ["a.txt"]
    file_io.rename(path, f"{root}/b.txt")
    assert file_io.exists(f"{root}/b.txt") and not file_io.exists(path)
    file_io.remove(f"{root}/b.txt")
    assert file_io.is_dir(root)


def test_remote_errors_are_os_errors(tmp_path):
    pytest.importorskip("tensorflow")
    root = f"file://{tmp_path}/absent"
    with pytest.raises(FileNotFoundError, match="no such file"):
        file_io.open_file(f"{root}/a.txt")
    with pytest.raises(OSError):
        file_io.remove(f"{root}/a.txt")
    with pytest.raises(OSError):
        file_io.list_dir(root)
    with pytest.raises(OSError), file_io.atomic_writer(f"{root}/a.txt") as w:
        w.write("x")
