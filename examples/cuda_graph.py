"""A step of forward and backward, checked once and started again and again: on a GPU as a CUDA graph.

Nothing is allocated and nothing is checked again; new data goes into the same arrays.
"""

from importlib import import_module

from baracuda.generated import RMSNormBackwardDescriptor, RMSNormBackwardPlan, RMSNormDescriptor, RMSNormPlan
from baracuda.runtime import default_device

device = default_device().name
xp = import_module("numpy" if device == "host" else "cupy")
problem = {"input_shape": (64, 256), "norm_axes_mask": 0b10, "has_gamma": True, "element": "f32"}
x, dy, y, dx = (xp.zeros((64, 256), xp.float32) for _ in range(4))
gamma, dgamma, rms = xp.ones(256, xp.float32), xp.zeros(256, xp.float32), xp.zeros((64, 1), xp.float32)

forward = RMSNormPlan.select(RMSNormDescriptor(**problem, eps=1e-6)).prepare(device)
backward = RMSNormBackwardPlan.select(RMSNormBackwardDescriptor(**problem)).prepare(device)
workspace = xp.empty(backward.workspace_bytes, xp.uint8)
arrays = {"x": x, "gamma": gamma, "rms": rms}
if device == "host":
    calls = [forward.bind(**arrays, y=y), backward.bind(**arrays, dy=dy, dx=dx, dgamma=dgamma, workspace=workspace)]
else:
    stream = xp.cuda.Stream(non_blocking=True)
    xp.cuda.Device().synchronize()  # the arrays were made on another stream
    with stream:
        stream.begin_capture()
        forward.run(**arrays, y=y)
        backward.run(**arrays, dy=dy, dx=dx, dgamma=dgamma, workspace=workspace)
        calls = [stream.end_capture().launch]

for seed in range(3):
    x[:], dy[:] = xp.random.default_rng(seed).standard_normal((2, 64, 256), xp.float32)
    for call in calls:
        call()
    assert xp.allclose(dgamma, (dy * y).sum(axis=0), atol=1e-3)  # y is x / rms, for gamma is 1
print(forward.sku, backward.sku, sep="\n")
