"""Opens, lists and replaces files on local disk and, via TensorFlow, gs://.

Local paths never touch TensorFlow; a path with a scheme (`gs://bucket/x`,
`hdfs://...`) goes through `tf.io.gfile`, imported on first use. All text is
strict UTF-8 and newlines are never translated.
"""

from __future__ import annotations

import contextlib
import glob as local_glob
import os
import re
import secrets
from collections.abc import Iterator
from typing import IO, Any

PathLike = str | os.PathLike[str]

# "gs://", "s3://", "hdfs://"; a Windows drive ("C:\\x") has no "//".
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")


def open_file(path: PathLike, mode: str = "r") -> IO[Any]:
    """Opens `path`; text modes are strict UTF-8 with untranslated newlines.

    Raises:
      FileNotFoundError: there is no such file (or no such directory, when
        writing).
      OSError: the file cannot be opened for another reason.
    """
    path = os.fspath(path)
    writing = any(letter in mode for letter in "wax")
    if _is_remote(path):
        # GFile opens at the first read or write, and would report a missing
        # file late and as a TensorFlow error.
        with _os_errors(path, writing):
            file = _gfile().GFile(path, mode)
            if writing:
                file.write(b"" if "b" in mode else "")
            elif not exists(path):
                raise _not_found(path, writing)
        return file
    try:
        if "b" in mode:
            return open(path, mode)
        return open(path, mode, encoding="utf-8", newline="\n")
    except FileNotFoundError:
        raise _not_found(path, writing) from None


def exists(path: PathLike) -> bool:
    """Returns whether `path` is a file or a directory."""
    path = os.fspath(path)
    if _is_remote(path):
        with _os_errors(path):
            return _gfile().exists(path)
    return os.path.exists(path)


def is_dir(path: PathLike) -> bool:
    """Returns whether `path` is a directory."""
    path = os.fspath(path)
    if _is_remote(path):
        with _os_errors(path):
            return _gfile().isdir(path)
    return os.path.isdir(path)


def glob(pattern: PathLike) -> list[str]:
    """Returns the sorted paths that match a shell pattern, perhaps none."""
    pattern = os.fspath(pattern)
    if _is_remote(pattern):
        with _os_errors(pattern):
            return sorted(_gfile().glob(pattern))
    return sorted(local_glob.glob(pattern))


def list_dir(path: PathLike) -> list[str]:
    """Returns the sorted names (not paths) of a directory's entries."""
    path = os.fspath(path)
    if _is_remote(path):
        with _os_errors(path):
            # Object stores mark directories with a trailing slash.
            return sorted(name.rstrip("/") for name in _gfile().listdir(path))
    return sorted(os.listdir(path))


def make_dirs(path: PathLike) -> None:
    """Creates a directory and its parents; an existing one is fine."""
    path = os.fspath(path)
    if _is_remote(path):
        with _os_errors(path):
            _gfile().makedirs(path)
    else:
        os.makedirs(path, exist_ok=True)


def remove(path: PathLike) -> None:
    """Removes one file."""
    path = os.fspath(path)
    if _is_remote(path):
        with _os_errors(path):
            _gfile().remove(path)
    else:
        os.remove(path)


def rename(src: PathLike, dst: PathLike) -> None:
    """Renames a file, replacing `dst`; atomic on a local disk."""
    src, dst = os.fspath(src), os.fspath(dst)
    if _is_remote(src) or _is_remote(dst):
        with _os_errors(src):
            _gfile().rename(src, dst, overwrite=True)
    else:
        os.replace(src, dst)


def read_lines(path: PathLike) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 file without their final newline.

    As released, where `tf.gfile` read them: only "\n" ends a line (not U+2028
    or a form feed), every "\r" is dropped ("a\rb" is "ab"), and a byte order
    mark stays in the first line.

    Raises:
      FileNotFoundError: there is no such file.
      UnicodeDecodeError: (a ValueError) a line is not UTF-8; the message names
        file and line.
    """
    with open_file(path, "rb") as reader:
        for number, line in enumerate(reader, start=1):
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                error.reason = (
                    f"{error.reason} ({os.fspath(path)}, line {number}: the "
                    "file must be UTF-8; convert it, for example with iconv)"
                )
                raise
            yield text.removesuffix("\n").replace("\r", "")


@contextlib.contextmanager
def atomic_writer(path: PathLike, mode: str = "w") -> Iterator[IO[Any]]:
    """Yields a file that replaces `path` only if the block ends normally.

    An interrupted run leaves the old file or the new one, never a part: the
    text is written beside `path`, flushed to disk and renamed into place.
    A path that exists but is no regular file (`/dev/stdout`, a pipe) cannot be
    replaced and is written directly.

    Args:
      path: the file to write; its directory must exist.
      mode: "w" for text (UTF-8) or "wb" for bytes.

    Raises:
      ValueError: `mode` is something else.
      OSError: the file cannot be written.
    """
    path = os.fspath(path)
    if mode not in ("w", "wb"):
        raise ValueError(
            f"atomic_writer got mode {mode!r}, wanted 'w' or 'wb'; use "
            "open_file to append or to read"
        )
    remote = _is_remote(path)
    if not remote:
        path = os.path.realpath(path)  # Write through a link, keep the link.
        if os.path.exists(path) and not os.path.isfile(path):
            with open_file(path, mode) as writer:
                yield writer
            return
        if not os.path.isdir(os.path.dirname(path)):
            raise _not_found(path, writing=True)
    # Not tempfile: its files are readable by their owner alone.
    temporary = f"{path}.tmp-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        with open_file(temporary, mode) as writer:
            yield writer
            if remote:
                with _os_errors(path, writing=True):
                    writer.flush()
            else:
                writer.flush()
                os.fsync(writer.fileno())
        rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            remove(temporary)
        raise
    if not remote:
        _sync_directory(os.path.dirname(path))


def _is_remote(path: str) -> bool:
    """Returns whether the path has a scheme such as gs://."""
    return _SCHEME.match(path) is not None


def _gfile() -> Any:
    """Returns `tf.io.gfile`, importing TensorFlow at the first remote path."""
    import tensorflow as tf

    return tf.io.gfile


@contextlib.contextmanager
def _os_errors(path: str, writing: bool = False) -> Iterator[None]:
    """Turns TensorFlow's file errors, which are no OSError, into OSErrors."""
    import tensorflow as tf

    try:
        yield
    except tf.errors.NotFoundError:
        raise _not_found(path, writing) from None
    except tf.errors.OpError as error:
        raise OSError(f"{path}: {error.message}") from error


def _not_found(path: str, writing: bool) -> FileNotFoundError:
    if writing:
        return FileNotFoundError(
            f"cannot write {path!r}: its directory does not exist; create it "
            "or correct the path"
        )
    return FileNotFoundError(
        f"no such file: {path!r}; check the path (relative ones start at "
        f"{os.getcwd()!r})"
    )


def _sync_directory(path: str) -> None:
    """Makes a rename survive a power cut, where directories can be synced."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
