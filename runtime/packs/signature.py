"""Who packed it: where BARACUDA_PACK_KEY names a public key, manifests must be signed with its private one."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import PackError
from ..values import one_line
from .layout import PUBLIC_KEY, SIGNATURE

_KEYS = "an Ed25519 key in PEM, as 'openssl genpkey -algorithm ed25519' writes it"
_INSTALL = "needs the package cryptography; pip install 'baracuda-gen[sign]'"


def verify(folder: Path, manifest: bytes) -> None:
    """Raise PackError unless the manifest of `folder` is signed, where the variable asks for it."""
    if not (name := os.environ.get(PUBLIC_KEY)):
        return
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError:
        raise PackError(f"{PUBLIC_KEY} {_INSTALL}") from None
    try:
        key = load_pem_public_key(Path(name).read_bytes())
    except (OSError, ValueError) as error:
        raise PackError(f"{PUBLIC_KEY}: {one_line(name)} cannot be read ({one_line(error)}); name {_KEYS}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise PackError(f"{PUBLIC_KEY}: {one_line(name)} holds another kind of key; name {_KEYS}")
    pack = f"pack {one_line(folder)}"
    try:
        key.verify((folder / SIGNATURE).read_bytes(), manifest)
    except OSError:
        raise PackError(f"{pack}: it is not signed, and {PUBLIC_KEY} is set; sign it, or unset that") from None
    except InvalidSignature:
        raise PackError(f"{pack}: it is not signed with the key {one_line(name)}; ask whom it is from") from None


def signature(manifest: bytes, private_key: Path) -> bytes:
    """The signature of a manifest. Raises PackError for anything but a private key; the same bytes each time."""
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError:
        raise PackError(f"signing {_INSTALL}") from None
    try:
        key = load_pem_private_key(private_key.read_bytes(), password=None)
    except (ValueError, TypeError) as error:
        raise PackError(f"{one_line(private_key)} cannot be read ({one_line(error)}); name {_KEYS}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise PackError(f"{one_line(private_key)} holds another kind of key; name {_KEYS}")
    made: bytes = key.sign(manifest)
    return made
