"""Every op of the catalogue, and its gradient, against a formula of torch in float64.

With BARACUDA_TEST_SAMPLE=WORD, of three of them.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from typing import Any

import catalogue
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import baracuda.frontends.torch as bt
from baracuda.ops import functions

Tensor = torch.Tensor
Formula = Callable[..., Tensor]
OPS = torch.ops.catalogue
FORMULAS: dict[str, list[tuple[tuple[Tensor, ...], frozenset[int], dict[str, Any], Formula]]] = {}
torch.manual_seed(0)
bt.register(catalogue, "catalogue")


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def part(*shape: int) -> Tensor:
    return torch.rand(shape, dtype=torch.float64)


def ints(most: int, *shape: int) -> Tensor:
    return torch.randint(0, most, shape)


def against(op: str, *inputs: Tensor, fixed: tuple[int, ...] = (), **fields: Any) -> Callable[[Formula], Formula]:
    """Compares `op` of the inputs with a function of these; those at the places `fixed` have no gradient."""

    def listed(formula: Formula) -> Formula:
        FORMULAS.setdefault(op, []).append((inputs, frozenset(fixed), fields, formula))
        return formula

    return listed


def along(values: Tensor, axis: int, rank: int) -> Tensor:
    """A vector as an array that varies along one axis."""
    return values.reshape([-1 if i == axis else 1 for i in range(rank)])


@against("frn", normal(2, 3, 4, 5), normal(3), normal(3), normal(3), eps=1e-3)
def _(x: Tensor, gamma: Tensor, beta: Tensor, tau: Tensor) -> Tensor:
    gamma, beta, tau = (along(v, 1, 4) for v in (gamma, beta, tau))
    return torch.maximum(x * torch.rsqrt(x.square().mean((2, 3), keepdim=True) + 1e-3) * gamma + beta, tau)


@against("grn", normal(2, 4, 5, 7), normal(7), normal(7))
def _(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    length = torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True)
    return x + gamma * (x * (length / (length.mean(-1, keepdim=True) + 1e-6))) + beta


@against("weight_standardize", normal(6, 3, 2, 5), normal(6))
def _(w: Tensor, gain: Tensor) -> Tensor:
    flat = F.batch_norm(w.reshape(1, 6, -1), None, None, training=True, momentum=0.0, eps=1e-6)
    return flat.reshape(w.shape) * along(gain, 0, 4)


@against("dyt", normal(2, 5, 7), normal(), normal(7), normal(7))
def _(x: Tensor, alpha: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    return gamma * torch.tanh(alpha * x) + beta


@against("poly_norm", normal(2, 5, 7), normal(3), normal())
def _(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    powers = [p * torch.rsqrt(p.square().mean(-1, keepdim=True) + 1e-6) for p in (x**3, x**2, x)]
    return w[0] * powers[0] + w[1] * powers[1] + w[2] * powers[2] + b


@against("jsd", torch.log_softmax(normal(5, 11), -1), torch.log_softmax(normal(5, 11), -1), beta=0.1)
def _(log_q: Tensor, log_p: Tensor) -> Tensor:
    log_m = (0.1 * log_p.exp() + 0.9 * log_q.exp()).log()
    of_p, of_q = (F.kl_div(log_m, of, reduction="batchmean", log_target=True) for of in (log_p, log_q))
    return 0.1 * of_p + 0.9 * of_q


@against("tvd", part(5, 11), part(5, 11))
def _(p: Tensor, q: Tensor) -> Tensor:
    return 0.5 * (p - q).abs().sum(-1)


@against("dpo_loss", 20 * normal(9), 20 * normal(9), 20 * normal(9), 20 * normal(9), fixed=(2, 3), beta=0.1)
def _(chosen: Tensor, rejected: Tensor, ref_chosen: Tensor, ref_rejected: Tensor) -> Tensor:
    return -F.logsigmoid(0.1 * ((chosen - ref_chosen) - (rejected - ref_rejected))).mean()


MASK = torch.rand(5, 11) < 0.7
MASK[2] = False
GRPO = {"eps_low": 0.2, "eps_high": 0.28, "beta": 0.1}


@against("grpo_loss", *(-part(5, 11) for _ in range(3)), normal(5), MASK, fixed=(1, 2, 3), **GRPO)
def _(logp: Tensor, old: Tensor, ref: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    ratio, gap = torch.exp(logp - old), ref - logp
    gain = torch.min(ratio * advantages[:, None], ratio.clamp(0.8, 1.28) * advantages[:, None])
    each = 0.1 * (gap.exp() - gap - 1) - gain
    return (each * mask).sum(-1) / mask.sum(-1).clamp(min=1)


@against("asymmetric_loss", 4 * normal(5, 11), (part(5, 11) < 0.3).double(), fixed=(1,), gamma_neg=3.0, gamma_pos=2.0)
def _(x: Tensor, target: Tensor) -> Tensor:
    yes = torch.sigmoid(x)
    no = (1 - yes + 0.05).clamp(max=1)
    logs = target * yes.clamp(min=1e-8).log() + (1 - target) * no.clamp(min=1e-8).log()
    return -(logs * (1 - yes * target - no * (1 - target)) ** (2.0 * target + 3.0 * (1 - target))).sum()


@against("standardize", normal(3, 4, 5, 6), axes_mask=0b1010)
def _(x: Tensor) -> Tensor:
    return (x - x.mean((1, 3), keepdim=True)) * torch.rsqrt(x.var((1, 3), keepdim=True, unbiased=False) + 1e-5)


ALLOWED = torch.rand(6, 5, 7) < 0.6
ALLOWED[5] = False


@against("softmax_where", normal(6, 5, 7), ALLOWED, axis=1)
def _(x: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, torch.where(mask, x, -1e300).softmax(1), 0.0)


@against("glu_axis", normal(3, 10, 4, 2))
def _(x: Tensor) -> Tensor:
    return F.glu(x, dim=1)


@against("max_pool2d", normal(2, 3, 9, 12) - 3, kernel=3, stride=2, padding=1)
def _(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 3, 2, 1)


@against("upsample_bilinear", normal(2, 3, 4, 5), factor=3)
def _(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=3, mode="bilinear", align_corners=False)


@against("unfold", normal(2, 3, 9, 12), kernel=3, stride=2, padding=1)
def _(x: Tensor) -> Tensor:
    return F.unfold(x, 3, 1, 1, 2)


@against("space_to_depth", normal(2, 5, 6, 12), block=3)
def _(x: Tensor) -> Tensor:
    return x.view(2, 5, 2, 3, 4, 3).permute(0, 3, 5, 1, 2, 4).reshape(2, 45, 2, 4)


@against("blur_pool", normal(2, 3, 9, 12))
def _(x: Tensor) -> Tensor:
    taps = torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64) / 4
    weight = (taps[:, None] * taps)[None, None].repeat(3, 1, 1, 1)
    return F.conv2d(F.pad(x, (1,) * 4, mode="reflect"), weight, stride=2, groups=3)


@against("swin_bias", normal(2, 3, 4, 5), normal(11, 3), ints(11, 4, 5))
def _(scores: Tensor, table: Tensor, place: Tensor) -> Tensor:
    return scores + table[place].permute(2, 0, 1)


@against("local_response_norm", normal(2, 7, 6), span=4, alpha=0.3, beta=0.6, k=1.5)
def _(x: Tensor) -> Tensor:
    return F.local_response_norm(x, 4, 0.3, 0.6, 1.5)


@against("adain", normal(2, 3, 10), normal(2, 3), normal(2, 3), eps=1e-3)
def _(content: Tensor, deviation: Tensor, mean: Tensor) -> Tensor:
    return F.instance_norm(content, eps=1e-3) * deviation[..., None] + mean[..., None]


@against("focal_loss", normal(5, 7), (part(5, 7) < 0.4).double(), fixed=(1,), alpha=0.25, gamma=1.7)
def _(logits: Tensor, targets: Tensor) -> Tensor:
    p = torch.sigmoid(logits)
    away = (1 - p * targets - (1 - p) * (1 - targets)) ** 1.7
    each = F.binary_cross_entropy_with_logits(logits, targets, reduction="none") * away
    return ((0.25 * targets + 0.75 * (1 - targets)) * each).mean()


@against("arcface_margin", 1.9 * part(5, 7) - 0.95, ints(7, 5), margin=0.4, scale=30.0)
def _(cosines: Tensor, target: Tensor) -> Tensor:
    return 30.0 * torch.cos(torch.acos(cosines) + 0.4 * F.one_hot(target, 7).double())


@against("cosine_loss", normal(9, 6), normal(9, 6), (2 * ints(2, 9) - 1).double(), fixed=(2,), margin=0.1)
def _(x: Tensor, other: Tensor, target: Tensor) -> Tensor:
    return F.cosine_embedding_loss(x, other, target, margin=0.1, reduction="none")


KEPT = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)


@against("layer_scale_residual", normal(3, 4, 5, 7), normal(3, 4, 5, 7), normal(7), KEPT, fixed=(3,), keep=0.8)
def _(x: Tensor, branch: Tensor, gamma: Tensor, mask: Tensor) -> Tensor:
    return x + along(mask, 0, 4) / 0.8 * gamma * branch


@against("se_gate", normal(3, 4, 5, 7), 3 * normal(3, 4))
def _(x: Tensor, s: Tensor) -> Tensor:
    return x * (s / 6 + 0.5).clamp(0, 1)[..., None, None]


@against("embedding_bag_mean", ints(11, 5, 4) - 1, normal(10, 6))
def _(ids: Tensor, table: Tensor) -> Tensor:
    rows = torch.cat([table, torch.zeros(1, 6, dtype=torch.float64)])[ids]
    return rows.sum(1) / (ids >= 0).sum(1).clamp(min=1)[:, None]


@against("rope_at", normal(5, 3, 8), ints(11, 5), part(11, 4), part(11, 4), fixed=(2, 3))
def _(x: Tensor, positions: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    (a, b), c, s = x.chunk(2, -1), cosines[positions][:, None], sines[positions][:, None]
    return torch.cat([a * c - b * s, b * c + a * s], -1)


@against("index_select_scale_add", normal(6, 5), normal(4, 5), ints(4, 6), normal(5))
def _(x: Tensor, src: Tensor, at: Tensor, scale: Tensor) -> Tensor:
    return x + scale * src[at]


@against("bce_smooth", normal(12, 5), part(12, 5), part(5) + 0.5, fixed=(1, 2), smoothing=0.1)
def _(x: Tensor, target: Tensor, pos_weight: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(x, target * 0.9 + 0.05, pos_weight=pos_weight)


@against("soft_target_cross_entropy", normal(6, 5), part(6, 5), fixed=(1,))
def _(x: Tensor, target: Tensor) -> Tensor:
    return (-target * F.log_softmax(x, -1)).sum(-1).mean()


def philox(seed: int, offset: int, element: int) -> int:
    """The number of an element (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, 2011)."""
    ones = 0xFFFFFFFF
    c, k = [element // 4 & ones, element // 4 >> 32, offset & ones, offset >> 32], [seed & ones, seed >> 32]
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(b >> 32) ^ c[1] ^ k[0], b & ones, (a >> 32) ^ c[3] ^ k[1], a & ones]
        k = [(k[0] + 0x9E3779B9) & ones, (k[1] + 0xBB67AE85) & ones]
    return c[element % 4]


SEED = torch.tensor(123456789012), torch.tensor(77)


@against("gumbel_softmax", normal(2, 6, 5), *SEED, tau=0.7)
def _(x: Tensor, seed: Tensor, offset: Tensor) -> Tensor:
    numbers = [max((philox(int(seed), int(offset), i) >> 8) * 2.0**-24, 2.0**-25) for i in range(x.numel())]
    noise = -torch.log(-torch.log(torch.tensor(numbers, dtype=torch.float64)))
    return torch.softmax((x + noise.reshape(x.shape)) / 0.7, -1)


@against("evonorm_s0", normal(3, 6, 4, 5), normal(6), normal(6), normal(6), groups=2)
def _(x: Tensor, v: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    variance = x.reshape(3, 2, -1).var(-1, unbiased=False).repeat_interleave(3, 1)[..., None, None]
    v, gamma, beta = (along(of, 1, 4) for of in (v, gamma, beta))
    return x * torch.sigmoid(v * x) / (variance + 1e-5).sqrt() * gamma + beta


KINDS: dict[str, Formula] = {
    "squareplus": lambda x: 0.5 * (x + torch.sqrt(x * x + 2.5)),
    "hard_silu": lambda x: x * ((x + 3) / 6).clamp(0, 1),
    "log_sigmoid": F.logsigmoid,
    "celu": lambda x: torch.where(x > 0, x, 0.7 * torch.expm1(x.clamp(max=0) / 0.7)),
    "sparse_plus": lambda x: torch.where(x <= -1, 0.0, torch.where(x >= 1, x, 0.25 * (x + 1) ** 2)),
    "sparse_sigmoid": lambda x: ((x + 1) / 2).clamp(0, 1),
}
for kind, function in KINDS.items():
    against("squareplus_and_friends", 2 * normal(9, 50), kind=kind, b=2.5, alpha=0.7)(function)


@against("z_loss_lse", normal(6, 9), weight=0.01)
def _(x: Tensor) -> Tensor:
    return torch.logsumexp(x, -1)


@against("multi_margin_loss", normal(6, 9), ints(9, 6), margin=0.3)
def _(x: Tensor, target: Tensor) -> Tensor:
    return F.multi_margin_loss(x, target, p=1, margin=0.3, reduction="none")


@against("avg_pool1d", normal(2, 3, 17), kernel=3, stride=2, padding=1)
def _(x: Tensor) -> Tensor:
    return F.avg_pool1d(x, 3, 2, 1, count_include_pad=False)


@against("qk_norm_rope", normal(5, 3, 8), normal(8), ints(11, 5), part(11, 4), part(11, 4), fixed=(3, 4))
def _(x: Tensor, gamma: Tensor, positions: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    a, b = F.rms_norm(x, (8,), gamma, 1e-6).chunk(2, -1)
    c, s = cosines[positions][:, None], sines[positions][:, None]
    return torch.cat([a * c - b * s, b * c + a * s], -1)


@against("gated_group_rms_norm", normal(5, 3, 8), normal(5, 3, 8), normal(24))
def _(x: Tensor, z: Tensor, gamma: Tensor) -> Tensor:
    return F.rms_norm(x * F.silu(z), (8,), None, 1e-5) * gamma.view(3, 8)


@against("distillation_loss", normal(5, 7), normal(5, 7), fixed=(1,), temperature=2.0)
def _(student: Tensor, teacher: Tensor) -> Tensor:
    return F.kl_div(F.log_softmax(student / 2, -1), F.softmax(teacher / 2, -1), reduction="batchmean") * 4


@against("router_z_and_balance_loss", normal(13, 6))
def _(x: Tensor) -> Tensor:
    return torch.logsumexp(x, -1).square().mean()


@against("t5_bias", normal(2, 3, 50, 40), normal(32, 3))
def _(scores: Tensor, table: Tensor) -> Tensor:
    away = torch.arange(40)[None] - torch.arange(50)[:, None]
    far = 8 + ((away.abs().double() / 8).log() / math.log(16) * 8).clamp(min=0).long().clamp(max=7)
    bucket = 16 * (away > 0) + torch.where(away.abs() < 8, away.abs(), far)
    return scores + table[bucket].permute(2, 0, 1)


@against("sigmoid_gated_heads", normal(5, 3, 8), normal(5, 3))
def _(x: Tensor, gate: Tensor) -> Tensor:
    return x * torch.sigmoid(gate)[..., None]


@against("l2_attention_pool", normal(4, 9), normal(4, 9, 6))
def _(scores: Tensor, x: Tensor) -> Tensor:
    return torch.einsum("bt,btd->bd", scores.softmax(-1), x)


@against("cumulative_mean", normal(3, 11, 5))
def _(x: Tensor) -> Tensor:
    return x.cumsum(1) / torch.arange(1, 12, dtype=torch.float64)[:, None]


@against("gemma_rms_norm", normal(2, 3, 7), normal(7))
def _(x: Tensor, gamma: Tensor) -> Tensor:
    return F.rms_norm(x, (7,), 1 + gamma, 1e-6)


@against("token_shift", normal(2, 5, 7), normal(7))
def _(x: Tensor, mu: Tensor) -> Tensor:
    return x * mu + F.pad(x, (0, 0, 1, 0))[:, :-1] * (1 - mu)


@against("depthwise_conv1d", normal(2, 3, 9), normal(3, 4), padding=2)
def _(x: Tensor, w: Tensor) -> Tensor:
    return F.conv1d(x, w[:, None], padding=2, groups=3)


@against("dice_loss", normal(2, 3, 4, 5), (part(2, 3, 4, 5) < 0.5).double(), fixed=(1,))
def _(logits: Tensor, target: Tensor) -> Tensor:
    p = logits.sigmoid()
    both, each = (p * target).sum((2, 3)), p.sum((2, 3)) + target.sum((2, 3))
    return (1 - (2 * both + 1) / (each + 1)).mean()


CORNERS = part(2, 50, 2) * 2
BOXES = torch.cat([CORNERS, CORNERS + part(2, 50, 2) * 2], -1)


@against("giou_loss", *BOXES, fixed=(1,))
def _(a: Tensor, b: Tensor) -> Tensor:
    inner = torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])
    outer = torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])
    both = inner.clamp(min=0).prod(1)
    union = sum((of[:, 2:] - of[:, :2]).prod(1) for of in (a, b)) - both
    return 1 - both / (union + 1e-7) + (outer.prod(1) - union) / (outer.prod(1) + 1e-7)


@against("softcap", 60 * normal(2, 3, 7), normal(2, 3, 7), fixed=(1,), cap=50.0)
def _(x: Tensor, mask: Tensor) -> Tensor:
    return 50 * torch.tanh(x / 50) + mask


@against("nearest_upsample_concat", normal(2, 3, 8, 10), normal(2, 4, 4, 5))
def _(skip: Tensor, x: Tensor) -> Tensor:
    return torch.cat([skip, F.interpolate(x, scale_factor=2, mode="nearest")], 1)


def sample(ops: list[str]) -> list[str]:
    word = os.environ.get("BARACUDA_TEST_SAMPLE")
    return ops if word is None else sorted(random.Random(word).sample(ops, 3))


@pytest.mark.parametrize("op", sample(sorted(FORMULAS)))
def test_values_and_gradients(op: str) -> None:
    for inputs, fixed, fields, formula in FORMULAS[op]:
        with_slope = [i for i, x in enumerate(inputs) if x.is_floating_point() and i not in fixed]
        ours, theirs = ([x.clone().requires_grad_(i in with_slope) for i, x in enumerate(inputs)] for _ in range(2))
        found, due = getattr(OPS, op)(*ours, **fields), formula(*theirs)
        found = found[0] if isinstance(found, tuple) else found
        torch.testing.assert_close(found, due, rtol=1e-9, atol=1e-9)
        slope = torch.randn_like(due)
        found.backward(slope)
        due.backward(slope)
        for i in with_slope:
            torch.testing.assert_close(ours[i].grad, theirs[i].grad, rtol=1e-9, atol=1e-9)


def test_norms_and_steps_of_lists() -> None:
    shapes, rng, ops = [(3, 5), (7,), (0,), (2, 3, 4), ()], np.random.default_rng(0), functions(catalogue)
    p, g, m = ([np.asarray(rng.standard_normal(shape)) for shape in shapes] for _ in range(3))
    v, norm = [np.asarray(a * a) for a in m], np.sqrt(sum((a * a).sum() for a in g))
    found = ops["global_norm_and_max"](g)
    np.testing.assert_allclose(found, (norm, max(abs(a).max() for a in g if a.size)), rtol=1e-12)
    due = []
    for a, b, c, d in zip(p, g, m, v, strict=True):
        step = b * min(1.0, 1.0 / (norm + 1e-6))
        first, second = 0.9 * c + 0.1 * step, 0.999 * d + 0.001 * step * step
        due.append(a - 0.01 * first / (1 - 0.9**3) / (np.sqrt(second / (1 - 0.999**3)) + 1e-8))
    ops["adam_clipped"](p, g, m, v, np.array(0.01), np.array(3))
    for a, b in zip(p, due, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    slow = [np.zeros_like(a) for a in p]
    ops["lookahead"](slow, p, alpha=0.5)
    for a, b, c in zip(slow, p, due, strict=True):
        np.testing.assert_allclose((a, b), (c / 2, c / 2), rtol=1e-9, atol=1e-12)


def test_factors_of_a_matrix_in_place() -> None:
    g, r, c = normal(6, 9).numpy(), part(6).numpy() + 0.5, part(9).numpy() + 0.5
    rows, cols = (0.9 * of + 0.1 * (g * g + 1e-30).mean(axis) for of, axis in ((r, 1), (c, 0)))
    update, _, _ = functions(catalogue)["adafactor_factors"](g, r, c, decay=0.9, r_new=r, c_new=c)
    np.testing.assert_allclose(update, g / np.sqrt(rows[:, None] * cols / rows.mean()), rtol=1e-9)
    np.testing.assert_allclose(r, rows, rtol=1e-12)
    np.testing.assert_allclose(c, cols, rtol=1e-12)


def test_a_quantised_norm_of_a_sum_in_place() -> None:
    x, residual, gamma = (normal(*shape).float().numpy() for shape in ((6, 50), (6, 50), (50,)))
    x[3] = residual[3] = 0
    total = torch.tensor(x.astype(float) + residual)
    z = total / torch.sqrt((total * total).mean(-1, keepdim=True) + 1e-6) * torch.tensor(gamma.astype(float))
    top = z.abs().amax(-1, keepdim=True)
    scale = torch.where(top == 0, 1.0, top / 448)
    quantised, scales = functions(catalogue)["rms_norm_add_quant"](x, residual, gamma)[:2]
    np.testing.assert_allclose(residual, total.numpy(), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(scales, scale.numpy(), rtol=1e-5)
    wanted, got = (z / scale).to(torch.float8_e4m3fn).double().numpy(), np.asarray(quantised).astype(np.float64)
    np.testing.assert_allclose(got, wanted, rtol=0.13, atol=2.0**-9)
    assert (got == wanted).mean() > 0.99
