"""Records torch's random numbers on a GPU: some values of torch.rand, and which elements its dropout keeps.

    python tests/recorded/torch_random.py > tests/recorded/torch_random.json
"""

from __future__ import annotations

import json
from typing import Any

import torch
import torch.nn.functional as F

SEED, P = 1234567, 0.25
RAND = (1000, 70001, 3000017)
DROPOUT = (
    *((1000, torch.float32), (1000, torch.bfloat16), (70001, torch.float32)),
    *((3000016, torch.float16), (3000016, torch.float32)),
)


def seeded() -> int:
    """The offset of a generator that has been used."""
    torch.manual_seed(SEED)
    torch.rand(5, device="cuda")
    offset: int = torch.cuda.default_generators[0].get_offset()
    return offset


def main() -> None:
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    found |= {"multiprocessors": torch.cuda.get_device_properties(0).multi_processor_count, "seed": SEED}
    found |= {"rand": [], "dropout": []}
    for count in RAND:
        offset, step = seeded(), max(1, count // 40)
        bits = torch.rand(count, device="cuda").cpu()[::step].view(torch.int32).tolist()
        found["rand"].append({"count": count, "offset": offset, "step": step, "bits": bits})
    for count, dtype in DROPOUT:
        offset, step = seeded(), max(1, count // 96)
        kept = (F.dropout(torch.ones(count, device="cuda", dtype=dtype), P) != 0).cpu()[::step]
        row = {"count": count, "dtype": str(dtype)[6:], "p": P, "offset": offset, "step": step}
        found["dropout"].append(row | {"kept": "".join("01"[int(value)] for value in kept)})
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
