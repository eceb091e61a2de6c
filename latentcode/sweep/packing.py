"""Which members are trained in one go? Those of one shape, as many as the memory holds."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from pathlib import Path

from latentcode.config import RunConfig
from latentcode.errors import check
from latentcode.models.transformer import HookedTransformer
from latentcode.training.ensemble import ensemble_key
from latentcode.training.workers import Job

USABLE = 0.8
"""Share of the free memory that is given to members; the rest is for evaluation and for what
the allocator cannot use."""


def pack(
    configs: Mapping[Path, RunConfig], members_at_once: int | Mapping[Hashable, int],
    checkpoints: Mapping[Path, Collection[int]] | None = None,
) -> list[Job]:
    """Group members that can share one ensemble, in groups of at most `members_at_once`.

    Groups follow the order of their first members, members keep their order, and the groups
    of one kind differ in size by one at most.

    members_at_once  one number, or one for each ensemble key
    checkpoints      steps that a member could resume from. An ensemble resumes from the newest that
                     all its members have; in one group that is the newest or (where they were
                     killed between two) the one before of every member, so that none loses more
                     than that, for example to one that broke long before. Or all have none
    """
    of_kind: dict[Hashable, list[tuple[set[int], list[Path]]]] = {}
    for path, config in configs.items():
        steps = set(sorted((checkpoints or {}).get(path, ()))[-2:])
        groups = of_kind.setdefault(ensemble_key(config), [])
        for common, paths in groups:
            if common & steps or not (common or steps):
                common &= steps
                paths.append(path)
                break
        else:
            groups.append((steps, [path]))
    jobs: list[Job] = []
    for key, paths in ((key, paths) for key, groups in of_kind.items() for _, paths in groups):
        most = members_at_once if isinstance(members_at_once, int) else members_at_once[key]
        check(most >= 1, f"members_at_once is {most}; expected at least 1")
        n_groups = -(-len(paths) // most)
        for group in range(n_groups):
            first, last = (len(paths) * g // n_groups for g in (group, group + 1))
            jobs.append({path: configs[path] for path in paths[first:last]})
    order = {path: number for number, path in enumerate(configs)}
    return sorted(jobs, key=lambda job: order[next(iter(job))])


def halve(job: Job) -> list[Job]:
    """Return the two halves of a job of several members."""
    members = list(job.items())
    middle = (len(members) + 1) // 2
    return [dict(members[:middle]), dict(members[middle:])]


def member_bytes(config: RunConfig) -> int:
    """Return 4 (5 N + B A): the memory in bytes that training one more member takes, roughly.

    N  number of weights, each kept five times: weight, gradient, two moments of Adam, and a
       copy of the weights for evaluation
    A  numbers per instance that the backward pass needs:
       L (T (10 D + 4 H d + 3 F) + 4 H T^2 + V T^2 d) + 4 T D, with F the hidden width of the
       feed-forward layer (of all experts for `moe`) and V = 4 for a value network that makes a
       vector for every pair of tokens, 0 for the linear one
    B  instances per update

    It is an upper estimate in float32, which bf16 does not exceed. Where it is too small all the
    same, a group that runs out of memory is halved.
    """
    model, tokens = config.model, config.task.n_tokens
    weights = sum(p.numel() for p in HookedTransformer(model, seed=0).parameters())
    hidden = model.d_mlp * (model.n_experts if model.feedforward == "moe" else 1)
    total_head = model.n_heads * max(model.d_head, model.d_head_v)
    vectors_per_pair = 0 if model.value_network == "linear" else 4
    per_block = (tokens * (10 * model.d_model + 4 * total_head + 3 * hidden)
                 + 4 * model.n_heads * tokens**2 + vectors_per_pair * tokens**2 * model.d_head_v)
    activations = model.n_layers * per_block + 4 * tokens * model.d_model
    return 4 * (5 * weights + config.training.batch_size * activations)


def members_that_fit(configs: Mapping[Path, RunConfig], free: int) -> dict[Hashable, int]:
    """Return floor(0.8 free / bytes of a member), at least 1, for each ensemble key.

    free  bytes of device memory
    """
    of_key = {ensemble_key(config): config for config in configs.values()}
    return {key: max(1, int(USABLE * free) // member_bytes(config))
            for key, config in of_key.items()}
