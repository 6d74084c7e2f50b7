"""Invariant: where a public key is named, only packs that are signed with its private key are run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from baracuda.cli.main import main
from baracuda.cli.packs.problems import Problem
from baracuda.codegen.project import PACKAGE
from baracuda.runtime.compile.packed import packed_cubin
from baracuda.runtime.errors import PackError
from baracuda.runtime.packs.found import _of_variable
from baracuda.runtime.packs.layout import MANIFEST, PATHS, PUBLIC_KEY, SIGNATURE, facts_digest
from baracuda.runtime.packs.pack import Pack

keys = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
other_keys = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.x25519")
forms = pytest.importorskip("cryptography.hazmat.primitives.serialization")
PROBLEM = "SoftmaxPlan input_shape=4,64 softmax_axis=-1 element=f32 select.layouts=packed"


def write_keys(folder: Path, name: str, kind: type) -> tuple[Path, Path]:
    """The files of a new private key and of its public one."""
    key = kind.generate()  # type: ignore[attr-defined]
    pem, plain = forms.Encoding.PEM, forms.NoEncryption()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(pem, forms.PrivateFormat.PKCS8, plain))
    public.write_bytes(key.public_key().public_bytes(pem, forms.PublicFormat.SubjectPublicKeyInfo))
    return private, public


def packed(folder: Path, *options: object) -> Path:
    command = ["pack", "--problem", PROBLEM, "--arch", "sm_90", "--out", str(folder), *map(str, options)]
    result = CliRunner().invoke(main, command, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return folder


def test_only_what_the_key_signed_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pack without a signature, of another key or of another manifest is refused; without a key named, none is."""
    (private, public), (_, other) = (write_keys(tmp_path, name, keys.Ed25519PrivateKey) for name in ("own", "other"))
    signed, plain = packed(tmp_path / "signed", "--sign", private), packed(tmp_path / "plain")
    again = packed(tmp_path / "again", "--sign", private)
    assert (signed / SIGNATURE).read_bytes() == (again / SIGNATURE).read_bytes()
    assert (signed / MANIFEST).read_bytes() == (plain / MANIFEST).read_bytes()
    Pack(plain)
    monkeypatch.setenv(PUBLIC_KEY, str(public))
    assert len(Pack(signed)) > 0
    with pytest.raises(PackError, match=re.escape(f"pack {plain}: it is not signed, and {PUBLIC_KEY} is set; ")):
        Pack(plain)
    text = (again / MANIFEST).read_text()
    changed = text.replace('"Apache-2.0"', '"MIT"')
    digest = facts_digest(json.loads(changed))  # as somebody would do who wants it to be taken for the original
    (again / MANIFEST).write_text(changed.replace(json.loads(text)["digest"], digest))
    with pytest.raises(PackError, match=re.escape(f"pack {again}: it is not signed with the key {public}; ")):
        Pack(again)
    monkeypatch.setenv(PUBLIC_KEY, str(other))
    with pytest.raises(PackError, match=re.escape(f"pack {signed}: it is not signed with the key {other}; ")):
        Pack(signed)


def test_a_key_that_is_named_later_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packs that this process has opened before are opened again."""
    _, public = write_keys(tmp_path, "own", keys.Ed25519PrivateKey)
    (kernel, *_) = Problem.read(PROBLEM, PACKAGE).wanted("sm_90")
    monkeypatch.setenv(PATHS, str(packed(tmp_path / "plain")))
    _of_variable.cache_clear()
    assert packed_cubin(kernel.source, "sm_90") is not None
    monkeypatch.setenv(PUBLIC_KEY, str(public))
    with pytest.raises(PackError, match="it is not signed"):
        packed_cubin(kernel.source, "sm_90")


def test_files_that_are_no_keys_are_said_to_be_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of text, of another algorithm, of the other half, and of nothing."""
    private, public = write_keys(tmp_path, "own", keys.Ed25519PrivateKey)
    (text := tmp_path / "text").write_text("no key")
    other = write_keys(tmp_path, "x25519", other_keys.X25519PrivateKey)
    plain = packed(tmp_path / "plain")
    for name in (text, other[1], private, tmp_path / "none"):
        monkeypatch.setenv(PUBLIC_KEY, str(name))
        with pytest.raises(PackError, match=re.escape(f"{PUBLIC_KEY}: {name}") + ".*; name an Ed25519 key in PEM"):
            Pack(plain)
    monkeypatch.delenv(PUBLIC_KEY)
    command = ["pack", "--problem", PROBLEM, "--arch", "sm_90", "--out", str(tmp_path / "new"), "--sign"]
    for name in (text, other[0], public, tmp_path / "none"):
        result = CliRunner().invoke(main, [*command, str(name)], catch_exceptions=False)
        assert result.exit_code == 1 and str(name) in result.stderr and not (tmp_path / "new").exists()
