"""Sharded models beside unsharded ones, in sessions of two gloo ranks, with each fault planted."""

from __future__ import annotations

import sys

import pytest

from session.running import CPU, said

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ranks run on Linux only")

COMMON = """
    import pytest, torch
    from torch import distributed as dist, nn
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.nn import functional as F
    from pytest_remotegpu.diagnostics import fsdp_matches

    pytestmark = pytest.mark.gpu(2, launcher="torchrun")
    BF16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    HERE = {}

    @pytest.fixture(autouse=True)
    def _here(rank_group, rank, gpu_device):
        HERE.update(rank=rank, device=gpu_device)

    def mlp():
        # of rows 9, 1 and 4: shards are uneven, and one is empty
        layers = nn.Linear(8, 9), nn.Tanh(), nn.Dropout(0.5), nn.Linear(9, 1), nn.Linear(1, 4)
        return nn.Sequential(*layers).to(HERE["device"])

    def batch(seed=0, sizes=(4, 4), rank=None):
        rank = HERE["rank"] if rank is None else rank
        numbers, size = torch.Generator().manual_seed(10 * seed + rank), sizes[rank]
        inputs = torch.randn(size, 8, generator=numbers)
        targets = torch.randint(0, 4, (size,), generator=numbers)
        return inputs.to(HERE["device"]), targets.to(HERE["device"])

    def mean(model, batch):
        return F.cross_entropy(model(batch[0]).float(), batch[1])

    def weighted(model, batch):
        total = torch.tensor(float(len(batch[1])), device=HERE["device"])
        dist.all_reduce(total)
        return mean(model, batch) * len(batch[1]) * dist.get_world_size() / total

    def check(make=mlp, data=None, **more):
        how = {"loss": mean, "steps": 2, **more}
        if not {"shard", "policy"} & {*how}:
            how["shard"] = fully_shard  # in one piece, which takes less time
        verdict = fsdp_matches(make, data or batch(), **how)
        print(verdict)
        return verdict

    def codes(*given, **more): return check(*given, **more).codes
"""

CLEAN = """
    @pytest.mark.parametrize("seed", range(10))
    def test_clean(seed):
        verdict = check(data=batch(seed), seed=seed, steps=4, shard=None)
        assert verdict.codes == ()
        assert verdict.value("parameters that are sharded") == 6
        assert verdict.value("computed in") == "float32"
        assert verdict.value("largest difference of a gradient") < 1e-5
        assert verdict.value("resumed from") == "full, sharded"
        one, other = verdict.curves[0].series.values()
        assert one == pytest.approx(other, rel=1e-5) and one[-1] < one[0]

    @pytest.mark.parametrize("seed", range(4))
    def test_clean_in_bfloat16(seed):
        verdict = check(data=batch(seed), seed=seed, policy=BF16)
        assert verdict.codes == ()
        assert verdict.value("computed in") == "bfloat16"

    @pytest.mark.gpu(1, launcher="torchrun")
    def test_one_rank():
        assert codes() == codes(policy=BF16) == ()

    def test_other_numbers_of_tokens_clipped():
        assert codes(data=batch(sizes=(3, 5)), loss=weighted, whole=mean, clip=0.1) == ()

    def test_one_batch_that_is_split():
        whole = batch(rank=0, sizes=(6,))
        assert codes(data=whole, split=True) == ()
        whole = batch(rank=0, sizes=(7,))
        assert codes(data=whole, split=True) == ("mean-of-means",)
        assert codes(data=whole, split=True, loss=weighted, whole=mean) == ()

    def test_batches_that_change():
        assert codes(data=lambda step: batch(step)) == ()

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
            self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
            self.head.weight = self.embed.weight
            self.unused = nn.Linear(3, 3)
            self.frozen = nn.Linear(4, 4).requires_grad_(False)
            self.register_buffer("shift", torch.ones(4))

        def forward(self, ids):
            x = self.embed(ids)
            for layer in self.layers:
                x = x + layer(x).tanh()
            return self.head(self.frozen(x) + self.shift)

    def tied(): return Tied().to(HERE["device"])

    def tokens():
        numbers = torch.Generator().manual_seed(HERE["rank"])
        ids = torch.randint(0, 10, (4, 5), generator=numbers).to(HERE["device"])
        return ids[:, :-1].flatten(), ids[:, 1:].flatten()

    def test_tied_frozen_and_unused():
        verdict = check(tied, tokens(), shard=None)
        assert verdict.codes == ()
        assert verdict.value("resumed from") == "full, sharded"

    def test_tied_weights_that_are_cut():
        def shard(model):
            fully_shard(model.embed)
            return fully_shard(model)
        verdict = check(tied, tokens(), shard=shard)
        assert verdict.codes == ("tied-weights-broken",)
        assert verdict.findings[0].where == ("embed.weight = head.weight",)

    def test_all_is_left_as_it_was():
        groups = len(dist.distributed_c10d._world.pg_map)
        torch.manual_seed(7)
        numbers = torch.get_rng_state()
        check()
        assert torch.equal(numbers, torch.get_rng_state())
        assert len(dist.distributed_c10d._world.pg_map) == groups
"""

GRADIENTS = """
    def test_no_averaging():
        verdict = check(shard=lambda model: None)
        assert verdict.codes == ("not-sharded", "dropped-all-reduce")
        assert [len(finding.where) for finding in verdict.findings] == [6, 6]

    def test_a_parameter_that_is_left_out():
        def shard(model):
            fully_shard(model, ignored_params={model[0].bias})
        verdict = check(shard=shard)
        assert verdict.codes == ("not-sharded", "dropped-all-reduce")
        assert [finding.where for finding in verdict.findings] == [("0.bias",), ("0.bias",)]

    def test_left_out_on_purpose_and_frozen():
        def make():
            model = mlp()
            model[0].bias.requires_grad_(False)
            return model
        def shard(model):
            fully_shard(model, ignored_params={model[0].bias})
        assert codes(make, shard=shard) == ("not-sharded",)
        assert codes(make, shard=shard, unsharded=["0.*"]) == ()

    def test_sum():
        double = lambda model, batch: mean(model, batch) * 2
        assert codes(loss=double, whole=mean) == ("sum-instead-of-mean",)

    def test_divided_twice():
        half = lambda model, batch: mean(model, batch) / 2
        assert codes(loss=half, whole=mean) == ("divided-twice",)

    def test_mean_of_means():
        assert codes(data=batch(sizes=(2, 6))) == ("mean-of-means",)

    def test_gradients_that_do_not_come():
        def shard(model):
            fully_shard(model)
            model.set_requires_gradient_sync(False)
        verdict = check(shard=shard)
        assert verdict.codes == ("missing-gradient",)
        assert len(verdict.findings[0].where) == 6

    def test_same_data():
        verdict = check(data=batch(rank=0))
        assert verdict.codes == ("same-data",)
        assert verdict.findings[0].where == ("rank 0", "rank 1")

    def test_other_loss():
        more = lambda model, batch: mean(model, batch) + 0.1
        assert codes(loss=more, whole=mean) == ("losses-differ",)

    def test_random_loss():
        noisy = lambda model, batch: F.cross_entropy(F.dropout(model(batch[0])), batch[1])
        assert codes(loss=noisy) == ("random-loss",)

    def test_not_finite():
        odd = lambda model, batch: mean(model, batch) / (HERE["rank"] - 1)
        assert "not-finite" in codes(loss=odd, whole=mean)
"""

MODELS = """
    def test_weights_that_differ():
        def make():
            torch.manual_seed(HERE["rank"])
            return mlp()
        verdict = check(make)
        assert verdict.codes == ("different-weights",)
        assert len(verdict.findings[0].where) == 6

        def shard(model):
            for parameter in model.parameters():
                dist.broadcast(parameter.data, 0)
            fully_shard(model)
        assert codes(make, shard=shard) == ()

    def test_numbers_of_the_test_itself():
        torch.manual_seed(HERE["rank"])
        assert codes(seed=None) == ("different-weights",)
        torch.manual_seed(3)
        assert codes(seed=None) == ()

    def test_buffers_that_differ():
        def make():
            model = mlp()
            model.register_buffer("scale", torch.tensor(float(HERE["rank"])))
            return model
        verdict = check(make)
        assert verdict.codes == ("different-buffers",)
        assert verdict.findings[0].where == ("scale",)

    def test_running_statistics():
        def make():
            return nn.Sequential(nn.BatchNorm1d(8), mlp()).to(HERE["device"])
        verdict = check(make)
        assert verdict.codes[0] == "different-buffers"
        assert "after 2 steps" in verdict.findings[0].what

    def test_model_in_low_precision():
        inputs, targets = batch()
        verdict = check(lambda: mlp().bfloat16(), (inputs.bfloat16(), targets),
                        loss=lambda model, b: F.cross_entropy(model(b[0].to(model[0].weight.dtype)),
                                                              b[1]))
        assert verdict.codes[0] == "dtype-leak"
        where = verdict.findings[0].where
        assert "0.weight: parameter in bfloat16" in where
        assert "0.weight: gradient in bfloat16" in where
        assert "0.weight: optimizer's exp_avg in bfloat16" in where

    def test_buffer_in_low_precision():
        def make():
            model = mlp()
            model.register_buffer("scale", torch.ones(2, dtype=torch.bfloat16))
            return model
        verdict = check(make)
        assert verdict.codes == ("dtype-leak",)
        assert verdict.findings[0].where == ("scale: buffer in bfloat16",)
        assert codes(make, short=["sc*"]) == ()

    def test_reduction_in_low_precision():
        verdict = check(policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
        assert verdict.codes == ("reduced-in-low-precision",)
"""

OPTIMIZERS = """
    def adam(model, **more): return torch.optim.AdamW(model.parameters(), **{"lr": 1e-3, **more})

    def test_made_before_sharding():
        def shard(model):
            optimizer = adam(model)
            return fully_shard(model), optimizer
        verdict = check(shard=shard, make_optimizer=adam)
        assert verdict.codes == ("stale-optimizer",)
        assert len(verdict.findings[0].where) == 6

    def test_made_with_sharding():
        def shard(model):
            fully_shard(model)
            return model, adam(model)
        assert codes(shard=shard, make_optimizer=adam) == ()
        with pytest.raises(ValueError, match="give make_optimizer"):
            check(shard=shard)

    def test_lacks_a_parameter():
        def some(model):
            return torch.optim.AdamW([p for p in model.parameters() if p.ndim > 1], lr=1e-3)
        verdict = check(make_optimizer=some)
        assert verdict.codes == ("not-in-optimizer",)
        assert len(verdict.findings[0].where) == 3

    def test_other_rate():
        def make_optimizer(model):
            return adam(model, lr=2e-3 if hasattr(model[0].weight, "placements") else 1e-3)
        assert codes(make_optimizer=make_optimizer)[-1] == "parameters-differ"

    def test_loss_that_rises_and_one_that_rests():
        assert codes(make_optimizer=lambda m: adam(m, maximize=True)) == ("loss-does-not-fall",)
        assert codes(make_optimizer=lambda m: adam(m, lr=0.0)) == ("unchanged-parameters",)

    def test_state_dictionary_that_drops_a_key():
        def make():
            model = mlp()
            def drop(module, state, prefix, local):
                del state[prefix + "bias"]
            model[0].register_state_dict_post_hook(drop)
            return model
        verdict = check(make)
        assert {*verdict.codes} == {"state-dict-drops-keys"}
        assert verdict.findings[0].where == ("0.bias",)

    def saving(skip=(), state=True):
        def save(model, optimizer):
            kept = {n: p.to_local().clone() for n, p in model.named_parameters() if n not in skip}
            return kept, optimizer.state_dict()
        @torch.no_grad()
        def load(model, optimizer, kept):
            for name, parameter in model.named_parameters():
                if name in kept[0]:
                    parameter.to_local().copy_(kept[0][name])
            if state:
                optimizer.load_state_dict(kept[1])
        return {"save": save, "load": load}

    def test_saving_of_ones_own():
        assert codes(**saving()) == ()

    def test_saving_that_forgets_weights():
        verdict = check(**saving(skip=["0.weight"]))
        assert verdict.codes == ("resumed-weights-differ",)
        assert verdict.findings[0].where == ("0.weight",)

    def test_saving_that_forgets_the_optimizer():
        verdict = check(**saving(state=False))
        assert verdict.codes == ("resumed-optimizer-differs",)
        assert "0.weight: exp_avg" in verdict.findings[0].where

    def test_what_is_in_no_state_dictionary():
        def make():
            model = mlp()
            model[0].register_buffer("noise", torch.randn(8), persistent=False)
            return model.to(HERE["device"])
        def noisy(model, batch):
            return mean(model, (batch[0] + model[0].noise, batch[1]))
        assert {*codes(make, loss=noisy)} == {"resumed-run-differs"}
"""

ERRORS = """
    @pytest.mark.parametrize("place", ["make_model", "loss", "shard", "batch"])
    def test_what_one_rank_raises_all_raise(place):
        def odd():
            if HERE["rank"] == 1:
                raise LookupError("no such file")
        def make():
            return place == "make_model" and odd() or mlp()
        def loss(model, batch):
            return place == "loss" and odd() or mean(model, batch)
        def shard(model):
            return place == "shard" and odd() or fully_shard(model)
        def data(step):
            return place == "batch" and odd() or batch(step)
        error = LookupError if HERE["rank"] == 1 else RuntimeError
        with pytest.raises(error, match="no such file"):
            fsdp_matches(make, data, loss=loss, shard=shard)
        assert codes() == ()

    def test_what_can_not_be_meant():
        with pytest.raises(ValueError, match="steps is 1"):
            check(steps=1)
        with pytest.raises(ValueError, match="policy is for the default shard"):
            check(shard=fully_shard, policy=BF16)
        with pytest.raises(ValueError, match="save and load belong together"):
            check(save=lambda model, optimizer: None)
        model = mlp()
        with pytest.raises(ValueError, match="the same parameters twice"):
            check(lambda: model)
        with pytest.raises(ValueError, match="without parameters, or with some on the meta device"):
            check(lambda: mlp().to("meta"))
        with pytest.raises(ValueError, match="other parameters"):
            check(shard=lambda model: fully_shard(model[0]))
        with pytest.raises(ValueError, match="theirs differ"):
            check(split=True)
        with pytest.raises(ValueError, match="can't be split into 2"):
            check(data=batch(rank=0, sizes=(1,)), split=True)

    def test_no_group(monkeypatch):
        monkeypatch.setattr(dist, "is_initialized", lambda: False)
        with pytest.raises(ValueError, match="there is no process group"):
            fsdp_matches(mlp, (torch.ones(1, 8), torch.ones(1)), loss=mean)
"""


def test_clean_ranks_pass_and_each_fault_is_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_clean=COMMON + CLEAN,
        test_gradients=COMMON + GRADIENTS,
        test_models=COMMON + MODELS,
        test_optimizers=COMMON + OPTIMIZERS,
        test_errors=COMMON + ERRORS,
    )
    result = pytester.runpytest_subprocess(CPU, "-q", timeout=300)
    assert "55 passed" in said(result), said(result)
    assert result.ret == 0, said(result)
