"""What the host device makes of sources that do not compile, and what it needs of a compiler."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda.runtime.device import KernelSource
from baracuda.runtime.errors import CompileError
from baracuda.runtime.host import HostDevice

ARGS = "struct Args { long long n; };\n"


def refused(device: HostDevice, text: str, symbol: str = "k") -> str:
    with pytest.raises(CompileError) as caught:
        device.load(KernelSource("norm/broken.cu", text, symbol))
    return str(caught.value)


def test_errors_name_the_generated_file(any_device):
    """A compile error names file, line and the first errors of the source as it was generated."""
    message = refused(
        any_device, ARGS + 'extern "C" __global__ void k(const Args args) {\n  int x = missing(args.n);\n}\n'
    )
    headline, first = message.splitlines()[:2]
    assert headline == "'norm/broken.cu' does not compile for the host (kernel 'k'):"
    assert first.startswith("norm/broken.cu:3: ")
    assert "'missing'" in first


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("void k(const Args a) { __activemask(); }", "means nothing on the host device: pass a mask"),
        ("void k(const int a) {}", "every member of the parameter struct is an 8-byte word"),
        ("void k(const Args a, int b) {}", "a kernel takes exactly one parameter and returns void"),
        ("void other(const Args a) {}", "'k'"),
    ],
)
def test_what_a_kernel_may_not_be(any_device, text, said):
    """An entry point the host device cannot run is a compile error that says what it should be."""
    assert said in refused(any_device, f'{ARGS}extern "C" __global__ {text}\n')


def test_undefined_function(any_device):
    """A function that is declared and never defined is named when the library is loaded."""
    text = ARGS + 'void never(int);\nextern "C" __global__ void k(const Args a) { never(1); }\n'
    message = refused(any_device, text)
    assert message.startswith("cannot load 'k' of 'norm/broken.cu': ")
    assert "never" in message


def test_unknown_ptx(device):
    """With the headers' text for GPUs, what the table of instructions lacks is named."""
    device.gpu_text = "sm_90"
    text = ARGS + 'extern "C" __global__ void k(Args) { int t; asm("mov.s7 %0, 1;" : "=r"(t)); }'
    with pytest.raises(CompileError, match=r"the host device has no PTX instruction mov_s7"):
        device.load(KernelSource("k.cu", text, "k"))


def test_too_much_static_shared_memory(any_device):
    """More than 48 KiB of static shared memory is refused, as by the assembler of a GPU; 48 KiB are not."""
    text = ARGS + (
        'extern "C" __global__ void k(const Args a) { __shared__ volatile char s[BYTES]; s[a.n] = 1; }'
    )
    any_device.load(KernelSource("norm/broken.cu", text, "k", ("BYTES=49152",)))
    with pytest.raises(CompileError, match=r"501\d\d bytes of static shared memory, a block has 49152"):
        any_device.load(KernelSource("norm/broken.cu", text, "k", ("BYTES=50160",)))


def test_other_entry_points_are_not_compiled(any_device, run):
    """A file's other entry points may be costly or unfit for the host: only the one asked for is built."""
    text = ARGS + 'extern "C" void no_such_symbol();\n'
    text += 'extern "C" __global__ void unused(const Args a) { no_such_symbol(); }\n'
    text += 'extern "C" __global__ void k(const Args a) { *reinterpret_cast<long long*>(a.n) = 3; }\n'
    out = any_device.empty(1, np.int64)
    run(any_device, KernelSource("norm/two.cu", text, "k"), 1, 1, out)
    assert out[0] == 3


def test_device_headers_see_the_host(any_device, run):
    """Headers find the include folder of the package and BARACUDA_HOST defined."""
    text = ARGS + "#if BARACUDA_HOST != 1 || !__has_include(<baracuda/element.cuh>)\n#error\n#endif\n"
    text += 'extern "C" __global__ void k(const Args a) { *reinterpret_cast<long long*>(a.n) = 1; }\n'
    out = any_device.empty(1, np.int64)
    run(any_device, KernelSource("norm/header.cu", text, "k"), 1, 1, out)
    assert out[0] == 1


def test_no_compiler(monkeypatch, tmp_path):
    """Without a compiler the error says what to install; a wrong BARACUDA_HOST_CXX is named."""
    monkeypatch.delenv("BARACUDA_HOST_CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompileError, match=r"no c\+\+ compiler on PATH; install g\+\+ or clang\+\+"):
        HostDevice()
    monkeypatch.setenv("BARACUDA_HOST_CXX", "no-such-compiler -m64")
    with pytest.raises(CompileError, match="'no-such-compiler' does not run"):
        HostDevice()


def test_what_is_not_initialised_is_conspicuous(device, run):
    """A sum that a kernel forgets to clear is not zero by luck."""
    text = """
struct Args { float* y; long long n; };
extern "C" __global__ void k(const Args args) {
  float sum[4];
  for (long long i = 0; i < args.n; ++i) sum[i] += 1;
  args.y[0] = sum[0];
}
"""
    y = device.empty(1, np.float32)
    run(device, KernelSource("kernels/sum.cu", text, "k"), 1, 1, y, 3)
    assert y[0] < -1e38
