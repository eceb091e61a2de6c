"""Commands that are no questions: their functions, whose arguments are the options."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from latentcode.errors import ConfigError, LatentCodeError, check, check_count

if TYPE_CHECKING:
    from latentcode.runs import Run
    from latentcode.sweep import Grid

Split = Literal["train", "test", "ood", "unknown"]
Preset = Literal["paper", "small", "smoke"]
REPOSITORY = "https://github.com/latentcode/latentcode"


def show(folder: str, *, split: Split | None = None, index: int = 0) -> None:
    """Show what a folder holds.

    Example: latentcode show sraven-hyla --split ood --index 3

    Shows a run, codes, a result, or a problem of a run's task.

    Args:
        folder: A run folder, a model of the zoo such as sraven-hyla, codes, a result, or
            hf://user/name.
        split: Show a problem of this split of the run's task; default: show the run itself.
        index: Which problem, from 0.
    """
    from latentcode.codes import LatentCodes
    from latentcode.codes.latent_codes import described
    from latentcode.devices import make_generator
    from latentcode.probes.common.results import load_result, result_kind
    from latentcode.runs.run import folder_of, load_run
    from latentcode.tasks import make_task

    path = folder_of(folder)
    is_codes = (path / "codes.safetensors").is_file()
    is_result = not is_codes and result_kind(path) is not None
    check(split is None or not (is_codes or is_result), f"--split is {split!r}, but {folder} is "
          "not a run; expected a run, whose task has problems to show", LatentCodeError)
    if is_codes:
        codes = LatentCodes.load(path)
        print(codes)
        print(described(codes.labels).to_string(index=False))
    elif is_result:
        print(load_result(path))
    elif split is None:
        run = load_run(path)
        print(run)
        print_metrics(run)
    else:
        check_count("--index", index, 0, LatentCodeError, most=10**6)  # all before it are drawn
        task = make_task(load_run(path).config.task)
        problems = task.sample(split, index + 1, make_generator(0, f"show {split}"))
        print(task.render(problems, index))


def print_metrics(run: Run) -> None:
    """Print the newest means on every split, then those of single rules or terms."""
    from latentcode.zoo import constituent_metrics

    latest, constituents = run.latest(), constituent_metrics(run)
    print("no metrics: metrics.jsonl is empty" if latest.empty else latest.to_string(na_rep=""))
    if not constituents.empty:
        table = constituents.to_string(na_rep="", float_format="{:.3f}".format)
        print(f"\nby constituent\n{table}")


def push(
    folder: str, repo: str, *, private: bool = False, license: str | None = None,
    message: str | None = None,
) -> None:
    """Share a run or codes on the Hugging Face hub.

    Example: latentcode push runs/hyla user/hyla --private

    A run is shared without what training would need to go on, and with its results; whoever may
    read it opens hf://user/hyla, with every command that takes a run. Codes are shared as a data
    set. It needs a token that may write: hf auth login, or HF_TOKEN.

    Args:
        folder: A run folder, a model of the zoo such as sraven-hyla, or codes.
        repo: The repository, user/name; made if it does not exist.
        private: Make a new repository that only you can read.
        license: License that its page names, such as mit; default: none is named.
        message: Message of the commit; default: what is pushed.
    """
    from latentcode.codes import LatentCodes
    from latentcode.runs.run import folder_of, load_run

    path = folder_of(folder)
    is_codes = (path / "codes.safetensors").is_file()
    shared = LatentCodes.load(path) if is_codes else load_run(path)
    address = shared.push_to_hub(repo, private=private, license=license, commit_message=message)
    print(f"pushed {address}")


def generate(
    model: str, prompt: str, *, max_new_tokens: int = 20, without: tuple[str, ...] = (),
    at: Literal["everywhere", "prompt", "generated"] = "everywhere", temperature: float = 0.0,
    top_k: int | None = None, seed: int = 0, revision: str | None = None,
    device: str | None = None, dtype: str | None = None, prepend_bos: bool | None = None,
    out: Path | None = None, overwrite: bool = False,
) -> None:
    """Generate text with a model, and without some of its heads.

    Example: latentcode generate gpt2 "The capital of France is" --without 5.3 5.7

    With --out the codes of all new tokens with all tokens of the prompt are saved, which every
    question about codes takes.

    Args:
        model: A language model's folder or its name on the hub, also with @revision, or a text
            model that was trained here.
        prompt: The text to continue.
        max_new_tokens: Tokens to generate, fewer where the model ends the text.
        without: Heads whose codes become zero, LAYER.HEAD such as 5.3 (or L5H3), or all heads of a
            LAYER; default: none.
        at: Of which queries --without is: all tokens, those of the prompt, or those that are
            generated.
        temperature: 0: the most probable token; else p^(1 / temperature), drawn from the seed.
        top_k: Draw from the most probable tokens alone; default: all.
        seed: Seed of drawn tokens.
        revision: Branch, tag or commit of a model on the hub; default: the newest commit.
        device: cpu or cuda; default: cpu.
        dtype: Type of the weights, such as bfloat16; default: float32.
        prepend_bos: Whether the prompt begins with the BOS token; default: as the tokenizer does.
        out: Folder to save the codes in, with --without those of the patched model; default: none.
        overwrite: Replace codes in that folder.
    """
    from latentcode.devices import resolve_device
    from latentcode.files.storage import check_free
    from latentcode.models.patched.heads import HEAD
    from latentcode.probes.generation import generate
    from latentcode.probes.interventions import Patch
    from latentcode.progress import Bar
    from latentcode.prompts import load_language_model

    patches = []
    for head in without:
        match = HEAD.fullmatch(head)
        if match is None:
            raise ConfigError(f"without is {head!r}; expected LAYER.HEAD, such as 5.3, or a LAYER")
        patches.append(Patch(
            "zero_ablation", layers=(int(match[1]),),
            heads=None if match[2] is None else (int(match[2]),),
            queries=None if at == "everywhere" else at))
    if out is not None:
        check_free(out, overwrite=overwrite, marker="meta.json")
    network = load_language_model(model, revision=revision, dtype=dtype, device=(
        None if device is None else resolve_device(device)))
    options: Any = {
        "max_new_tokens": max_new_tokens, "temperature": temperature, "top_k": top_k, "seed": seed,
        "layers": () if out is None else None, "prepend_bos": prepend_bos}
    patched = None
    if patches:  # first, as heads that the model does not have are refused here
        with Bar("generating without") as progress:
            patched = generate(network, prompt, patches=patches, progress=progress, **options)
    with Bar("generating") as progress:
        text = generate(network, prompt, progress=progress, **options)
    print(text.prompt)
    print(f"the model: {text.text!r}")
    if patched is not None:
        print(f"without {' '.join(without)}: {patched.text!r}")
        text = patched
    print(text.table.to_string(index=False, float_format="{:.3f}".format))
    if out is not None:
        text.codes().save(out, overwrite=overwrite)
        print(f"wrote codes {out}")


def explore(
    folders: tuple[str, ...] = (), *, texts: str | None = None, n: int | None = None,
    longest: int | None = None, port: int | None = None, no_browser: bool = False,
) -> None:
    """Browse codes and results in the web browser.

    Example: latentcode explore runs/

    It shows the models that come with the library, and the runs and codes found in the given
    folders. Of a language model it shows the codes of texts, its heads, and prompts that you type:
    latentcode explore gpt2 --texts texts.txt

    Args:
        folders: Runs, codes, or folders that contain them, models that come with the library, or
            hf://user/name; default: the current folder. Nothing outside them is read. With --texts
            a language model: a folder, a name on the hub such as gpt2 or
            EleutherAI/pythia-70m@step1000, or a run on text.
        texts: Texts that a language model is asked about: one per line (.txt), or one object with
            "text" per line (.jsonl); default: no language model.
        n: Texts that are read at most, the first ones; default: 1,000.
        longest: Tokens of each text; longer ones are cut; default: 128.
        port: Port of the page; default: the first free one from 8501.
        no_browser: Do not open a browser window.
    """
    from latentcode.app.server import serve

    language = None
    if texts is None:
        for name, value in (("n", n), ("longest", longest)):
            check(value is None, f"--{name} is {value}, and no texts are given; expected --texts "
                  "with a file, too")
    else:
        from latentcode.app.language.given import LONGEST, TEXTS, checked

        language = checked(folders, texts, n=TEXTS if n is None else n,
                           longest=LONGEST if longest is None else longest)
    with TemporaryDirectory() as copies:
        shown = [] if language is not None else [
            _here(folder, Path(copies)) for folder in folders]
        status = serve(shown, port=port, browser=not no_browser, language=language)
    if status:
        raise SystemExit(status)


def _here(folder: str, copies: Path) -> Path:
    """Return a folder, that of a model of the zoo, or a copy of what lies at an address on the hub.

    The cache of the hub is made of links, and the explorer follows none out of its folders.
    """
    import shutil

    from latentcode.hub import fetch, is_address, origin
    from latentcode.runs.run import ZOO_PREFIX, folder_of, zoo_folders

    if not is_address(folder):
        is_model = folder in zoo_folders() or folder.startswith(ZOO_PREFIX)
        return folder_of(folder) if is_model else Path(folder)
    downloaded = fetch(folder)
    known = origin(downloaded)
    assert known is not None
    assert known.revision is not None
    copy = copies / known.revision / known.repo
    shutil.copytree(downloaded, copy, dirs_exist_ok=True)
    return copy


def list_models() -> None:
    """Print a table of the models: task, kind, size and metrics on every split.

    Example: latentcode zoo list
    """
    from latentcode import zoo
    from latentcode.runs.run import ZOO

    models = zoo.list_models()
    check(len(models) > 0, "this installation of latentcode has no models in its zoo",
          LatentCodeError)
    table = models.drop(columns="summary").dropna(axis="columns", how="all")
    formats = {"parameters": "{:,}".format, "megabytes": "{:.1f}".format}
    print(table.rename_axis(None).to_string(
        formatters=formats, float_format="{:.3f}".format, na_rep=""))
    print(f"a page about each: {ZOO}/NAME/README.md")


def check_model(
    model: str, *, dtype: Literal["float32", "float64"] = "float32",
    lengths: tuple[int, ...] | None = None, seed: int = 0, device: str = "cpu",
    out: Path | None = None, overwrite: bool = False,
) -> None:
    """See if a language model can be trusted.

    Its TransformerLens bridge has to compute what transformers computes, to show the codes that
    attention used, and to take those that are written. The exit status is 0 if everything holds
    (SUPPORTED), 1 if something fails or its codes cannot be compared, 2 if the model cannot be
    opened.

    Example: latentcode zoo check gpt2

    Args:
        model: Folder that save_pretrained wrote, or a name on the Hugging Face hub, also with
            @revision.
        dtype: Type of the weights; in float64 rounding hides no mistake.
        lengths: Tokens of the random prompts; default: 4 9 32.
        seed: Seed of everything random.
        device: cpu or cuda.
        out: Folder to save the result in; default: none.
        overwrite: Replace an earlier result in that folder.
    """
    from latentcode.devices import resolve_device
    from latentcode.files.storage import check_free
    from latentcode.probes.model_checks import ModelCheckResult, check_model
    from latentcode.progress import Bar

    if out is not None:
        check_free(out, overwrite=overwrite, marker=ModelCheckResult.marker())
    with Bar("comparing") as progress:
        result = check_model(model, lengths=lengths, dtype=dtype, seed=seed,
                             device=resolve_device(device), progress=progress)
    print(result)
    if out is not None:
        print(f"wrote result {result.save(out, overwrite=overwrite)}")
    if not result.supported:
        raise SystemExit(1)


def write_text(
    what: Literal["packages", "spans"], out: Path, *, overwrite: bool = False
) -> None:
    """Write a text to train language models on, without a network.

    Example: latentcode zoo text spans text

    `spans` are 8,000 documents whose few spans of random words come again and again, so that small
    models learn to copy. `packages` is the text of the grid `fig6_small`: tens of megabytes of
    docstrings, documents and sources of the installed Python packages, the same for the same
    versions. `latentcode train language --task.text text --out runs/language` trains on either.

    Args:
        what: Which text.
        out: Folder for the text.
        overwrite: Replace a text that was written so before.
    """
    from latentcode.sweep import texts

    if what == "spans":
        texts.write_spans(out, overwrite=overwrite)
        print(f"wrote {texts.N_DOCUMENTS:,} documents to {out}")
    else:
        packages = texts.write_packages(out, overwrite=overwrite)
        n, size = (sum(package[key] for package in packages) for key in ("documents", "bytes"))
        print(f"wrote {n:,} documents of {len(packages)} packages, {size / 1e6:.1f} MB, to "
              f"{out}; their versions are in about.json")


ZOO = {"list": list_models, "check": check_model, "text": write_text}
"""`latentcode zoo`: list the models of the library, check a language model, write texts."""


def sweep(
    *, out: Path, grid: str | None = None, preset: Preset | None = None, task: str | None = None,
    kind: str | None = None, config: Path | None = None,
    fix: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = (),
    axis: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = (),
    device: str | None = None, executor: Literal["local", "ray"] = "local",
    ray_address: str | None = None, processes: int | None = None,
    members_at_once: int | None = None, budget: str | None = None,
    select_on: Literal["test", "ood"] = "test", publish: Path | None = None,
) -> None:
    """Train a grid of models, and write one table.

    Example: latentcode sweep --out runs/sweep --preset small --task logic
    --axis kind=softmax,hyla --axis training.seed=0,1,2

    If interrupted, `latentcode sweep --out OUT` continues where it stopped.

    Args:
        out: Folder for the runs and tables.
        grid: YAML file with base and axes, whose fields --fix and --axis change; or a built-in
            grid: sraven_known, sraven_confirm, sraven_replication, fig6_small, spans_small,
            paper_logic, paper_sraven, paper_sraven_confirm, paper_logic_codes, paper_logic_heldout,
            paper_logic_ablations, paper_sraven_ablations, smoke_logic; default: a grid of the
            options below.
        preset: Configuration that all members start from; default: small.
        task: Task of all members: logic, sraven, language, or one that --import registers; default:
            logic.
        kind: Attention kind of all members; default: hyla, unless it is an axis.
        config: YAML file with a whole configuration that all members start from; default: as
            --preset, --task and --kind say.
        fix: A field and its value for all members, such as training.steps=500.
        axis: A field and its values, such as training.seed=0,1,2; replaces the axis of --grid that
            has the same name. Fields joined by + vary together:
            training.seed+task.split_seed=[0,0],[1,1].
        device: cpu or cuda, for all members; default: as in the grid.
        executor: Processes on this machine, or a Ray cluster (needs latentcode[sweep]).
        ray_address: Address of a running Ray cluster, or auto; default: start a cluster.
        processes: Number of jobs at a time; more than there are GPUs share them; default: one per
            core or GPU.
        members_at_once: Number of members that one job trains together; default: on CUDA as many as
            leave every process a job, else 1.
        budget: Time after which every job has stopped at a checkpoint: 90s, 30m, 2h; default: none.
        select_on: Split on which the best settings are selected; the paper selects on ood.
        publish: Folder to which each member is copied as soon as it is finished: configuration,
            metrics, provenance and final weights, from which training cannot go on; default:
            publish nothing.
    """
    began = time.time()  # a budget begins before the imports, which take seconds
    from latentcode.sweep import existing, parse_budget, sweep

    deadline = None if budget is None else began + parse_budget(budget)
    given = {"--grid": grid, "--config": config, "--preset": preset, "--task": task,
             "--kind": kind}
    start = {flag: value for flag, value in given.items() if value}
    members = _grid(start, fix, axis) if start or fix or axis else existing(out)
    if members is None:
        raise LatentCodeError(f"{out} holds no sweep to continue; expected --axis, or --grid with "
                              "a YAML file or a name")
    if device is not None:
        base = replace(members.base, training=replace(members.base.training, device=device))
        members = replace(members, base=base)
    result = sweep(members, out, executor=executor, processes=processes,
                   members_at_once=members_at_once, deadline=deadline, ray_address=ray_address,
                   select_on=select_on, publish=publish)
    print(result)
    print(f"wrote table {out / 'table.csv'}")
    for member, why in result.failed.items():
        print(f"error: member {member}: {why}", file=sys.stderr)
    if result.failed:
        raise SystemExit(1)


def _grid(start: dict[str, Any], fix: tuple[str, ...], axis: tuple[str, ...]) -> Grid:
    """Return the grid that flags describe: where it starts, fields that are fixed, and axes."""
    from latentcode.config import load_config
    from latentcode.presets import preset
    from latentcode.sweep import Grid, load_grid, parse_axis
    from latentcode.sweep.grid import KIND, check_field, with_fields

    def fields(flag: str, texts: tuple[str, ...]) -> dict[str, tuple[Any, ...]]:
        parsed: dict[str, tuple[Any, ...]] = {}
        for text in texts:
            name, values = parse_axis(text, flag)
            check(name not in parsed, f"{flag} {name} is given twice; expected every field once",
                  LatentCodeError)
            parsed[name] = values
        return parsed

    first = next(iter(start), "")
    check(len(start) < 2 or first not in ("--grid", "--config"), f"{first} {start.get(first)} is "
          f"given together with {', '.join([*start][1:])}; expected one or the other",
          LatentCodeError)
    axes: dict[str, tuple[Any, ...]] = {}
    if first == "--grid":
        grid = load_grid(start["--grid"])
        base, axes = grid.base, dict(grid.axes)
    elif first == "--config":
        base = load_config(start["--config"])
    else:
        base = preset(start.get("--preset", "small"), start.get("--task", "logic"),
                      start.get("--kind", "hyla"))
    fixed = fields("--fix", fix)
    for field, values in fixed.items():
        check(field != KIND, f"--fix {field} is no field; expected --axis kind=... or, without "
              "--grid, --kind", LatentCodeError)
        check_field(field)
        taken = [name for name in axes if field in name.split("+")]
        check(not taken, f"--fix {field} is an axis of grid {start.get('--grid')}; expected "
              f"--axis {''.join(taken[:1])}=...", LatentCodeError)
        check(len(values) == 1, f"--fix {field} has {len(values)} values; expected one, or --axis",
              LatentCodeError)
    base = with_fields(base, {field: values[0] for field, values in fixed.items()})
    return Grid(base, {**axes, **fields("--axis", axis)})


def reproduce(
    names: tuple[str, ...] = (), *, preset: Preset = "small", out: Path = Path("results/paper"),
    work: Path = Path("runs/paper"), runs: tuple[Path, ...] = (), device: str = "cpu",
    no_train: bool = False, missing: bool = False, report: bool = False,
    pages: Path | None = None,
) -> None:
    """Do the figures and tables of the paper hold? Train, measure, judge, draw them.

    Example: latentcode reproduce fig2c tabA1 --preset small

    Names: fig2b fig2c figA3 fig2d figA2 fig4 figA4 fig5ab figA6 figA7 fig5c fig5d fig5e figA8 fig5f
    figA5 figA1 tabA1 nonlinearity tabA2 figA9 tabA3 fig6, or all. Runs that are there
    already are used, and what they lack is trained; at preset paper that can take days. If
    interrupted, the same command continues where it stopped. It needs a checkout of the repository.

    `latentcode reproduce --report` puts on one page what the paper claims and what was found:
    README.md, and a row per claim in verdicts.csv.

    Args:
        names: Figures and tables, or all; required, but for --report.
        preset: paper: the published setting, with verdicts; small: scaled down, minutes each;
            smoke: a minute each, for tests.
        out: Folder for the results, a folder each below that of the preset.
        work: Folder for the runs that are trained, and for what is measured of single runs.
        runs: Further folders of runs that count, such as that of a sweep; never written to.
        device: cpu or cuda.
        no_train: Work with the runs that are there, and train none.
        missing: Leave alone what is there already, of the same runs.
        report: Write the page about all that --out holds, alone or after what the names say.
        pages: Folder for the page; default: where the results are.
    """
    check(find_spec("latentcode.experiments") is not None,
          "latentcode reproduce needs the folder experiments/, which an installed wheel does not "
          f"have; expected a checkout: git clone --depth 1 {REPOSITORY} && cd latentcode && make "
          "env && .venv/bin/latentcode reproduce ...", LatentCodeError)
    check(report or pages is None, f"--pages is {pages}, and --report, which writes there, is "
          "missing; expected both, or none")
    from latentcode.experiments.paper.reproduce import (
        README,
        Request,
        names_of,
        reproduce,
        write_pages,
    )
    from latentcode.files.storage import check_writable

    if report:
        check_writable((pages or out) / README)
    if names or not report:
        known = names_of(names)
        request = Request(preset, out, work, runs, device, not no_train, missing)
        done = reproduce(known, request, lambda text: print(text, flush=True))
        print(f"{len(done)} of {len(known)} complete; wrote the results to {out / preset}")
    if report:
        for path in write_pages(out, pages or out):
            print(f"wrote {path}")
