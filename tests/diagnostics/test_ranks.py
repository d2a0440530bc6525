"""The checks that run in ranks, in sessions of two gloo ranks, with each fault planted."""

from __future__ import annotations

import sys

import pytest

from session.running import CPU, said

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ranks run on Linux only")

COMMON = """
    import pytest, torch
    from torch import distributed as dist, nn
    from torch.nn import functional as F
    from torch.nn.parallel import DistributedDataParallel as DDP
    from pytest_remotegpu.diagnostics import gradients_synchronised, loss_scale

    pytestmark = pytest.mark.gpu(2, launcher="torchrun")

    def mlp(seed=0):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 4))

    def batch(rank, sizes=(3, 5), seed=0):
        numbers = torch.Generator().manual_seed(10 * seed + rank)
        size = sizes[rank]
        return (torch.randn(size, 8, generator=numbers),
                torch.randint(0, 4, (size,), generator=numbers))

    def count(batch): return len(batch[1])

    def mean(model, batch): return F.cross_entropy(model(batch[0]), batch[1])

    def weighted(model, batch):
        total = torch.tensor(float(count(batch)))
        dist.all_reduce(total)
        return mean(model, batch) * count(batch) * dist.get_world_size() / total

    def codes(verdict):
        print(verdict)
        return verdict.codes
"""

GRADIENTS = """
    @pytest.mark.parametrize("seed", range(10))
    def test_clean(rank_group, rank, seed):
        verdict = gradients_synchronised(
            DDP(mlp(seed)), batch(rank, seed=seed), loss=weighted, whole=mean)
        assert codes(verdict) == ()
        assert verdict.value("largest difference") < 1e-5

    def test_equal_sizes_need_no_weights(rank_group, rank):
        model = DDP(mlp())
        assert codes(gradients_synchronised(model, batch(rank, (4, 4)), loss=mean)) == ()

    def exchange(divide=2, skip=()):
        def backward(model, batch):
            weighted(model, batch).backward()
            for name, parameter in model.named_parameters():
                if name not in skip:
                    dist.all_reduce(parameter.grad)
                    parameter.grad /= divide
        return backward

    def check(rank, model=None, data=None, **more):
        return gradients_synchronised(model or mlp(), data or batch(rank),
                                      loss=weighted, whole=mean, **more)

    def test_exchange_of_ones_own(rank_group, rank):
        assert codes(check(rank, backward=exchange())) == ()

    def test_dropped_all_reduce(rank_group, rank):
        verdict = gradients_synchronised(mlp(), batch(rank, (4, 4)), loss=mean)
        assert codes(verdict) == ("dropped-all-reduce",)
        assert len(verdict.findings[0].where) == 4

    def test_all_reduce_that_misses_one(rank_group, rank):
        verdict = gradients_synchronised(mlp(), batch(rank, (4, 4)), loss=mean,
                                         backward=exchange(skip=("0.bias",)))
        assert codes(verdict) == ("dropped-all-reduce",)
        assert verdict.findings[0].where == ("0.bias",)

    def test_no_sync(rank_group, rank):
        def backward(model, batch):
            with model.no_sync():
                mean(model, batch).backward()
        verdict = gradients_synchronised(DDP(mlp()), batch(rank), loss=mean, backward=backward)
        assert codes(verdict) == ("dropped-all-reduce",)

    def test_weighted_and_dropped(rank_group, rank):
        verdict = gradients_synchronised(mlp(), batch(rank), loss=weighted, whole=mean)
        assert codes(verdict) == ("dropped-all-reduce",)

    def test_sum(rank_group, rank):
        assert codes(check(rank, backward=exchange(divide=1))) == ("sum-instead-of-mean",)

    def test_divided_twice(rank_group, rank):
        assert codes(check(rank, backward=exchange(divide=4))) == ("divided-twice",)

    def test_mean_of_means(rank_group, rank):
        verdict = gradients_synchronised(DDP(mlp()), batch(rank), loss=mean)
        assert codes(verdict) == ("mean-of-means",)

    def test_something_else(rank_group, rank):
        def backward(model, batch):
            exchange()(model, batch)
            nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        assert codes(check(rank, backward=backward)) == ("gradient-differs",)

    def test_same_data(rank_group, rank):
        verdict = check(rank, data=batch(0))
        assert codes(verdict)[0] == "same-data"
        assert verdict.findings[0].where == ("rank 0", "rank 1")

    def test_different_weights(rank_group, rank):
        verdict = check(rank, model=mlp(seed=rank), backward=exchange())
        assert codes(verdict)[0] == "different-weights"

    def test_model_is_left_alone(rank_group, rank):
        model = DDP(mlp())
        before = [parameter.clone() for parameter in model.parameters()]
        weighted(model, batch(rank)).backward()
        held = [parameter.grad for parameter in model.parameters()]
        values = [gradient.clone() for gradient in held]
        numbers = torch.get_rng_state()
        check(rank, model=model)
        assert torch.equal(numbers, torch.get_rng_state())
        for parameter, old, gradient, value in zip(model.parameters(), before, held, values):
            assert torch.equal(parameter, old)
            assert torch.equal(parameter.grad, value)
        assert model.training and model.module[2].p == 0.5
        assert codes(check(rank, model=model)) == ()

    def test_other_reference(rank_group, rank):
        with pytest.raises(ValueError, match="the reference has other parameters"):
            check(rank, reference=nn.Linear(8, 4))

    @pytest.mark.gpu(1, launcher="torchrun")
    def test_one_rank(rank_group, rank):
        assert codes(check(rank, data=batch(0)))[0] == "one-rank"
"""

SHARDED = """
    def sharded():
        from torch.distributed.fsdp import fully_shard
        model = mlp()
        return fully_shard(model)

    def test_against_a_reference(rank_group, rank):
        data = batch(rank)
        verdict = gradients_synchronised(
            sharded(), data, loss=weighted, whole=mean, reference=mlp())
        assert codes(verdict) == ()
        verdict = gradients_synchronised(sharded(), data, loss=mean, reference=mlp())
        assert codes(verdict) == ("mean-of-means",)

    def test_without_one(rank_group, rank):
        with pytest.raises(ValueError, match="the model is sharded"):
            gradients_synchronised(sharded(), batch(rank), loss=mean)
"""

LOSS_SCALE = """
    def scale(rank, loss, data=None, model=None, **more):
        return loss_scale(model or mlp(), data or batch(rank), loss=loss, whole=mean,
                          count=count, **more)

    @pytest.mark.parametrize("seed", range(10))
    def test_clean(rank_group, rank, seed):
        assert codes(scale(rank, weighted, batch(rank, seed=seed), DDP(mlp(seed)))) == ()

    def test_summed(rank_group, rank):
        half = lambda model, batch: weighted(model, batch) / 2
        assert codes(scale(rank, half, reduce="sum")) == ()
        assert codes(scale(rank, half)) == ("divided-twice",)

    def test_mean_of_means(rank_group, rank):
        assert codes(scale(rank, mean)) == ("mean-of-means",)

    def test_multiplied(rank_group, rank):
        double = lambda model, batch: weighted(model, batch) * 2
        assert codes(scale(rank, double)) == ("multiplied-by-world-size",)

    def test_wrong_divisor(rank_group, rank):
        padded = lambda model, batch: weighted(model, batch) * 8 / 12
        verdict = scale(rank, padded)
        assert codes(verdict) == ("wrong-divisor",)
        assert "0.666667 times it" in " ".join(str(verdict).split())

    def test_same_data(rank_group, rank):
        verdict = scale(rank, weighted, data=batch(0))
        assert codes(verdict) == ("same-data", "equal-counts")
        assert not verdict

    def test_joining(rank_group, rank):
        data = torch.ones(2, 3 + rank), torch.tensor([1, 2])
        with pytest.raises(ValueError, match="give join="):
            scale(rank, weighted, data=data, model=nn.Linear(3 + rank, 4))

    def test_no_group():
        with pytest.raises(ValueError, match="there is no process group"):
            scale(0, mean)
"""

OVERFIT = """
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from pytest_remotegpu.diagnostics import overfit

    def plain(seed=0):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))

    def sharded(policy=MixedPrecisionPolicy()):
        model = plain()
        fully_shard(model[0], mp_policy=policy)
        return fully_shard(model, mp_policy=policy)

    wrapped = pytest.mark.parametrize("make", [sharded, lambda: DDP(plain())])

    FAST = {"lr": 3e-2, "steps": 40}

    def one(rank): return tuple(part[:1] for part in batch(rank))

    @wrapped
    def test_clean(rank_group, rank, make):
        verdict = overfit(make, one(rank), loss=mean, **FAST)
        assert codes(verdict) == ()
        assert verdict.value("parameters with a gradient") == 4
        (losses,) = verdict.curves[0].series.values()
        everyones = [None, None]
        dist.all_gather_object(everyones, losses)
        assert everyones[0] == everyones[1]

    def test_gradients_are_measured_whole(rank_group, rank):
        spread, alone = (overfit(make, one(0), loss=mean, **FAST) for make in (sharded, plain))
        ((norms,), (right,)) = (each.curves[1].series.values() for each in (spread, alone))
        assert norms == pytest.approx(right, rel=1e-3) and min(right[:10]) > 0.01

    def test_low_precision_with_parameters_in_float32(rank_group, rank):
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        assert codes(overfit(lambda: sharded(policy), one(rank), loss=mean, **FAST)) == ()

    @wrapped
    def test_rate(rank_group, rank, make):
        verdict = overfit(make, one(rank), loss=mean, lr=1e-3, steps=40)
        assert codes(verdict) == ("learning-rate-too-low",)

    @wrapped
    def test_frozen(rank_group, rank, make):
        def frozen():
            model = plain()
            model[0].bias.requires_grad_(False)
            return fully_shard(model) if make is sharded else DDP(model)
        assert codes(overfit(frozen, one(rank), loss=mean, **FAST)) == ("frozen-parameters",)

    def test_what_one_rank_finds_all_say(rank_group, rank):
        inputs, targets = one(rank)
        if rank == 1:
            inputs, targets = inputs.repeat(2, 1), torch.tensor([0, 1])
        verdict = overfit(lambda: DDP(plain()), (inputs, targets), loss=mean, **FAST)
        assert codes(verdict) == ("contradicting-targets",)

    def test_not_finite_on_one_rank(rank_group, rank):
        inputs, targets = one(rank)
        if rank == 1:
            inputs = inputs * float("nan")
        verdict = overfit(lambda: DDP(plain()), (inputs, targets), loss=mean, **FAST)
        assert codes(verdict)[0] == "not-finite"

    def test_alone_in_a_rank(rank_group, rank):
        if rank == 0:
            assert codes(overfit(plain, one(rank), loss=mean, **FAST)) == ()
"""


def test_clean_ranks_pass_and_each_fault_is_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_gradients=COMMON + GRADIENTS,
        test_sharded=COMMON + SHARDED,
        test_loss_scale=COMMON + LOSS_SCALE,
        test_overfit=COMMON + OVERFIT,
    )
    result = pytester.runpytest_subprocess(CPU, "-q", timeout=100)
    assert "55 passed" in said(result), said(result)
    assert result.ret == 0, said(result)
