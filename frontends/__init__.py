"""Generated kernels as ops of other libraries; each frontend is imported separately."""

from importlib.util import find_spec


def require(library: str) -> None:
    """Raise ModuleNotFoundError, with the extra to install, if `library` is missing."""
    if find_spec(library) is None:
        missing = f"{library} is not installed, which baracuda.frontends.{library} needs"
        raise ModuleNotFoundError(f"{missing}; pip install 'baracuda-gen[{library}]'", name=library)
